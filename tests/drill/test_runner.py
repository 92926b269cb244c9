"""The runner tells what went wrong: each planted fault of a cell is reported as what it is."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from torchcomms.drill import Cell, DrillError, chosen
from torchcomms.drill.cells import CELLS
from torchcomms.drill.scene import names_rank

BACKEND = "ctran"
kept = []


def cell(program, **more) -> Cell:
    more.setdefault("ranks", 2)
    return Cell("T00", "planted", "nothing", program, **more)


def good(scene):
    scene.works(scene.comm())


def hangs(scene):
    if scene.rank == 1:
        threading.Event().wait()


def wrong(scene):
    side = scene.comm()
    pending = side.start("all_reduce")
    pending.wait()
    pending.buffers.output[7] += scene.rank
    scene.right(pending)


def dies(scene):
    if scene.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def leaves_descriptor(scene):
    kept.append(os.open(os.devnull, os.O_RDONLY))


def raises_nothing(scene):
    scene.raises(lambda: None, "PeerFailed", what="the planted call")


def names_nobody(scene):
    def call():
        raise RuntimeError("somebody did it")

    scene.raises(call, "RuntimeError", naming=[1], what="the planted call")


def breaks_the_bystander(scene):
    scene.open[0].comm.abort()


PLANTED = {
    "hang": (cell(hangs, hang_s=1.0), "hang", "rank 1 hangs: "),
    "wrong result": (cell(wrong), "wrong result", "at element 7"),
    "dead survivor": (cell(dies, hang_s=5.0), "survivor killed", "rank 1 exited with status -9"),
    "descriptor": (cell(leaves_descriptor), "fail", "left behind: descriptor"),
    "no error": (cell(raises_nothing), "fail", "the planted call succeeded"),
    "no name": (cell(names_nobody), "fail", "does not name rank 1"),
    "bystander": (cell(breaks_the_bystander), "fail", "unrelated communicator failed"),
}


@pytest.mark.serial
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_told(name, verdict):
    planted, kind, text = PLANTED[name]
    result = verdict(planted, BACKEND, slack=1.0)
    assert result.verdict == kind, result
    assert result.bad
    assert any(text in found for found in (*result.findings, result.why)), result


def test_a_cell_in_which_nothing_happens_passes(verdict):
    result = verdict(cell(good), BACKEND)
    assert (result.verdict, result.findings) == ("pass", [])


def test_what_is_documented_is_no_reason_to_fail(verdict):
    result = verdict(cell(raises_nothing, known={BACKEND: "as the page says"}), BACKEND)
    assert (result.verdict, result.known, result.bad) == ("fail", True, False)
    assert result.why.startswith("as the page says: ")


@pytest.mark.parametrize(
    ("text", "rank", "is_named"),
    [
        ("rank 1 has failed", 1, True),
        ("rank 11 has failed", 1, False),
        ("ranks 0, 2 did not answer", 2, True),
        ("all_reduce on 'x' (rank 0, peer 1): gone", 1, True),
        ("connection closed by peer [127.0.0.1]:1", 1, False),
    ],
)
def test_who_an_error_names(text, rank, is_named):
    assert names_rank(text, rank) is is_named


def test_cells_are_chosen_by_fault_or_name():
    names = [c.id for c in chosen(CELLS, "F03", slow=False)]
    assert names == ["F03/raise", "F03/exit", "F03/_exit"]
    assert not any(c.slow for c in chosen(CELLS, "", slow=False))
    assert chosen(CELLS, "", slow=True) == list(CELLS)
    with pytest.raises(DrillError, match=r"unknown cell 'F99'; allowed: F01, F02"):
        chosen(CELLS, "F99", slow=False)
