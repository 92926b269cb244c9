"""Programs of torch.distributed on our communicators."""
