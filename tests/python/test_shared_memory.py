"""Ranks whose shared memory is scarce, forbidden, or not the same: each works, or says why."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
import torchcomms

from tests.harness import memory_faults
from tests.harness.ports import free_port
from tests.harness.programs import forked, ranks, together

needs_ctran = pytest.mark.skipif(
    not torchcomms.is_backend_built("ctran"), reason="needs backend ctran"
)

# What uses every kind of shared memory: links, a split's, windows of both kinds, records.
EVERYTHING = """
    import os, sys, time
    import torch, torchcomms
    from torchcomms import ReduceOp

    device, limit_s = torch.device("cpu"), 30.0
    comm, began = None, time.monotonic()
    try:
        comm = torchcomms.new_comm("ctran", device, "scarce", hints={hints}, timeout=limit_s)
        rank, size = comm.get_rank(), comm.get_size()
        for numel in (1, 1000, 1_000_000):
            tensor = torch.full((numel,), float(rank + 1))
            comm.all_reduce(tensor, ReduceOp.SUM, False)
            assert (tensor == size * (size + 1) / 2).all()
        half = comm.split(list(range(size)), "half")
        sent = torch.full((4096,), 7, dtype=torch.uint8)
        for window in (half.window_allocate(4096, True), half.new_window(torch.zeros_like(sent))):
            window.put(sent, (rank + 1) % size, 0, False)
            window.signal((rank + 1) % size, False)
            window.wait_signal((rank - 1) % size, False)
            window.tensor_deregister()
        half.finalize()
        about = comm.describe()
        print("works", about["links"][(rank + 1) % size], about["notes"]["links"])
    except torchcomms.ResourceExhausted as error:
        print("exhausted", error)
    finally:
        if comm is not None:
            comm.finalize()
    assert time.monotonic() - began < limit_s / 2
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    return memory_faults.library(tmp_path_factory.mktemp("library"))


@pytest.fixture
def shared_folder():
    """In /dev/shm where there is one."""
    above = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=above) as folder:
        yield Path(folder) / "records"


MOST_STEPS = 80
# By the number of the step, so that every step meets each in one of the sweeps.
ERRORS = (errno.ENOSPC, errno.EPERM, errno.EFBIG, errno.EACCES, errno.ENOMEM)


@needs_ctran
@pytest.mark.parametrize(
    ("size", "rank", "turn", "stride"),
    [(2, 0, 0, 4)] +
    [pytest.param(size, rank, turn, 1, marks=pytest.mark.slow)
     for size in (2, 3) for rank in range(size) for turn in range(len(ERRORS))],
)  # fmt: skip
def test_whatever_call_for_shared_memory_fails_all_ranks_work_or_say_why(
    library, shared_folder, size, rank, turn, stride
):
    source = EVERYTHING.format(hints={})
    for at in range(0, MOST_STEPS, stride):
        error = ERRORS[(at + turn) % len(ERRORS)]
        faults = memory_faults.variables(library, rank, at, error)
        faults["TORCHCOMM_RECORDER_DIR"] = str(shared_folder)
        told = ranks(source, size, free_port(), **faults)
        injected = [line for line in told[rank].err.splitlines() if line.startswith("FAULT ")]
        step = f"step {at}: {injected}"
        for one in told:
            assert one.code == 0, f"{step}\n{one.out}\n{one.err}"
        words = [one.out.split(maxsplit=1)[0] for one in told]
        assert len(set(words)) == 1, f"{step}\n{[one.out for one in told]}"
        for one in told:
            if words[0] == "works":
                assert "works shm" in one.out or os.strerror(error) in one.out
                continue
            why = f"shared memory: {os.strerror(error)}"
            assert why in one.out, f"{step}\n{one.out}"
            assert "ctran::transport=tcp" in one.out, f"{step}\n{one.out}"
        assert not list(shared_folder.rglob("*.ring*")), step
        if not injected:
            assert at > 10  # it has failed in all of them
            return
    raise AssertionError(f"more than {MOST_STEPS} calls")


LIMITED = """
    import os, resource, signal, sys

    sys.dont_write_bytecode = True
    import torch, torchcomms

    if int(os.environ["RANK"]) in {limited}:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as programs in C++ have it
        resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
"""


@needs_ctran
@pytest.mark.parametrize("limit", [0, 65536])
def test_a_file_size_limit_leaves_tcp_which_says_so(limit):
    # Output goes to pipes: the limit is one on files.
    source = LIMITED.format(limited=(0, 1), limit=limit) + EVERYTHING.format(hints={})
    for told in ranks(source, 2, free_port(), fresh=True):
        assert told.expect_success().out.startswith("works tcp"), told.out
        assert f"at most {limit} bytes, as ulimit -f says" in told.out


@needs_ctran
def test_with_shared_memory_alone_a_file_size_limit_is_named_on_all_ranks():
    source = LIMITED.format(limited=(1,), limit=65536)
    source += EVERYTHING.format(hints={"ctran::transport": "shm"})
    told = [one.expect_success().out for one in ranks(source, 2, free_port(), fresh=True)]
    for out in told:
        assert out.startswith("exhausted")
        assert "ulimit -f says (64 blocks of 1024 bytes)" in out
    assert "rank 1 has no shared memory" in told[0]
    assert "this rank has no shared memory" in told[1]


