"""Programs of their own with a rank on each GPU, for what the processes of a world must not do."""

from __future__ import annotations

import pytest
import torch

from tests.harness.ports import free_port
from tests.harness.programs import Finished, ranks

MOST = 4
on_each_backend = pytest.mark.parametrize("backend", ["nccl", "nccl-lazy", "ncclx", "ctran"])


def on_gpus(source: str) -> list[Finished]:
    """How each rank of `source` ended; skips the test where there are no two GPUs."""
    size = min(torch.cuda.device_count(), MOST)
    if size < 2:
        pytest.skip("needs two CUDA devices")
    return ranks(source, size, free_port())
