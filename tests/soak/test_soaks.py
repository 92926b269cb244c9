"""Real soaks, counted in steps: of every backend that runs here, with everything checked."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torchcomms.soak import Outcome, Request, soak
from torchcomms.soak.plan import OPERATIONS

from tests.harness.backends import BACKENDS
from tests.soak import sabotage

CHOSEN = {"ctran": 3, "gloo": 2, "nccl": 3, "ncclx": 2, "ctran-kernels": 2}
ROWS = [row for row in BACKENDS if row.label in CHOSEN]
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


def test_a_soak_is_the_same_each_time():
    """Also in parts: calls are counted alike."""
    request = replace(SHORT, backend="ctran", most_bytes=1 << 12)
    whole, again = run(request), run(request)
    assert (whole.calls, whole.size_bytes, whole.late) == (
        again.calls, again.size_bytes, again.late
    )  # fmt: skip
    parts = [run(replace(request, from_step=first, steps=30)) for first in (0, 30)]
    assert parts[0].calls + parts[1].calls == whole.calls
    assert parts[0].size_bytes + parts[1].size_bytes == whole.size_bytes


def test_one_rank_soaks_alone():
    run(replace(SHORT, backend="ctran", ranks=1, most_bytes=1 << 12))


def test_steps_are_replayed_with_new_values_where_there_are_graphs():
    outcome = run(replace(SHORT, backend="ctran", steps=120), program=sabotage.replaying)
    assert outcome.graphs > 0
    assert outcome.replays >= 2 * outcome.graphs


def test_a_graph_that_does_not_read_its_inputs_anew_is_found():
    request = replace(SHORT, backend="ctran", steps=400, most_bytes=1 << 12)
    failure = soak(request, program=sabotage.stale).failure
    assert failure is not None
    assert failure.kind == "wrong value"
    assert failure.operation["name"] == "broadcast"
    assert failure.text.startswith("in replay 1: tensor")
