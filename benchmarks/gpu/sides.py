"""Who is compared with whom: on GPUs, and on a CPU over a library for host memory, as tests do."""

from __future__ import annotations

from dataclasses import dataclass

import torch

OURS, RAW = "nccl", "raw:nccl"
# Operations in graphs have no limits there: the same without what notices a replay that hangs.
UNLIMITED = f"{OURS}@:enable_cuda_graph_support=false"


@dataclass(frozen=True)
class Sides:
    """What depends on the device."""

    baseline: str  # of torch.distributed
    dtype: str
    modes: tuple[str, ...]

    @property
    def torchs(self) -> str:
        return self.baseline.removeprefix("c10d:")


ON = {
    "cuda": Sides("c10d:nccl", "bfloat16", ("sync", "graph")),
    "cpu": Sides("c10d:gloo", "float32", ("sync",)),
}


def synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.cuda.synchronize()
