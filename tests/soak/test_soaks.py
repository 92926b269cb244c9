"""Real soaks, counted in steps, of every backend that runs here; and a planted fault is found."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torchcomms.soak import Outcome, Request, failure_text, soak
from torchcomms.soak.buffers import Buffer
from torchcomms.soak.calls import arguments
from torchcomms.soak.plan import BITWISE, DTYPES, OPERATIONS, Operation, is_defined
from torchcomms.soak.values import Sample

from tests.harness.backends import BACKENDS
from tests.soak import sabotage

CHOSEN = {"ctran": 3, "gloo": 2, "nccl": 3, "ncclx": 2, "ctran-kernels": 2}
ROWS = [row for row in BACKENDS if row.label in CHOSEN]
REDUCTIONS = ("SUM", "PRODUCT", "MIN", "MAX", "AVG", *BITWISE, "PREMUL_NUMBER", "PREMUL_TENSOR")
PAIRS = [(r, d) for r in REDUCTIONS for d in DTYPES if is_defined(r, d)]
SHORT = Request("", seed=1, steps=60, most_bytes=1 << 20)


@pytest.fixture(params=ROWS, ids=lambda row: row.label)
def request_of_row(request, monkeypatch) -> Request:
    """A short one of each backend, over stand-ins of the libraries that need a GPU."""
    row = request.param
    ranks = CHOSEN[row.label]
    if why := row.missing(ranks):
        pytest.skip(why)
    for name, value in row.environment.items():
        monkeypatch.setenv(name, value)
    return replace(SHORT, backend=row.name, ranks=ranks)


def run(request: Request, **more) -> Outcome:
    outcome = soak(request, **more)
    assert outcome.failure is None, outcome.failure
    assert outcome.steps == request.steps
    return outcome


def test_every_value_is_right(request_of_row):
    outcome = run(request_of_row)
    assert outcome.calls.keys() >= set(OPERATIONS)
    assert outcome.communicators > 4 * request_of_row.ranks
    assert outcome.late > 0
    assert outcome.graphs == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12])
def test_every_value_is_right_for_long(request_of_row, seed):
    run(replace(request_of_row, seed=seed, steps=2000, most_bytes=32 << 20))


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [4, 7])
def test_every_value_is_right_over_tcp(ranks):
    hints = {"ctran::transport": "tcp"}
    run(replace(SHORT, backend="ctran", ranks=ranks, hints=hints, steps=2000))


def test_steps_are_replayed_with_new_values_where_there_are_graphs():
    outcome = run(replace(SHORT, backend="ctran", steps=120), program=sabotage.replaying)
    assert outcome.graphs > 0
    assert outcome.replays >= 2 * outcome.graphs


def test_a_wrong_element_is_found_and_named_and_again_by_its_step_alone():
    request = replace(SHORT, backend="ctran", ranks=2, seed=5, most_bytes=1 << 16)
    found = soak(request, program=sabotage.corrupting).failure
    assert found is not None
    assert (found.kind, found.rank) == ("wrong value", sabotage.VICTIM)
    assert found.operation["name"] == "all_reduce"
    assert (found.wrong["index"], found.wrong["count"]) == (sabotage.PLANTED, 1)
    text = failure_text(request, found)
    assert f"wrong value at step {found.step} on rank 1, seed 5" in text
    assert f"--from-step {found.step} --steps 1" in text
    request = replace(request, from_step=found.step, steps=1)
    alone = soak(request, program=sabotage.corrupting).failure
    assert (alone.step, alone.wrong, alone.operation) == (found.step, found.wrong, found.operation)


@pytest.mark.parametrize(("reduction", "dtype"), PAIRS)
def test_a_wrong_element_of_a_reduction_is_found(reduction, dtype):
    """No tolerance hides a step that the dtype does not round away."""
    op = Operation(index=0, name="all_reduce", slot=0, numel=97, reduction=reduction, dtype=dtype)
    sample = Sample(op, 3, "salt")
    buffer = Buffer("tensor", arguments(op, 0, 3)["tensor"][0], op, torch.device("cpu"))
    buffer.fill(sample)
    buffer.tensor.copy_(sample.reduced(0).tiled(op.numel, torch.device("cpu")))
    assert buffer.good(sample)
    at, value = 41, buffer.tensor[41]
    if value.is_floating_point() or value.is_complex():
        eps = torch.finfo(value.dtype).eps
        bound = sample.reduced(0).bound or 0
        buffer.tensor[at] = value.item() + 2 * bound + 4 * eps * abs(value.item()) + 1
    else:
        buffer.tensor[at] = not value if dtype == "bool" else value.item() ^ 1
    assert not buffer.good(sample)
    assert buffer.diagnose(sample).index == at
