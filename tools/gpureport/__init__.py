"""What `tools/gpu_report` does: tests and benchmarks of the backends for GPUs."""
