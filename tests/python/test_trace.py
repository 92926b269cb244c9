"""`torchcomms trace`: processes that hang, and were killed, explained by the files they leave."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import re
import shutil
import struct
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torchcomms
from torchcomms import events
from torchcomms.analyze import (
    AnalyzeError,
    Verdict,
    analyze,
    read,
    to_flight_recorder,
    to_text,
)
from torchcomms_cli.app import app
from typer.testing import CliRunner

from tests.harness import rings
from tests.harness.backends import NCCL
from tests.harness.forked import Process
from tests.harness.ports import free_port
from tests.harness.programs import forked, module, ranks, requests
from tests.harness.rings import Comm, Op
from tests.python.test_flight_recorder import reader

LIMIT_S = 60.0
GOLDEN = Path(__file__).parent / "golden"


def run(*arguments):
    return CliRunner().invoke(app, ["trace", *map(str, arguments)])


# Programs that hang, without a variable that would have been set for it.

PROGRAM = """
    import os, sys, threading, torch, torchcomms
    from torchcomms import ReduceOp

    backend, case = sys.argv[1:]
    odd = os.environ["RANK"] == "1"
    if odd and case == "stays away":
        threading.Event().wait()
    comm = torchcomms.new_comm(backend, torch.device("cpu"), name="world")

    def add(count=8):
        comm.all_reduce(torch.ones(count), ReduceOp.SUM, False)

    add()
    add()
    if case == "namesakes":
        first, second = (
            comm.split(ranks, "pair") if comm.get_rank() in ranks else None
            for ranks in ([1, 2], [1, 3])
        )
        if comm.get_rank() == 3:
            second.barrier(False)
        threading.Event().wait()
    if case == "batch" and not odd:
        batch = comm.batch_op_create()
        batch.send(torch.ones(4), 1)
        batch.recv(torch.ones(4), 1)
        batch.issue(False)
    if odd and case in ("batch", "sleeps", "makes none", "splits not"):
        threading.Event().wait()
    if case == "is killed":
        threading.Event().wait()
    if case == "makes none":
        torchcomms.new_comm(backend, torch.device("cpu"), name="second")
    if case == "splits not":
        comm.split([0, 1], "both")
    if case == "one does not split" and comm.get_rank() != 2:
        comm.split([0, 1], "both")
    if not (odd and case == "skips"):
        add(9 if odd and case in ("shapes", "one does not split") else 8)
    comm.broadcast(torch.ones(3), 0, False)
    add()
    threading.Event().wait()
