"""The runner tells what went wrong: each planted fault of a cell is reported as what it is."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from torchcomms.drill import (
    Cell,
    DrillError,
    Plan,
    Skip,
    chosen,
    drill,
    hosts,
    leftovers,
    markdown,
    results_table,
)
from torchcomms.drill.cells import CELLS
from torchcomms.drill.scene import names_rank

BACKEND = "ctran"
kept = []


def cell(program, **more) -> Cell:
    more.setdefault("ranks", 2)
    return Cell("T00", "planted", "nothing", program, **more)


def good(scene):
    side = scene.comm()
    scene.works(side)


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


def exits_well(scene):
    if scene.rank == 1:
        os._exit(0)


def leaves_shared_file(scene):
    Path(f"/dev/shm/torchcomms_planted_{os.getpid()}").touch()


def leaves_temporary_file(scene):
    Path(os.environ["TMPDIR"], f"planted_{scene.rank}").touch()


def leaves_process(scene):
    subprocess.Popen(["sleep", "60"])


def leaves_descriptor(scene):
    kept.append(os.open(os.devnull, os.O_RDONLY))


def leaves_thread(scene):
    threading.Thread(target=threading.Event().wait, daemon=True, name="planted").start()


def raises_nothing(scene):
    scene.raises(lambda: None, "PeerFailed", what="the planted call")


def raises_another_type(scene):
    def call():
        raise ValueError("rank 1 did it")

    scene.raises(call, "PeerFailed", naming=[1], what="the planted call")


def names_nobody(scene):
    def call():
        raise RuntimeError("somebody did it")

    scene.raises(call, "RuntimeError", naming=[1], what="the planted call")


def raises_late(scene):
    def call():
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            pass
        raise RuntimeError("rank 1 did it")

    scene.raises(call, "RuntimeError", naming=[1], within_s=0.1, what="the planted call")


def raises_long_after_the_fault(scene):
    if scene.rank == 0:
        scene.note_fault()
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            pass

        def call():
            raise RuntimeError("rank 1 did it")

        scene.raises(call, "RuntimeError")


def breaks_the_bystander(scene):
    scene.open[0].comm.abort()


def has_an_error(scene):
    raise KeyError("planted")


def cannot_run(scene):
    raise Skip("the planted reason")


def no_such_thing():
    return "no such thing"


def enters_nothing(scene):
    raise Skip("nowhere to live")


def only_rank_0_watches(scene):
    scene.check(bool(scene.open) is (scene.rank == 0), "the bystander is another's")


PLANTED = {
    "hang": (cell(hangs, hang_s=1.0), "hang", "rank 1 hangs: "),
    "wrong result": (cell(wrong), "wrong result", "at element 7"),
    "dead survivor": (cell(dies, hang_s=5.0), "survivor killed", "rank 1 exited with status -9"),
    "silent survivor": (cell(exits_well), "fail", "rank 1 exited without a report"),
    "wrong status": (cell(exits_well, victims={1: 3}), "fail", "status 0, expected 3"),
    "shared file": (cell(leaves_shared_file), "fail", "/dev/shm/torchcomms_planted_"),
    "temporary file": (cell(leaves_temporary_file), "fail", "TMPDIR: planted_0"),
    "process": (cell(leaves_process), "fail", "a process is left running: "),
    "descriptor": (cell(leaves_descriptor), "fail", "left behind: descriptor"),
    "thread": (cell(leaves_thread), "fail", "left behind: thread"),
    "no error": (cell(raises_nothing), "fail", "the planted call succeeded"),
    "another type": (cell(raises_another_type), "fail", "raised ValueError, not PeerFailed"),
    "no name": (cell(names_nobody), "fail", "does not name rank 1"),
    "late": (cell(raises_late), "fail", "not within 0.1"),
    "late after the fault": (
        cell(raises_long_after_the_fault, detect_s=0.1), "fail", "after the fault, not within 0.1"
    ),
    "bystander": (cell(breaks_the_bystander), "fail", "unrelated communicator failed"),
    "exception": (cell(has_an_error), "fail", "KeyError: 'planted' at test_runner.py:"),
    "skip": (cell(cannot_run), "skipped", "the planted reason"),
    "no place": (cell(good, enter=enters_nothing), "skipped", "nowhere to live"),
    "not on this machine": (cell(good, missing=no_such_thing), "skipped", "no such thing"),
}  # fmt: skip


@pytest.mark.serial
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_told(name, verdict):
    planted, kind, text = PLANTED[name]
    result = verdict(planted, BACKEND, slack=1.0)
    assert result.verdict == kind, result
    assert any(text in found for found in (*result.findings, result.why)), result
    assert result.bad is (kind not in ("pass", "skipped"))


def test_a_cell_in_which_nothing_happens_passes(verdict):
    result = verdict(cell(good), BACKEND)
    assert (result.verdict, result.findings) == ("pass", [])


def test_ranks_that_a_fault_takes_are_not_watched(verdict):
    result = verdict(cell(only_rank_0_watches, apart=(1,)), BACKEND)
    assert (result.verdict, result.findings) == ("pass", [])


def test_hosts_need_programs_that_are_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    hosts.missing.cache_clear()
    try:
        assert hosts.missing() == "no program 'unshare'"
    finally:
        hosts.missing.cache_clear()


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
        ("ranks [1, 3] are missing", 3, True),
        ("all_reduce on 'x' (rank 0, peer 1): gone", 1, True),
        ("connection closed by peer [127.0.0.1]:1", 1, False),
        ("", 0, False),
    ],
)
def test_who_an_error_names(text, rank, is_named):
    assert names_rank(text, rank) is is_named


def test_cells_are_chosen_by_fault_or_name():
    names = [c.id for c in chosen(CELLS, "F03", slow=False)]
    assert names == ["F03/raise", "F03/exit", "F03/_exit"]
    assert [c.id for c in chosen(CELLS, "F01/idle", slow=False)] == ["F01/idle"]
    assert [c.id for c in chosen(CELLS, "F40/large", slow=False)] == ["F40/large"]
    assert not any(c.slow for c in chosen(CELLS, "", slow=False))
    assert chosen(CELLS, "", slow=True) == list(CELLS)
    with pytest.raises(DrillError, match=r"unknown cell 'F99'; allowed: F01, F02"):
        chosen(CELLS, "F99", slow=False)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"backends": ["mpi"]}, "unknown backend 'mpi'; allowed: ctran, gloo, nccl, ncclx, "),
        ({"backends": []}, "no backend"),
        ({"jobs": 0}, "jobs: 0"),
        ({"rounds": -1}, "rounds: -1"),
        ({"limit_s": 0}, "limit"),
        ({"limit_s": 1e300}, "limit: 1e[+]300 is not above 0 and at most 86400"),
        ({"slack": 1e300}, "slack: 1e[+]300 is not above 0 and at most 1000"),
        ({"cells": []}, "no cell"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(changes, text):
    with pytest.raises(DrillError, match=text):
        next(drill(replace(Plan(CELLS, [BACKEND]), **changes)))


def test_results_as_text(verdict):
    results = [verdict(cell(good), BACKEND), verdict(cell(raises_nothing), BACKEND)]
    lines = results_table(results).splitlines()
    assert [line.split()[:3] for line in lines[2:]] == [
        ["T00", BACKEND, "pass"],
        ["T00", BACKEND, "fail"],
    ]
    page = markdown(results[1:])
    assert f"| cell | fault | `{BACKEND}` |" in page
    assert "| T00 | planted | fail" in page
    assert f"- T00 on `{BACKEND}`: fail: rank 0: the planted call succeeded" in page


def test_files_are_strays_and_folders_are_other_jobs(tmp_path, monkeypatch):
    monkeypatch.setattr(leftovers, "_SHARED", tmp_path)
    (tmp_path / "torchcomms-before").touch()
    seen = leftovers.Leftovers({1 << 29})
    (tmp_path / "torchcomms-0").mkdir()  # the flight recorder's
    (tmp_path / "torchcomms-segment").touch()
    (tmp_path / "torch_1073741824_1").touch()
    (tmp_path / f"torchcomms_{1 << 28}_1").touch()  # of a rank's child, which has ended
    (tmp_path / f"torchcomms_{1 << 29}_1").touch()  # another cell's
    (tmp_path / f"torchcomms_{os.getpid()}_1").touch()  # another job's
    (tmp_path / "another program's").touch()
    assert seen.left([1 << 30], tmp_path / "none") == [
        f"a file is left: {tmp_path / name}"
        for name in ("torch_1073741824_1", "torchcomms-segment", f"torchcomms_{1 << 28}_1")
    ]
    assert {path.name for path in tmp_path.iterdir()} == {
        "another program's", "torchcomms-0", "torchcomms-before",
        f"torchcomms_{1 << 29}_1", f"torchcomms_{os.getpid()}_1",
    }  # fmt: skip
