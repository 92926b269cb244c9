"""What `tools/gpu_report` does: tests and benchmarks of backend `nccl` on the GPUs of a machine."""
