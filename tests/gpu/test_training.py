"""Programs of torch.distributed give on our communicators what they give on torch's own NCCL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torchcomms

from tests.harness.ports import free_port
from tests.harness.programs import ranks
from tests.harness.weights import Results, expect_same
from tests.interop.programs import train_every_way

PROGRAM = """
    import functools, sys
    sys.path.insert(0, {folder!r})
    import torch, train_every_way
    from torch.distributed.distributed_c10d import Backend
    if {ours!r}:
        from torchcomms import _c10d
        make = functools.partial(_c10d.create, {ours!r}, "cuda")
        Backend.register_backend("ours", make, extended_api=True, devices=["cuda"])
    train_every_way.main({backend!r}, {results!r}, "cuda")
"""
DEADLINE_S = 200.0
PLAIN = ""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Results]:
    """Of each rank; every program runs once."""
    known: dict[tuple[str, int], Results] = {}

    def run(ours: str, size: int) -> Results:
        if (ours, size) not in known:
            folder = tmp_path_factory.mktemp("results")
            program = PROGRAM.format(
                folder=str(Path(train_every_way.__file__).parent),
                ours=ours,
                backend="cuda:ours" if ours else "nccl",
                results=str(folder),
            )
            for finished in ranks(program, size, free_port(), DEADLINE_S):
                finished.expect_success()
            known[ours, size] = [torch.load(folder / f"{rank}.pt") for rank in range(size)]
        return known[ours, size]

    return run


@pytest.mark.parametrize("way", [way.__name__ for way in train_every_way.WAYS])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("backend", ["nccl", "nccl-lazy", "ncclx", "ctran"])
def test_it_gives_what_torch_alone_gives(backend, size, way, results):
    if torch.cuda.device_count() < size or not torchcomms.is_backend_built(backend):
        pytest.skip(f"needs backend {backend} and {size} CUDA devices")
    # Sums may be made in another order by another number of channels.
    expect_same(way, results(PLAIN, size), results(backend, size), same_bits=False)
