"""What the soak says of a library that goes wrong: planted faults must be found, and named."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import ClassVar

import pytest
import torchcomms.soak.run
from torchcomms.analyze import Dump
from torchcomms.soak import Failure, Outcome, Request, as_object, failure_text, soak
from torchcomms.soak.run import behind
from torchcomms.soak.show import again

from tests.soak import sabotage

REQUEST = Request("ctran", ranks=2, seed=5, steps=60, most_bytes=1 << 16, limit_s=60.0)


def failure(program, **changes) -> tuple[Request, Failure]:
    """What a soak with that program says."""
    request = Request(**{**vars(REQUEST), **changes})
    found = soak(request, program=program).failure
    assert found is not None
    return request, found


class Stopped(torchcomms.soak.run._Child):
    """A rank in whose start the user presses Ctrl-C: the process is there by then."""

    made: ClassVar[list[Stopped]] = []

    def start(self) -> None:
        self.made.append(self)
        super().start()
        if self.rank == 1:
            raise KeyboardInterrupt


def test_an_interrupted_start_leaves_nothing_behind(monkeypatch):
    monkeypatch.setattr(torchcomms.soak.run, "_Child", Stopped)
    with pytest.raises(KeyboardInterrupt):
        soak(replace(REQUEST, ranks=3))
    assert len(Stopped.made) == 2
    assert all(child.process.exitcode is not None for child in Stopped.made)
    assert not Stopped.made[0].log.parent.exists()


def test_a_wrong_element_is_found_and_named_and_again_by_its_step_alone():
    request, found = failure(sabotage.corrupting)
    assert (found.kind, found.rank) == ("wrong value", sabotage.VICTIM)
    assert found.operation["name"] == "all_reduce"
    assert found.wrong["where"] == "tensor"
    assert (found.wrong["index"], found.wrong["count"]) == (sabotage.PLANTED, 1)
    assert found.wrong["got"] != found.wrong["expected"]
    assert not found.wrong["untouched"]
    text = failure_text(request, found)
    assert f"wrong value at step {found.step} on rank 1, seed 5" in text
    assert f"--from-step {found.step} --steps 1" in text
    assert "all_reduce(slot=" in text
    assert found.ranks.keys() == {0, 1}

    _, alone = failure(sabotage.corrupting, from_step=found.step, steps=1)
    assert (alone.step, alone.wrong, alone.operation) == (
        found.step, found.wrong, found.operation
    )  # fmt: skip


def test_a_write_behind_a_tensor_is_found():
    _, found = failure(sabotage.overrunning)
    assert found.kind == "wrong value"
    assert found.operation["name"] == "broadcast"
    assert found.wrong["where"] == "behind tensor"
    assert found.wrong["index"] == 0


def test_an_output_that_nobody_has_written_is_said_to_be_so():
    _, found = failure(sabotage.idle, seed=6)
    assert found.kind == "wrong value"
    assert found.wrong["untouched"]
    assert "not written" in found.text


@pytest.mark.parametrize("backend", ["ctran", "gloo"])
def test_a_missing_call_is_reported_as_such(backend):
    """The others meet their limit, or are told what the victim calls instead; the library's
    records say who has called less.
    """
    request, found = failure(sabotage.forgetful, backend=backend, ranks=3, limit_s=2.0)
    assert found.kind == "error"
    assert found.operation["name"] == "barrier"
    assert re.search("CommTimeout|Mismatch", found.text)
    assert found.culprits == (sabotage.VICTIM,)
    # It has called nothing more there, or something else in the barrier's place.
    assert re.search("calls of rank 1 on .* are missing|barrier; rank 1: ", found.records)
    assert found.records in failure_text(request, found)


def test_whose_calls_are_missing_is_counted_on_the_communicator_that_failed():
    def dump(rank: int, **entered: int) -> Dump:
        members = dict.fromkeys(entered, (0, 1, 2))
        return Dump(rank, f"{rank}", members=members, entered=entered)

    records = [dump(0, a=7, b=3), dump(1, a=6, b=4), dump(2, a=7, b=3)]
    text, culprits = behind(records, "a")
    assert text == (
        "calls of rank 1 on 'a' are missing; collectives called: rank 0 7, rank 1 6, rank 2 7"
    )
    assert culprits == (1,)
    assert behind(records, "b")[1] == (0, 2)
    assert behind([dump(0, a=7), dump(1, a=7)], "a") == ("", ())
    assert behind([], None) == ("", ())


def test_an_error_is_told_with_its_operation():
    request, found = failure(sabotage.raising)
    assert (found.kind, found.rank) == ("error", sabotage.VICTIM)
    assert found.operation["name"] == "scatter"
    assert "RuntimeError: the planted error" in found.text
    outcome = Outcome(request=request, failure=found)
    assert json.loads(json.dumps(as_object(outcome)))["failure"]["again"] == again(
        request, found.step
    )


def test_a_process_that_dies_is_told_with_its_last_words():
    _, found = failure(sabotage.dying)
    assert (found.kind, found.rank) == ("died", sabotage.VICTIM)
    assert "status 7" in found.text
    assert "the last words" in found.text


def test_a_step_that_takes_longer_than_the_limit_is_a_hang(monkeypatch):
    monkeypatch.setattr(torchcomms.soak.run, "_NOTICE_S", 0.5)
    _, found = failure(sabotage.stuck, limit_s=5.0)
    assert found.kind == "hang"
    assert "phase call" in found.text
    assert "sabotage.py" in found.text, "the stack says where"