"""

USUAL = "all_reduce SUM 8 elements float32"
EXPECTED = {
    "sleeps": "rank 1 has not entered all_reduce 3 of 'world' (last: finished all_reduce 2);"
    " rank 0 waits in it",
    "skips": f"operation 3 of 'world' differs: ranks 0, 2-3: {USUAL};"
    " rank 1: broadcast root 0 3 elements float32",
    "shapes": f"operation 3 of 'world' differs: ranks 0, 2: {USUAL};"
    " rank 1: all_reduce SUM 9 elements float32",
    "stays away": "rank 1 has not entered new_comm of 'world'; ranks 0, 2 wait in it;"
    " no record of rank 1",
    "makes none": "rank 1 has not entered new_comm of 'second'; ranks 0, 2 wait in it",
    "batch": "rank 0 waits in batch_op_issue 1 of 'world', with rank 1, which is in no message with"
    " it",
    "namesakes": "rank 1 has not entered barrier 1 of 'pair_1 (2)' (no operation before it is"
    " recorded); rank 3 waits in it",
    "splits not": "rank 1 has not entered split of 'both_0'; rank 0 waits in it",
    "one does not split": f"operation 3 of 'world' differs: ranks 0, 2: {USUAL};"
    " rank 1: all_reduce SUM 9 elements float32",
}


class Job:
    """Processes that hang, and the folder in which they left what they did."""

    def __init__(self, backend: str, case: str, size: int) -> None:
        port = free_port()
        self.size = size
        (folder,) = {Path(path) for path in events.folders()[:1]}
        self.folder = folder / f"127.0.0.1_{port}"
        asked = requests(PROGRAM, size, port, backend, case)
        self.processes = [Process(request) for request in asked]

    def kill(self) -> None:
        for process in self.processes:
            process.kill()

    def close(self) -> None:
        for process in self.processes:
            process.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def verdict(self) -> Verdict | None:
        try:
            return analyze(read([self.folder]))
        except (AnalyzeError, OSError):
            return None  # not there yet

    def until(self, told: str) -> Verdict:
        """The verdict once it says so, and all ranks have been accounted for."""
        limit = time.monotonic() + LIMIT_S
        while True:
            verdict = self.verdict()
            known = len(verdict.ranks + verdict.missing) if verdict else 0
            if verdict and known == self.size and told == verdict.summary:
                return verdict
            if time.monotonic() > limit:
                raise AssertionError(to_text(verdict) if verdict else "nothing was recorded")
            threading.Event().wait(0.05)


@pytest.fixture
def job():
    made = []

    def make(*arguments):
        made.append(Job(*arguments))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("backend", "case", "size"),
    [
        *(
            (backend, *case)
            for backend in ("ctran", "gloo")
            for case in (("sleeps", 2), ("skips", 4), ("shapes", 3))
        ),
        ("gloo", "stays away", 3),
        ("ctran", "makes none", 3),
        ("ctran", "batch", 2),
        ("gloo", "batch", 2),
        ("ctran", "namesakes", 4),
        ("gloo", "namesakes", 4),
        ("ctran", "splits not", 2),
        ("gloo", "splits not", 2),
        ("ctran", "one does not split", 3),
        ("gloo", "one does not split", 3),
    ],
)
def test_a_hang_is_explained_while_it_lasts_and_after_a_kill(backend, case, size, job):
    if not torchcomms.is_backend_built(backend):
        pytest.skip(f"backend {backend} is not part of this build")
    hung = job(backend, case, size)
    verdict = hung.until(EXPECTED[case])
    assert verdict.culprits == (1,), to_text(verdict)
    if case == "sleeps":
        assert verdict.processes[1].state == "running"
        assert verdict.processes[1].pid == hung.processes[1].pid
        assert verdict.decisive is not None
        assert verdict.decisive.waiting == (0,)
        assert 0 < verdict.looked_ns - verdict.decisive.since_ns < LIMIT_S * 1e9
        asked = run(hung.folder, "--stacks").stdout
        assert re.search(r'rank 1 is in:\n(  .*\n)+?.*File "<string>", line \d+ in <module>', asked)
        assert hung.verdict() is not None
        assert hung.processes[1].wait() is None, "asking has ended it"
    if case == "stays away":
        asked = torchcomms.analyze.stacks(read([hung.folder])[0].process)
        assert "new_comm" in asked
    hung.kill()
    told = run(hung.folder)
    assert told.exit_code == 1
    process = "" if case == "stays away" else " (process "
    assert f"verdict: {verdict.summary}\nlook at: rank 1{process}" in told.stdout
    assert "its process was killed or has crashed" in told.stdout or case != "sleeps"


def test_a_rank_that_was_killed_while_it_was_in_nothing_is_named(job):
    killed = job("ctran", "is killed", 2)
    killed.until("nothing is wrong in these records")
    killed.processes[1].kill()
    killed.until("rank 1 was killed or has crashed without finalize()")
    told = run(killed.folder)
    assert told.exit_code == 1
    assert f"look at: rank 1 (process {killed.processes[1].pid}" in told.stdout


@pytest.mark.parametrize("backend", ["ctran", "gloo", "nccl"])
def test_ranks_of_a_communicator_and_they_alone_have_its_identity(backend):
    source = f"""
        import json, os, torch, torchcomms
        from pathlib import Path
        from torch.distributed import TCPStore
        from torchcomms import analyze, events

        def made(*arguments, **more):
            return torchcomms.new_comm("{backend}", torch.device("cpu"), *arguments, **more)

        rank = int(os.environ["RANK"])
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = TCPStore(*address, is_master=rank == 0, wait_for_workers=False)
        half = [rank // 2 * 2, rank // 2 * 2 + 1]
        worlds = [made("world", store=store) for _ in range(2)]
        halves = [worlds[0].split(half, "half") for _ in range(2)]
        halves.append(halves[0].split([0, 1], "half"))
        member = made("member", store=store, enable_reconfigure=True)
        store.set(f"handle{{rank}}", member.get_init_handle())
        handles = [store.get(f"handle{{other}}").decode() for other in range(4)]
        member.reconfigure(uuid=1, init_handles=[handles[other] for other in half]).wait()
        member.reconfigure(uuid=2, init_handles=handles).wait()
        (dump,) = analyze.read([Path(events.file())])
        print(json.dumps(list(dump.identities.values())))
        member.barrier(False)
        for comm in (*halves, *worlds, member):
            comm.finalize()
        if store.add("done", 1) == 4:
            store.set("all done", "")
        store.wait(["all done"])
    """
    if not torchcomms.is_backend_built(backend) or (backend == "nccl" and NCCL.missing()):
        pytest.skip(f"backend {backend} is not part of this build")
    variables = NCCL.environment if backend == "nccl" else {}
    told = [
        json.loads(done.expect_success().out) for done in ranks(source, 4, free_port(), **variables)
    ]
    of_all, of_half = (0, 1, 6), (2, 3, 4, 5)
    assert len(told[0]) == 7
    assert told[0][:6] == told[1][:6]
    assert told[2][:6] == told[3][:6]
    for made in of_all:
        assert len({numbers[made] for numbers in told}) == 1, made
    distinct = {told[0][made] for made in of_all}
    distinct |= {told[rank][made] for rank in (0, 2) for made in of_half}
    assert len(distinct - {0}) == 3 + 2 * 4


def test_a_clean_exit_leaves_no_file_and_another_folder_can_be_chosen(tmp_path):
    source = """
        import os, torch, torchcomms
        from torchcomms import events
        assert events.file() is None
        comm = torchcomms.new_comm("fake", torch.device("cpu"), "alone")
        print(events.file(), os.path.getsize(events.file()))
    """
    for folder in (tmp_path / "first", tmp_path / "off"):
        told = forked(source, TORCHCOMM_RECORDER_DIR=str(folder)).expect_success()
        path, size = told.out.split()
        assert Path(path).parent.parent == folder
        assert int(size) < 2 << 20
        assert not Path(path).exists()
        assert not list(folder.iterdir())


def test_a_folder_that_cannot_be_written_fails_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    source = """
        import torch, torchcomms
        from torchcomms import ReduceOp, events
        comm = torchcomms.new_comm("fake", torch.device("cpu"), "alone")
        comm.all_reduce(torch.ones(1), ReduceOp.SUM, False)
        assert events.file() is None and len(events.read()) == 2
    """
    told = forked(source, TORCHCOMM_RECORDER_DIR=str(tmp_path / "file" / "in")).expect_success()
    assert "the recorder of this process is in memory alone" in told.err


# Made-up files: the formats, byte by byte.


def worlds(size: int) -> list[Comm]:
    return [Comm("world", rank, range(size), entered=2) for rank in range(size)]


def made_up(folder: Path) -> Path:
    """Rank 1 has not entered all_reduce 2, and rank 2 timed out in it; before, a message."""
    common = Op("all_reduce", 1, 1, 2, 8, "float32", "SUM")
    number = (1 << 60) + (2 << 20)  # from 0 to 2 of 3
    world = worlds(3)
    rings.write(folder, 0, [world[0]], [
        common, Op("send", number, 3, 3.5, 4, "uint8", None, 2, async_op=True, entered_ms=3.25),
        Op("all_reduce", 2, 4, None, 8, "float32", "SUM"),
    ])  # fmt: skip
    rings.write(folder, 1, [Comm("world", 1, range(3), entered=1)], [common])
    rings.write(folder, 2, [world[2]], [
        common, Op("recv", number, 3, 5, 4, "uint8", None, 0),
        Op("all_reduce", 2, 5, 12, 8, "float32", "SUM", error="CommTimeout"),
    ])  # fmt: skip
    return folder


def test_what_is_printed_and_written_is_what_it_was(tmp_path, monkeypatch):
    """Each format against its golden file; WRITE_GOLDEN=1 writes these anew."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    folder = made_up(tmp_path / "records")
    told = run(folder, "--perfetto", tmp_path / "timeline.json", "--torch", tmp_path / "torch")
    assert told.exit_code == 1, told.stderr
    dumps = [pickle.loads((tmp_path / "torch" / f"rank_{rank}").read_bytes()) for rank in range(3)]
    as_json = json.loads(run(folder, "--json").stdout)
    written = {
        "verdict.txt": told.stdout,
        "verdict.json": json.dumps(as_json, indent=1) + "\n",
        "timeline.json": json.dumps(json.loads((tmp_path / "timeline.json").read_text()), indent=1)
        + "\n",
        "torch_dumps.json": json.dumps(dumps, indent=1) + "\n",
    }
    if os.environ.get("WRITE_GOLDEN"):
        for name, text in written.items():
            (GOLDEN / name).write_text(text)
    for name, text in written.items():
        assert text == (GOLDEN / name).read_text(), name
    monkeypatch.undo()
    time.tzset()


def test_a_timeline_has_a_track_for_every_rank(tmp_path):
    run(made_up(tmp_path / "records"), "--perfetto", tmp_path / "timeline.json")
    timeline = json.loads((tmp_path / "timeline.json").read_text())
    assert timeline["otherData"]["began_unix_ns"] == str(rings.WALL_NS + 1_000_000)
    shown = timeline["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in shown if e["name"] == "process_name"}
    assert [names[rank].split(" (")[0] for rank in range(3)] == ["rank 0", "rank 1", "rank 2"]
    hung = [e for e in shown if e.get("args", {}).get("state") == "in flight"]
    assert [(e["pid"], e["name"], e["ts"] + e["dur"]) for e in hung] == [(0, "all_reduce", 11000)]
    overlapping = [e["ph"] for e in shown if e["name"] == "send"]
    assert overlapping == ["b", "e"]


def test_a_timeline_on_stdout_stands_there_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = run(made_up(tmp_path / "records"), "--perfetto", "-")
    assert told.exit_code == 1
    assert json.loads(told.stdout)["traceEvents"]
    assert not (tmp_path / "-").exists()
    assert run(tmp_path / "records", "--perfetto", "-", "--json").exit_code == 2


@reader
@pytest.mark.parametrize("of", ["trace", "hook"])
def test_pytorchs_own_analyser_reads_both_dumps(of, tmp_path, job):
    if of == "trace":
        run(made_up(tmp_path / "records"), "--torch", tmp_path / "torch")
    else:
        source = """
            import torch, torchcomms
            from torchcomms.hooks import FlightRecorderHook
            comm = torchcomms.new_comm("gloo", torch.device("cpu"), "world")
            hook = FlightRecorderHook(max_entries=0)
            hook.register_with_comm(comm)
            late = comm.get_rank() == 1
            if not late:
                work = comm.all_reduce(torch.ones(8), torchcomms.ReduceOp.SUM, True)
            hook.dump_file(comm.get_rank())
            if late:
                work = comm.all_reduce(torch.ones(8), torchcomms.ReduceOp.SUM, True)
            work.wait()
            comm.finalize()
        """
        prefix = str(tmp_path / "torch" / "rank_")
        for done in ranks(source, 3, free_port(), TORCHCOMM_FR_DUMP_TEMP_FILE=prefix):
            done.expect_success()
    analyser = "torch.distributed.flight_recorder.fr_trace"
    told = module(analyser, str(tmp_path / "torch"), folder=tmp_path).expect_success()
    said = told.out + told.err
    assert "Not all ranks joining collective" in said
    assert "missing ranks: {1}" in said
    assert ":all_reduce" in said


def test_of_two_jobs_the_newest_counts_and_of_one_rank_the_younger(tmp_path):
    old = Op("barrier", 1, 1)
    new = Op("barrier", 1, 1, 2)
    for rank, comm in enumerate(worlds(2)):
        rings.write(tmp_path / "a", rank, [comm], [old], pid=10 + rank)
        rings.write(tmp_path / "b", rank, [comm], [new], pid=20 + rank, began_ms=500)
    assert analyze(read([tmp_path])).ok
    assert not analyze(read([tmp_path / "a"])).ok
    for rank, comm in enumerate(worlds(2)):  # the folder is used again
        rings.write(tmp_path / "a", rank, [comm], [new], pid=30 + rank, began_ms=1000)
    assert analyze(read([tmp_path])).ok
    assert {dump.process.pid for dump in read([tmp_path])} == {30, 31}


def test_what_was_overwritten_is_not_held_against_a_rank(tmp_path):
    """Rank 1 did so much elsewhere that its part of 'world' is gone; it has been there."""
    comms = [Comm("world", 1, range(2), entered=5), Comm("own", 0, [1], entered=20)]
    elsewhere = [Op("barrier", n, n, n + 0.5, comm=1) for n in range(1, 21)]
    rings.write(tmp_path, 0, [Comm("world", 0, range(2), entered=5)], [Op("barrier", 5, 1)])
    rings.write(tmp_path, 1, comms, elsewhere)
    verdict = analyze(read([tmp_path]))
    assert [f.kind for f in verdict.findings] == ["stuck"]


def test_a_hang_is_told_where_the_records_of_those_who_wait_are_overwritten(tmp_path):
    """Rank 0 waits in an operation that it began, and then did much else, as others may: rank 2 has
    its record still."""
    own = [Op("barrier", n, n, n + 0.5, comm=1) for n in range(1, 21)]
    waits = Comm("world", 0, range(3), entered=3, finished=2)
    rings.write(tmp_path, 0, [waits, Comm("own", 0, [0], entered=20)], own)
    rings.write(tmp_path, 1, [Comm("world", 1, range(3), entered=2)], [Op("barrier", 2, 1, 2)])
    rings.write(tmp_path, 2, [Comm("world", 2, range(3), entered=2)], [Op("barrier", 2, 1, 2)])
    verdict = analyze(read([tmp_path]))
    assert verdict.summary == (
        "ranks 1-2 have not entered collective 3 of 'world' (last: finished barrier 2);"
        " rank 0 waits in it"
    )
    assert verdict.culprits == (1, 2)
    assert verdict.last[0] == "in collective 3 of 'world'"
    called = [Op("barrier", 2, 1, 2), Op("broadcast", 3, 3)]
    comm = Comm("world", 2, range(3), entered=3, finished=2)
    rings.write(tmp_path, 2, [comm], called)
    assert analyze(read([tmp_path])).summary == (
        "rank 1 has not entered broadcast 3 of 'world' (last: finished barrier 2);"
        " ranks 0, 2 wait in it"
    )
    comm = Comm("world", 1, range(3), entered=3, finished=2)
    rings.write(tmp_path, 1, [comm], called)
    assert analyze(read([tmp_path])).summary == (
        "ranks 0-2 have entered broadcast 3 of 'world' and not finished it"
    )


def test_members_that_no_file_lists_say_themselves_where_they_are(tmp_path):
    for rank, at in ((0, 1), (1, 0)):
        comm = Comm("recovers", at, (), entered=1 - rank, membership=7, size=2)
        rings.write(tmp_path, rank, [comm], [Op("barrier", 1, 1)] if rank == 0 else [])
    dumps = read([tmp_path])
    assert dumps[0].members == {"recovers#7": (1, 0)}
    verdict = analyze(dumps)
    assert verdict.culprits == (1,)
    assert "rank 1 has not entered barrier 1 of 'recovers#7'" in verdict.summary


def test_communicators_of_one_name_are_told_apart_by_their_identity(tmp_path):
    """Rank 0 has two pairs, of whose other ranks each has one."""
    pairs = {0: [("pair", (0, 1), 7), ("pair", (0, 2), 8)], 1: [("pair", (0, 1), 7)],
             2: [("pair", (0, 2), 8)]}  # fmt: skip
    for rank, made in pairs.items():
        comms = [
            Comm(name, members.index(rank), members, entered=int(rank == 2), finished=0,
                 identity=identity)
            for name, members, identity in made
        ]  # fmt: skip
        rings.write(tmp_path, rank, comms, [Op("barrier", 1, 3)] if rank == 2 else [])
    verdict = analyze(read([tmp_path]))
    assert verdict.culprits == (0,)
    assert "rank 0 has not entered barrier 1 of 'pair (2)'" in verdict.summary
    differs = [Op("broadcast", 1, 3, None, 8, "float32", None, 0, comm=1)]
    comms = [Comm("pair", 0, (0, 1), identity=7), Comm("pair", 0, (0, 2), entered=1, identity=8)]
    rings.write(tmp_path, 0, comms, differs)
    verdict = analyze(read([tmp_path]))
    assert "operation 1 of 'pair (2)' differs" in verdict.summary
    assert verdict.culprits == (0, 2)


def test_a_number_of_a_name_is_that_of_the_rank_that_has_most_of_them(tmp_path):
    """Rank 0 has only the last of three that rank 1 has: the others were pushed out."""
    first = [Comm("part", 1, (0, 1), identity=n) for n in (5, 6)]
    rings.write(tmp_path, 1, [*first, Comm("part", 1, (0, 1), identity=7)], [])
    last = Comm("part", 0, (0, 1), entered=1, identity=7)
    rings.write(tmp_path, 0, [last, made_by("part", 0, 2)], [Op("barrier", 1, 3)])
    told = [finding.text for finding in analyze(read([tmp_path])).findings]
    assert told == [
        "rank 1 has not entered new_comm of 'part (4)'; rank 0 waits in it",
        "rank 1 has not entered barrier 1 of 'part (3)' (no operation before it is recorded);"
        " rank 0 waits in it",
    ]


def test_memberships_of_one_uuid_whose_members_no_file_lists_are_two(tmp_path):
    for rank in range(4):
        comm = Comm("ft", rank // 2, (), entered=int(rank == 0), finished=0, membership=1, size=2,
                    identity=7 + rank % 2)  # fmt: skip
        rings.write(tmp_path, rank, [comm], [Op("barrier", 1, 1)] if rank == 0 else [])
    dumps = read([tmp_path])
    assert [dump.members["ft#1"] for dump in dumps] == [(0, 2), (1, 3), (0, 2), (1, 3)]
    assert analyze(dumps).culprits == (2,)
    for rank in range(4):
        inside = Comm("ft", rank // 2, (), membership=1, size=2, being_made=True,
                      identity=7 + rank % 2)  # fmt: skip
        there = Comm("ft", rank // 2, (), membership=1, size=2, identity=7 + rank % 2)
        rings.write(tmp_path, rank, [inside if rank == 0 else there], [])
    assert "rank 0 has entered reconfigure of 'ft#1' and not finished it" in (
        analyze(read([tmp_path])).summary
    )


def test_who_has_a_communicator_with_the_youngest_is_of_its_job_whatever_the_clocks_say(tmp_path):
    """Rank 3's host is ten seconds ahead, and has its files in a folder of its own; of an earlier
    job there are some more."""
    for rank in range(4):
        late = rank == 3
        comm = Comm("world", rank, range(4), entered=2 - late, identity=7)
        ops = [Op("barrier", 1, 1, 2), *([] if late else [Op("all_reduce", 2, 3, None, 8)])]
        folder = tmp_path / ("node1" if late else "node0")
        rings.write(folder, rank, [comm], ops, began_ms=10_000 * late)
        old = Comm("world", rank, range(5), entered=1, identity=6)
        rings.write(tmp_path / "node1", rank, [old], [Op("barrier", 1, 1)], pid=10 + rank)
    rings.write(tmp_path / "node1", 4, [Comm("world", 4, range(5), identity=6)], [], pid=14)
    dumps = read([tmp_path])
    assert [dump.process.pid for dump in dumps] == [1000, 1001, 1002, 1003]
    verdict = analyze(dumps)
    assert verdict.culprits == (3,)
    assert "ranks 0-2 wait in it" in verdict.summary


def recovered(folder: Path, late: int | None, state: Sequence[Op] = ()) -> None:
    """Rank 2 left 'world#1' in the middle, the others went on as 'world#2', where `late` is behind.
    `state`: what rank 2 is in."""
    for rank in range(2):
        comms = [
            Comm("world", rank, (), 1, membership=1, size=3, identity=7, closed=True),
            Comm("world", rank, (), 1 + (late == 1 - rank), 1, membership=2, size=2, identity=8),
        ]
        ops = [
            Op("all_reduce", 1, 1, 2, 8, "float32", "SUM", error="CommTimeout"),
            Op("all_reduce", 1, 3, 4, 8, "float32", "SUM", comm=1),
        ]
        if late is not None and rank != late:
            ops.append(Op("barrier", 2, 5, comm=1))
        rings.write(folder, rank, comms, ops)
    left = Comm("world", 2, (), entered=len(state), finished=0, membership=1, size=3, identity=7)
    rings.write(folder, 2, [left], state)


def test_after_a_reconfigure_the_verdict_is_about_what_is_current(tmp_path):
    recovered(tmp_path, late=None)
    verdict = analyze(read([tmp_path]))
    assert verdict.ok, to_text(verdict)
    assert (verdict.missing, verdict.last[0]) == ((), "finished all_reduce 1 of 'world#2'")
    recovered(tmp_path, late=1)
    verdict = analyze(read([tmp_path]))
    assert verdict.culprits == (1,)
    assert [finding.comm for finding in verdict.findings] == ["world#2"]
    assert verdict.last[0] == "in barrier 2 of 'world#2'"


def test_a_reconfigure_that_failed_leaves_current_what_was_before(tmp_path):
    failed = Op("all_reduce", 1, 1, 2, 8, "float32", "SUM", error="CommTimeout")
    for rank in range(2):
        left = Comm("world", rank, (), 1, membership=1, size=2, identity=7, closed=True)
        rings.write(tmp_path, rank, [left, Comm("world", -1, (), size=-1)], [failed])
    assert analyze(read([tmp_path])).summary == ("all_reduce 1 of 'world#1' failed on ranks 0-1")


@pytest.mark.parametrize(("state", "told"), [("killed", False), ("running", True)])
def test_who_was_left_out_is_told_where_it_hangs_alone_and_after_what_is_current(
    state, told, tmp_path
):
    recovered(tmp_path, late=1, state=[Op("barrier", 1, 1)])
    dumps = [
        dataclasses.replace(dump, process=dataclasses.replace(dump.process, state=state))
        for dump in read([tmp_path])
    ]
    verdict = analyze(dumps)
    assert verdict.culprits == (1,)
    assert verdict.findings[0].comm == "world#2"
    assert [finding.text for finding in verdict.findings[1:]] == told * [
        "rank 2 waits in barrier 1 of 'world#1', which ranks 0-1 have left by reconfigure()"
    ]


def test_a_member_that_was_killed_and_left_out_is_nobodys_business_any_more(tmp_path):
    recovered(tmp_path, late=None)
    states = ("running", "running", "killed")
    dumps = [
        dataclasses.replace(dump, process=dataclasses.replace(dump.process, state=state))
        for dump, state in zip(read([tmp_path]), states, strict=True)
    ]
    assert analyze(dumps).ok
    states = ("running", "killed", "killed")
    dumps = [
        dataclasses.replace(dump, process=dataclasses.replace(dump.process, state=state))
        for dump, state in zip(dumps, states, strict=True)
    ]
    assert analyze(dumps).summary == "rank 1 was killed or has crashed without finalize()"


def test_a_rank_without_the_communicator_has_left_a_record_all_the_same(tmp_path):
    """It could not connect, and the others have."""
    rings.write(tmp_path, 0, [Comm("world", 0, (0, 1), entered=1, finished=0, identity=7)],
                [Op("barrier", 1, 1)])  # fmt: skip
    rings.write(tmp_path, 1, [made_by("world", 1, 2)], [])
    verdict = analyze(read([tmp_path]))
    assert "rank 0 has entered barrier 1 of 'world' and not finished it" in (
        verdict.findings[1].text
    )
    assert verdict.findings[1].text.endswith("; rank 1 has no record of it")
    assert verdict.culprits == (1,)


def test_a_group_whose_record_leaves_a_rank_out_is_written_for_torch_all_the_same(tmp_path):
    """As records were of groups of torch.distributed: with the ranks in the group for members."""
    comms = [Comm("world", 2, range(3)), Comm("group", 1, (0, 1))]
    message = Op("recv", 1, 1, 2, 4, "float32", None, 0, comm=1)
    rings.write(tmp_path, 2, comms, [message])
    (dump,) = read([tmp_path])
    (entry,) = to_flight_recorder(dump)["entries"]
    assert entry["profiling_name"].endswith(":recv 1<-0")


def test_a_message_of_two_sizes_is_a_mismatch(tmp_path):
    number = (1 << 60) + (1 << 20)
    sides = (Op("send", number, 1, None, 4, "float32", None, 1),
             Op("recv", number, 1, None, 5, "float32", None, 0))  # fmt: skip
    for rank, comm in enumerate(worlds(2)):
        rings.write(tmp_path, rank, [comm], [sides[rank]])
    verdict = analyze(read([tmp_path]))
    assert "rank 0 sends 4 elements float32, rank 1 receives 5 elements float32" in verdict.summary


BATCH = 1 << 59


def message(kind: str, count: int, sender: int, receiver: int, begin_ms: float, **more) -> Op:
    """Between two ranks of two."""
    number = (1 << 60) + ((2 * sender + receiver) << 20) + count
    other = receiver if kind == "send" else sender
    return Op(kind, number, begin_ms, elements=4, dtype="float32", root_or_peer=other, **more)


def test_messages_that_both_have_posted_and_that_do_not_arrive_are_told_by_pairs(tmp_path):
    world = worlds(2)
    rings.write(tmp_path, 0, [world[0]], [
        message("send", 0, 0, 1, 1, end_ms=2), message("send", 1, 0, 1, 3, end_ms=4),
        message("send", 2, 0, 1, 5), message("recv", 0, 1, 0, 6),
    ])  # fmt: skip
    rings.write(tmp_path, 1, [world[1]], [
        message("recv", 0, 0, 1, 1, end_ms=3), message("recv", 1, 0, 1, 4),
        message("recv", 2, 0, 1, 7), message("send", 0, 1, 0, 8),
    ])  # fmt: skip
    verdict = analyze(read([tmp_path]))
    assert [(f.kind, f.waiting, f.text) for f in verdict.findings] == [
        ("stuck", (0, 1), "2 messages from rank 0 to rank 1 in 'world', which both have posted,"
         " have not arrived"),
        ("stuck", (0, 1), "a message from rank 1 to rank 0 in 'world', which both have posted,"
         " has not arrived"),
    ]  # fmt: skip
    assert verdict.findings[0].since_ns == rings.WALL_NS + 4_000_000
    assert verdict.culprits == ()


def test_a_receive_from_whoever_sends_is_told_where_it_hangs(tmp_path):
    world = worlds(2)
    number = (1 << 60) + ((2 * 2 + 0) << 20)
    rings.write(tmp_path, 0, [world[0]], [Op("recv", number, 3, None, 4, "float32")])
    rings.write(tmp_path, 1, [world[1]], [])
    assert analyze(read([tmp_path])).summary == "rank 0 waits in recv from any rank of 'world'"


@pytest.mark.parametrize(
    ("batches", "told", "culprits"),
    [
        ({0: (1,)}, ["rank 0 waits in batch_op_issue 1 of 'world', with rank 1, which is in no"
                     " message with it"], (1,)),
        ({0: (1, 2)}, ["rank 0 waits in batch_op_issue 1 of 'world' with ranks 1-2"], ()),
        ({0: ()}, ["rank 0 waits in batch_op_issue 1 of 'world'"], ()),
        ({0: (1,), 1: (0,)}, ["ranks 0-1 wait in batches of messages of 'world' with each other"],
         ()),
        ({0: (1,), 1: (2,)}, [
            "rank 0 waits in batch_op_issue 1 of 'world', with rank 1, which is in no message with"
            " it",
            "rank 1 waits in batch_op_issue 1 of 'world', with rank 2, which is in no message with"
            " it",
        ], (2,)),
        ({0: (1,), 1: ()}, ["ranks 0-1 wait in batches of messages of 'world'"], ()),
        ({0: (3,)}, ["rank 0 waits in batch_op_issue 1 of 'world', with rank 3, which left no"
                     " record"], (3,)),
    ],
)  # fmt: skip
def test_batches_that_hang_are_told_with_whom(batches, told, culprits, tmp_path):
    for rank in range(3):
        ops = [Op("barrier", 1, 1, 2), Op("batch_op_issue", BATCH + 1, 3, 4, peers=(0, 1))]
        if rank in batches:
            ops[1] = Op("batch_op_issue", BATCH + 1, 5 + rank, peers=batches[rank])
        comm = Comm("world", rank, range(4 if 3 in batches[0] else 3), entered=1)
        rings.write(tmp_path, rank, [comm], ops)
    verdict = analyze(read([tmp_path]))
    assert [finding.text for finding in verdict.findings] == told
    assert (verdict.culprits, verdict.decisive.since_ns) == (
        culprits, rings.WALL_NS + (5_000_000 if len(told) == 1 else 6_000_000)
    )  # fmt: skip


def test_who_waits_for_a_rank_in_a_batch_is_not_the_one_to_look_at(tmp_path):
    first = Comm("dp", 0, (0, 1), entered=1, finished=0)
    rings.write(tmp_path, 0, [first], [Op("all_reduce", 1, 3, None, 8, "float32", "SUM")])
    second = [Comm("dp", 1, (0, 1)), Comm("pp", 0, (1, 2))]
    rings.write(tmp_path, 1, second, [Op("batch_op_issue", BATCH + 1, 3, peers=(1,), comm=1)])
    rings.write(tmp_path, 2, [Comm("pp", 1, (1, 2))], [])
    assert analyze(read([tmp_path])).culprits == (2,)


def made_by(name: str, rank: int, size: int, membership: int | None = None) -> Comm:
    return Comm(name, rank, (), membership=membership, size=size, being_made=True)


@pytest.mark.parametrize(
    ("inside", "told", "culprits"),
    [
        ({0: (0, 2), 3: (1, 2)}, "ranks 0, 3 have entered new_comm of '7' and not finished it", ()),
        (
            {0: (0, 3), 3: (2, 3)},
            "its own rank 1 of 3 has not entered new_comm of '7'; ranks 0, 3 wait in it",
            (),
        ),
        (
            {0: (0, 4), 3: (3, 4)},
            "ranks 1-2 have not entered new_comm of '7'; ranks 0, 3 wait in it",
            (1, 2),
        ),
        (
            {0: (1, 4), 3: (3, 4)},
            "its own ranks 0, 2 of 4 have not entered new_comm of '7'; ranks 0, 3 wait in it",
            (),
        ),
    ],
)
def test_who_has_not_come_to_a_group_is_named_where_it_is_known(inside, told, culprits, tmp_path):
    """A group of some ranks, or of all: of some, only those that are there are known."""
    for rank, world in enumerate(worlds(4)):
        comms = [world, *([made_by("7", *inside[rank])] if rank in inside else [])]
        rings.write(tmp_path, rank, comms, [Op("barrier", 1, 1, 2), Op("barrier", 2, 3, 4)])
    verdict = analyze(read([tmp_path]))
    assert (verdict.summary, verdict.culprits) == (told, culprits)
    assert verdict.last[0] == "in new_comm of '7'"
    assert verdict.last[1] == "finished barrier 2 of 'world'"


def made_by_split(name: str, rank: int, members: Sequence[int]) -> Comm:
    return Comm(name, rank, members, being_made=True, by_split=True)


def test_of_a_split_those_of_its_list_are_waited_for(tmp_path):
    """Two at once under one name."""
    odd, even = (1, 3), (2, 4, 0)
    for rank, world in enumerate(worlds(5)):
        comms = [world]
        if rank == 3:
            comms.append(made_by_split("half", 1, odd))
        if rank in (0, 2):
            comms.append(made_by_split("half", even.index(rank), even))
        rings.write(tmp_path, rank, comms, [Op("barrier", 1, 1, 2), Op("barrier", 2, 3, 4)])
    verdict = analyze(read([tmp_path]))
    assert [finding.text for finding in verdict.findings] == [
        "rank 1 has not entered split of 'half'; rank 3 waits in it",
        "rank 4 has not entered split of 'half'; ranks 0, 2 wait in it",
    ]
    assert verdict.culprits == (1, 4)


def test_who_is_through_is_not_missed_and_names_come_again(tmp_path):
    """Rank 1 has the second 'world' already, rank 2 only the first."""
    first = [Comm("world", rank, range(3)) for rank in range(3)]
    rings.write(tmp_path, 0, [first[0], made_by("world", 0, 3)], [])
    rings.write(tmp_path, 1, [first[1], Comm("world", 1, range(3))], [])
    rings.write(tmp_path, 2, [first[2]], [])
    verdict = analyze(read([tmp_path]))
    assert verdict.summary == ("rank 2 has not entered new_comm of 'world (2)'; rank 0 waits in it")


def test_who_was_killed_before_another_came_is_not_of_an_earlier_job(tmp_path):
    for rank, name in enumerate(("world", "world", "earlier")):
        comms = [made_by(name, rank, 3)]
        rings.write(tmp_path / "job", -1, comms, [], pid=10 + rank, began_ms=500 * (rank == 0))
    assert [dump.rank for dump in read([tmp_path])] == [0, 1]


def test_who_waits_in_reconfigure_is_told_by_its_uuid(tmp_path):
    for rank in range(2):
        rings.write(tmp_path, -1, [made_by("recovers", rank, 3, 7)], [], pid=10 + rank)
    verdict = analyze(read([tmp_path]))
    assert verdict.summary == (
        "rank 2 has not entered reconfigure of 'recovers#7'; ranks 0-1 wait in it;"
        " no record of rank 2"
    )


def test_a_rank_that_took_its_record_along_is_the_one_that_is_waited_for(tmp_path):
    world = worlds(3)
    for rank in (0, 2):
        rings.write(tmp_path, rank, [world[rank]], [Op("barrier", 2, 1)])
    verdict = analyze(read([tmp_path]))
    assert verdict.culprits == (1,)
    assert verdict.summary.endswith("; rank 1 left no record")  # which is said once


def test_what_a_name_holds_ends_no_line_and_moves_no_cursor(tmp_path):
    name = "a'\nverdict: nothing is wrong in these records\x1b[2J\x9b\u2028"
    folder = tmp_path / "a\x1bfolder"
    for rank in range(2):
        comm = Comm(name, rank, range(2), entered=1 - rank, finished=0)
        rings.write(folder, rank, [comm], [Op("barrier", 1, 1)] if rank == 0 else [])
    (folder / "cut\n.ring").write_bytes(b"TCRING")
    told = run(folder)
    assert told.exit_code == 1
    lines = (told.stdout + told.stderr).split("\n")
    assert [line for line in lines if line.startswith("verdict:")] == [
        "verdict: rank 1 has not entered barrier 1 of 'a'\\nverdict: nothing is wrong in these"
        " records\\x1b[2J\\x9b\\u2028' (no operation before it is recorded); rank 0 waits in it"
    ]
    assert all(line.isprintable() for line in lines)
    assert json.loads(run(folder, "--json").stdout)["findings"][0]["comm"] == name
    refused = run(folder / "cut\n.ring")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda data: data[:5000], "is cut: 5000 bytes"),
        (lambda data: data[:8] + b"\x09" + data[9:], "has layout 9"),
        (lambda data: data[:8] + b"\x01" + data[9:], "has layout 1"),
        (lambda data: data[:12] + b"\x01" + data[13:], "its parts have sizes"),
        (lambda data: b"TCRONG" + data[6:], "no event ring"),
    ],
)
def test_what_is_no_whole_ring_is_refused_by_name(spoil, why, tmp_path):
    path = rings.write(tmp_path, 0, worlds(1), [])
    path.write_bytes(spoil(path.read_bytes()))
    told = run(tmp_path)
    assert told.exit_code == 2
    assert str(path) in told.stderr
    assert why in told.stderr


