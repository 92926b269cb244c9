"""`torchcomms trace`: processes that hang, and were killed, explained by the files they leave."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import struct
import threading
import time
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
from tests.harness.rings import Comm, Op, worlds
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
    "batch": "rank 0 waits in batch_op_issue 1 of 'world', with rank 1, which has posted no message"
    " with it",
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
    assert "the event ring of this process has no file" in told.err


# Made-up files: the formats, byte by byte.


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


def test_a_group_whose_record_leaves_a_rank_out_is_written_for_torch_all_the_same(tmp_path):
    """As records were of groups of torch.distributed: with the ranks in the group for members."""
    comms = [Comm("world", 2, range(3)), Comm("group", 1, (0, 1))]
    message = Op("recv", 1, 1, 2, 4, "float32", None, 0, comm=1)
    rings.write(tmp_path, 2, comms, [message])
    (dump,) = read([tmp_path])
    (entry,) = to_flight_recorder(dump)["entries"]
    assert entry["profiling_name"].endswith(":recv 1<-0")


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
        (lambda data: data[:5000], "truncated: 5000 of"),
        (lambda data: data[:8] + b"\x09" + data[9:], "has layout 9"),
        (lambda data: data[:8] + b"\x01" + data[9:], "has layout 1"),
        (lambda data: data[:12] + b"\x01" + data[13:], "its parts have sizes"),
        (lambda data: b"TCRONG" + data[6:], "not an event ring"),
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
    assert f"left out: {damaged} is truncated" in told.stderr
    assert run(tmp_path / "a").exit_code == 0
    named = run(damaged)
    assert (named.exit_code, "truncated" in named.stderr) == (2, True)


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
    assert (told.exit_code, f"{path} is damaged: " in told.stderr) == (2, True), told.output
    assert f"cannot have rank {rank}" in told.stderr


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
    assert "1 processes left records, but none" in run(tmp_path).stderr
