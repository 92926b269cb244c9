"""What backend `nccl` costs on GPUs beside NCCL alone and torch.distributed: see __main__.py."""
