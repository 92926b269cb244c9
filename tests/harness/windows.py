"""Memory that a window may be in: a vendor's library shows none but its own to other ranks."""

from __future__ import annotations

from typing import Any

import torch

LIBRARIES = ("nccl", "nccl-lazy", "rccl")
_pools: dict[str, Any] = {}


def is_over_library(comm: Any) -> bool:
    """True where windows are the vendor library's own."""
    return comm.get_backend() in LIBRARIES


def zeros_for_window(comm: Any, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Zeros that can be registered with a window; collective."""
    if not is_over_library(comm):
        return torch.zeros(*shape, dtype=dtype)
    device = comm.get_device()
    if device.type == "cuda":
        pool = _pools.setdefault(comm.get_backend(), torch.cuda.MemPool(comm.get_mem_allocator()))
        with torch.cuda.use_mem_pool(pool):
            return torch.zeros(*shape, dtype=dtype, device=device)
    numel = torch.Size(shape).numel()
    window = comm.window_allocate(numel * dtype.itemsize)
    memory = window.get_tensor()
    window.tensor_deregister()
    return memory.view(dtype).view(shape)


def supports_windows(comm: Any) -> bool:
    """Whether the library that was found is new enough."""
    return bool(comm.describe()["capabilities"]["windows"])
