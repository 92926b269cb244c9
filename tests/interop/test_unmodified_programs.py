"""A program of torch.distributed runs on our communicators, unchanged, to the same weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torchcomms
from torch.torch_version import TorchVersion

from tests.harness.ports import free_port
from tests.harness.programs import ranks
from tests.harness.weights import Results, expect_same
from tests.interop.programs.train_every_way import WAYS

PROGRAM = Path(__file__).parent / "programs" / "train_every_way.py"
DEADLINE_S = 300.0
NEEDS = ("torch._dynamo",)  # as every optimizer does
SWITCH = {"TORCH_DISTRIBUTED_USE_TORCHCOMMS": "1"}


class How(NamedTuple):
    backend: str
    switched: bool  # by the environment; else it is a backend that torch.distributed finds by name
    size: int

    def __str__(self) -> str:
        return f"{self.backend}{'-switched' if self.switched else ''}-{self.size}"


PLAIN = "gloo"
# DTensor works for 10 s on how the operators of this one are to be sharded.
LONG = "context_parallel"
USUAL = ",".join(way.__name__ for way in WAYS if way.__name__ != LONG)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Callable[[How, str], Results]:
    """What a way gives on each rank; one run of the program has all usual ways."""
    known: dict[tuple[How, bool], Results] = {}

    def run(how: How, way: str) -> Results:
        key = (how, way == LONG)
        if key not in known:
            folder = tmp_path_factory.mktemp("results")
            first = ["torchcomms"] if how.backend != PLAIN and not how.switched else []
            program = f"""
                import sys
                sys.path.insert(0, {str(PROGRAM.parent)!r})
                import train_every_way
                names = {(LONG if way == LONG else USUAL)!r}
                train_every_way.main({how.backend!r}, {str(folder)!r}, "cpu", names, *{first!r})
            """
            variables = SWITCH if how.switched else {}
            for finished in ranks(
                program, how.size, free_port(), DEADLINE_S, needs=NEEDS, **variables
            ):
                finished.expect_success()
                assert ("Using TorchComms backend" in finished.err) == how.switched
            known[key] = [torch.load(folder / f"{rank}.pt") for rank in range(how.size)]
        return known[key]

    return run


CASES = [
    How("gloo", True, 2),
    How("ctran", True, 2),
    *(
        pytest.param(how, marks=pytest.mark.slow)
        for how in (
            How("ctran", False, 2),
            How("cpu:ctran", True, 2),
            How("cpu:gloo", True, 2),
            How("gloo", True, 4),
            How("ctran", True, 4),
            How("cpu:ctran", False, 4),
        )
    ),
]


@pytest.mark.parametrize("way", [*USUAL.split(","), pytest.param(LONG, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", CASES, ids=str)
def test_it_gives_what_torch_alone_gives(how, way, results):
    backend = how.backend.rpartition(":")[2]
    if not torchcomms.is_backend_built(backend):
        pytest.skip(f"needs backend {backend}")
    if how.switched and TorchVersion(torch.__version__) < (2, 15):
        pytest.skip("torch before 2.15 has no such switch")
    plain = results(How(PLAIN, False, how.size), way)
    # A sum of two has one order.
    expect_same(way, plain, results(how, way), same_bits=how.size == 2)