def test_a_damaged_file_hides_no_other_job(tmp_path):
    """A process may have died in the middle of making it, or the disk was full."""
    for rank, comm in enumerate(worlds(2)):
        rings.write(tmp_path / "a", rank, [comm], [Op("barrier", 2, 1, 2)])
    damaged = rings.write(tmp_path / "b", 0, worlds(1), [], began_ms=500)
    damaged.write_bytes(damaged.read_bytes()[:5000])
    (tmp_path / "a" / "README").write_text("no record")
    told = run(tmp_path)
    assert (told.exit_code, "nothing is wrong" in told.stdout) == (0, True), told.output
    assert f"left out: {damaged} is cut" in told.stderr
    assert run(tmp_path / "a").exit_code == 0
    named = run(damaged)
    assert (named.exit_code, "is cut" in named.stderr) == (2, True)


@pytest.mark.parametrize(
    ("runs", "start_stride_count"),
    [(1, (0, 1, 1 << 30)), (1, (0, 1, 1)), (1, (0, 1, -2)), (21, (0, 1, 2))],
)
def test_members_that_cannot_be_are_refused_before_memory_is_spent_on_them(
    runs, start_stride_count, tmp_path
):
    path = rings.write(tmp_path, 0, worlds(2)[:1], [])
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, 4096 + 60, runs)
    struct.pack_into("<3i", data, 4096 + 272, *start_stride_count)
    path.write_bytes(data)
    told = run(path)
    assert (told.exit_code, f"{path} is damaged: {runs} runs" in told.stderr) == (2, True)


