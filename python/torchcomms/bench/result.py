"""One measured point, and the facts about the machine that belong to it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import torchcomms
from torchcomms import _build_info

_TUNING = ("TORCHCOMM", "GLOO_", "NCCL_", "OMP_NUM_THREADS", "TORCH_SYMM")


@dataclass(frozen=True)
class Point:
    """A line of the result file.

    Times are those of the slowest rank in each iteration, in microseconds. Bandwidths are in GB/s
    (1e9 bytes), computed from the median time.

    On cuda an iteration is a batch of calls in a row. Its times are means over the batch, by the
    device's clock; the host's clock has fields of its own.
    """

    op: str
    backend: str
    algorithm: str
    mode: str  # eager | graph | async
    bytes: int
    dtype: str
    ranks: int
    iterations: int
    min_us: float
    mean_us: float
    p50_us: float
    p99_us: float
    algbw_gbps: float
    busbw_gbps: float
    correct: bool | None  # None: the backend does not move data
    hardware: str
    torch: str
    torchcomms: str
    commit: str | None
    date: str
    environment: dict[str, str]
    batch: int = 1  # operations per iteration
    # Times by the host's clock, with the synchronization at the end of the batch. `enqueue` is the
    # time of the calls alone.
    host_p50_us: float | None = None
    host_p99_us: float | None = None
    enqueue_p50_us: float | None = None
    enqueue_p99_us: float | None = None
    # The concurrent computation: its times alone and with the operation in flight, and their ratio.
    # The operation's time with the computation, and its ratio to the time alone.
    beside: str | None = None
    product_p50_us: float | None = None
    product_p99_us: float | None = None
    product_beside_p50_us: float | None = None
    product_beside_p99_us: float | None = None
    product_ratio: float | None = None
    operation_beside_p50_us: float | None = None
    operation_ratio: float | None = None
    blocks: int | None = None  # the most thread blocks of its kernels at one time

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Point:
        return Point(**json.loads(text))


def machine(device: str) -> dict[str, Any]:
    """The fields of a point that are equal for a whole run."""
    return {
        "hardware": _hardware(device),
        "torch": torch.__version__,
        "torchcomms": torchcomms.__version__,
        "commit": _commit(),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(_TUNING)},
    }


def _hardware(device: str) -> str:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    parts = [f"{_cpu()}, {len(os.sched_getaffinity(0))} cores, {memory_gib:.0f} GiB"]
    if torch.device(device).type == "cuda":
        parts.append(f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}")
    return ", ".join(parts)


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: only the architecture is known
    return platform.machine()


def _commit() -> str | None:
    """The commit of the torchcomms checkout in the working directory, with "+" if it has changes.

    Without such a checkout, the commit that this package was built from.
    """
    try:
        top = _git("rev-parse", "--show-toplevel")
        if not Path(top, "python", "torchcomms").is_dir():
            return _built_from()  # another project's repository
        return _git("rev-parse", "--short=12", "HEAD") + ("+" if _git("status", "--short") else "")
    except (OSError, subprocess.SubprocessError):
        return _built_from()


def _built_from() -> str | None:
    return _build_info.COMMIT or None


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()