AS_ANOTHER_USER = """
    import ctypes, os

    user = 12345 + int(os.environ["RANK"]) * {apart}
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, as a program has it that they start
    os.environ.update(HOME="/", TORCHCOMM_RECORDER_DIR="off")
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")


@needs_ctran
@needs_root
def test_ranks_of_two_users_on_one_host_go_over_tcp():
    source = AS_ANOTHER_USER.format(apart=1) + EVERYTHING.format(hints={})
    for rank, told in enumerate(ranks(source, 2, free_port())):
        assert told.expect_success().out.startswith("works tcp"), told.out
        users = f"rank {1 - rank} runs as user {12346 - rank}, this rank as user {12345 + rank}"
        assert users in told.out


@needs_ctran
@needs_root
def test_ranks_of_one_user_that_is_not_root_share_memory():
    source = AS_ANOTHER_USER.format(apart=0) + EVERYTHING.format(hints={})
    for told in ranks(source, 2, free_port()):
        assert told.expect_success().out.startswith("works shm"), told.out


@needs_ctran
@needs_root
def test_shared_memory_alone_between_two_users_names_both():
    source = (
        AS_ANOTHER_USER.format(apart=1)
        + """
    import torch, torchcomms
    try:
        torchcomms.new_comm("ctran", torch.device("cpu"), "two", hints={"ctran::transport": "shm"})
    except torchcomms.Unsupported as error:
        print(error)
"""
    )
    for told in ranks(source, 2, free_port()):
        assert "user 12345" in told.expect_success().out
        assert "user 12346" in told.out


MIB = 1 << 20
# Jobs that are killed one after another, in a container's /dev/shm.
KILLED = """
    import os, signal, sys
    import torch, torchcomms
    from torchcomms import events

    used = lambda: (lambda s: (s.f_blocks - s.f_bfree) * s.f_frsize)(os.statvfs("/dev/shm"))
    jobs, at_once = int(sys.argv[1]), int(sys.argv[2])
    most, files = 0, 0
    for job in range(jobs):
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + job))
        children = []
        for rank in range(at_once):
            here, there = os.pipe()
            children.append((os.fork(), here))
            if children[-1][0] == 0:
                hints = {"fake::rank": str(rank), "fake::size": "8"}
                torchcomms.new_comm("fake", torch.device("cpu"), "killed", hints=hints)
                os.write(there, (events.file() or "memory").encode())
                signal.pause()
            os.close(there)
        told = [os.read(here, 4096).decode() for _, here in children]
        files = sum(name.startswith("/dev/shm") for name in told)
        most = max(most, used())
        for process, here in children:
            os.close(here)
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    print(most, used(), files)
"""


def in_own_shared_memory(source: str, *arguments: str, size: str = "64m") -> str:
    """Stdout of a program that has a /dev/shm of that size of its own. Skips where it cannot."""
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    try:
        allowed = subprocess.run([*command, "mount -t tmpfs t /dev/shm"], capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no unshare(1)")
    if allowed.returncode != 0:
        pytest.skip(f"no mount namespace here: {allowed.stderr.decode().strip()}")
    inside = f'mount -t tmpfs -o size={size} t /dev/shm && exec "$0" -c "$@"'
    done = together(
        [([*command, inside, sys.executable, textwrap.dedent(source), *arguments], {})], 100.0
    )[0]
    return done.expect_success().out


def test_jobs_that_are_killed_one_after_another_leave_a_small_shared_memory_its_room():
    out = in_own_shared_memory(KILLED, "60", "1")
    most, _, files = map(int, out.split())
    assert most <= 64 * MIB // 10
    assert files == 1  # the last one has its record there: those of the others made room


def test_the_records_of_one_job_stay_within_their_part_of_a_small_shared_memory():
    out = in_own_shared_memory(KILLED, "2", "8")
    most, _, files = map(int, out.split())
    assert most <= 64 * MIB // 10
    assert 0 < files < 8


def test_a_full_shared_memory_and_temporary_folder_leave_records_in_memory_and_the_doctor_says_so():
    out = in_own_shared_memory(
        """
        import os
        os.environ["TMPDIR"] = "/dev/shm/tmp"
        os.mkdir("/dev/shm/tmp")
        import torch, torchcomms
        from torchcomms import ReduceOp, events
        from torchcomms.doctor import machine
        comm = torchcomms.new_comm("fake", torch.device("cpu"), "small")
        comm.all_reduce(torch.ones(1), ReduceOp.SUM, False)
        print(events.file(), len(events.read()), os.listdir("/dev/shm/tmp/torchcomms-0"))
        print([f for f in machine.look().findings if f.subject == "records"])
        comm.finalize()
        """,
        size="4m",
    )
    told, findings = out.splitlines()
    assert told == "None 2 []"
    assert "warning" in findings
    assert "only in memory" in findings
    assert "a tenth of the file system" in findings


def test_the_doctor_says_for_how_many_ranks_there_is_room():
    source = """
        from torchcomms.doctor import machine
        print([f for f in machine.look().findings if f.subject == "records"])
    """
    few = in_own_shared_memory(source)
    assert "/dev/shm/torchcomms-" in few
    assert "has room for 5 more ranks" in few


def test_the_doctor_names_a_file_size_limit():
    source = """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        from torchcomms.doctor import machine
        print([f.text for f in machine.look().findings if f.level == "warning"])
    """
    out = forked(source).expect_success().out
    assert "the limit is 64K" in out
    assert "ulimit -f says (64 blocks of 1024 bytes)" in out  # of the records
    assert "File too large; ranks of backend ctran on this host use TCP" in out
