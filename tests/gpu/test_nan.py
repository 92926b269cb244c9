"""What becomes of a NaN in MIN and MAX on GPUs, at every size: by NCCL, and by kernels of ours."""

from __future__ import annotations

import itertools

import pytest
import torch
from torchcomms import ReduceOp

from tests.harness.values import FLOATS

pytestmark = pytest.mark.worlds(device="cuda")
OPS = {"min": ReduceOp.MIN, "max": ReduceOp.MAX}
# NCCL has other protocols and algorithms for other sizes.
NUMELS = (1, 1000, 1 << 16, 1 << 20, 1 << 23)
COLLECTIVES = ("all_reduce", "reduce", "reduce_scatter_single")
BY_NCCL = {"ncclx::algorithm": "nccl"}


def result_of(comm, name, op, values, hints):
    """What `name` leaves on this rank; None where it has no result."""
    rank, size = comm.get_rank(), comm.get_size()
    if name == "reduce_scatter_single":
        output = torch.zeros_like(values)
        comm.reduce_scatter_single(output, values.repeat(size), op, False, hints=hints)
        return output
    if name == "reduce":
        comm.reduce(values, 0, op, False, hints=hints)
        return values if rank == 0 else None
    comm.all_reduce(values, op, False, hints=hints)
    return values


def became(result):
    """What all elements are; each rank without a NaN has 1."""
    if bool(result.isnan().all()):
        return "kept"
    return "dropped" if bool((result == 1).all()) else f"mixed, such as {result[:4].tolist()}"


def outcomes(comm, hints):
    """What became of the NaN of each rank, by all that it may depend on."""
    found = {}
    cases = itertools.product(COLLECTIVES, OPS, FLOATS, NUMELS, range(comm.get_size()))
    for name, op, dtype, numel, place in cases:
        value = float("nan") if place == comm.get_rank() else 1.0
        values = torch.full((numel,), value, dtype=dtype)
        result = result_of(comm, name, OPS[op], values, hints)
        if result is not None:
            found[name, op, str(dtype), numel, f"NaN on rank {place}"] = became(result)
    return found


def expect(world, want, hints):
    other = [
        f"rank {rank}: {' '.join(map(str, case))}: {outcome}"
        for rank, of_rank in enumerate(world.run(outcomes, hints))
        for case, outcome in of_rank.items()
        if outcome != want
    ]
    assert not other, f"not {want} in {len(other)} cases:\n" + "\n".join(other[:40])


@pytest.mark.worlds(backends=("nccl",), sizes=(2, 4))
def test_nccl_drops_the_nan_of_any_rank(world):
    """`docs/backends/index.md` says so; it is for the library to change."""
    expect(world, "dropped", {})


@pytest.mark.worlds(backends=("ncclx",), sizes=(2, 4))
def test_ncclx_leaves_it_to_nccl_only_where_that_is_asked_for(world):
    expect(world, "dropped", BY_NCCL)


@pytest.mark.worlds(backends=("ncclx", "ctran"), sizes=(2, 4))
def test_kernels_keep_the_nan_of_any_rank(world):
    """On `ncclx` also at sizes that NCCL runs in other reductions."""
    expect(world, "kept", {})
