"""One rank of the check, started by `exchange` with: backend, device, timeout, start time.

It prints its phase on stdout ("phase ..."), and its outcome ("result {...}" or "error ...").
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch

import torchcomms

_ELEMENTS = 1000
_TIMED_CALLS = 20


class WrongValue(RuntimeError):
    """The all_reduce returned a value that is not the sum."""


def main(backend: str, device: torch.device, limit_s: float, started_s: float) -> int:
    result = {"import_s": time.monotonic() - started_s}
    try:
        result |= _check(backend, device, limit_s)
    except Exception as error:
        print("error", json.dumps(f"{type(error).__name__}: {error}"), flush=True)
        return 1
    print("result", json.dumps(result), flush=True)
    return 0


def _check(backend: str, device: torch.device, limit_s: float) -> dict[str, float]:
    """Connects, runs an all_reduce, compares its result, and times a small all_reduce."""
    print("phase connecting", flush=True)
    start = time.perf_counter()
    comm = torchcomms.new_comm(backend, device, name="doctor", timeout=limit_s)
    connect_ms = (time.perf_counter() - start) * 1e3
    print("phase all_reduce", flush=True)
    _sum_and_compare(comm, device)
    small = torch.zeros(2, device=device)
    times = []
    for _ in range(_TIMED_CALLS):
        start = time.perf_counter()
        comm.all_reduce(small, torchcomms.ReduceOp.SUM, False)
        if device.type != "cpu":
            torch.accelerator.synchronize()
        times.append(time.perf_counter() - start)
    print("phase finalize", flush=True)
    comm.finalize()
    return {"connect_ms": connect_ms, "all_reduce_us": sorted(times)[_TIMED_CALLS // 2] * 1e6}


def _sum_and_compare(comm: torchcomms.TorchComm, device: torch.device) -> None:
    size, rank = comm.get_size(), comm.get_rank()
    index = torch.arange(_ELEMENTS, dtype=torch.float32, device=device)
    values = index + rank
    comm.all_reduce(values, torchcomms.ReduceOp.SUM, False)
    want = index * size + size * (size - 1) / 2
    if not torch.equal(values, want):
        at = int((values != want).nonzero()[0])
        raise WrongValue(f"element {at} is {values[at].item()}, expected {want[at].item()}")


def _device(kind: str) -> torch.device:
    index = None if kind == "cpu" else int(os.environ["LOCAL_RANK"])
    return torch.device(kind) if index is None else torch.device(kind, index)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], _device(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