@pytest.mark.parametrize(("rank", "size"), [(0, 60_000_000), (2, 2)])
def test_sizes_that_cannot_be_are_refused_where_members_are_not_known(rank, size, tmp_path):
    path = rings.write(tmp_path, 0, worlds(2)[:1], [])
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, 4096 + 48, 4)  # members are not known
    struct.pack_into("<2i", data, 4096 + 52, rank, size)
    path.write_bytes(data)
    told = run(path)
    damage = f"{path} is damaged: rank {rank} of a communicator of {size} ranks"
    assert (told.exit_code, damage in told.stderr) == (2, True), told.output


def test_the_newest_job_is_that_of_all_default_folders(tmp_path, monkeypatch):
    """A rank whose file had no room in the first folder has it in the second, where an older job
    left its own."""
    first, second = tmp_path / "first", tmp_path / "second"
    monkeypatch.setattr(events, "folders", lambda: [str(first), str(tmp_path / "no"), str(second)])
    world = worlds(4)
    for rank in range(4):
        rings.write(second / "old", rank, [world[rank]], [Op("barrier", 1, 1)], pid=10 + rank)
    for rank, folder in ((0, first), (1, second)):
        comm = Comm("world", rank, range(2), entered=2)
        rings.write(folder / "new", rank, [comm], [Op("barrier", 2, 1, 2)], began_ms=500)
    told = run()
    assert (told.exit_code, "nothing is wrong" in told.stdout) == (0, True), told.output
    assert "rank 2" not in told.stdout
    assert "ranks 0-1" in told.stdout


def test_nothing_to_read_is_said(tmp_path):
    told = run(tmp_path)
    assert (told.exit_code, "no record" in told.stderr) == (2, True)
    rings.write(tmp_path, -1, [Comm("alone", -1, (), size=-1)], [])
    assert "1 processes left records, and none of them was connected" in run(tmp_path).stderr
