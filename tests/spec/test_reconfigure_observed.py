"""What hangs on a communicator when its members change: windows, hooks, recorders, wrappers."""

from __future__ import annotations

import json

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp
from torchcomms._comms import _BackendWrapper
from torchcomms.hooks import FlightRecorderHook

from tests.harness.cases import Failures, check_context, refused
from tests.harness.party import Party

several = pytest.mark.worlds(backends=("gloo", "ctran", "nccl"), sizes=(2, 3, 4))
with_windows = pytest.mark.worlds(backends=("ctran",), sizes=(2, 3, 4))
MEMORY = ("plain", "shared", "allocated")


def window_of(comm, kind):
    """A window of 4 zeros in memory of that kind."""
    if kind == "allocated":
        return comm.window_allocate(16)
    tensor = torch.zeros(4)
    return comm.new_window(tensor.share_memory_() if kind == "shared" else tensor)


def every_use(window, rank):
    one = torch.ones(1)
    return {
        "put": lambda: window.put(one, rank, 0, False),
        "put async": lambda: window.put(one, rank, 0, True),
        "signal": lambda: window.signal(rank, False),
        "wait_signal": lambda: window.wait_signal(rank, False),
        "map": lambda: window.map_remote_tensor(rank),
        "attr": lambda: window.get_attr(rank),
        "slot": lambda: window.signal(0, 1, rank, False),
    }


def windows(context, kind):
    party, failures, n = Party(context), Failures(), context.size
    everyone = list(range(n))
    party.form(everyone)
    comm = party.comm
    window = window_of(comm, kind)
    child = comm.split(everyone, "child")
    of_child = window_of(child, kind)
    waits = window.wait_signal(comm.get_rank(), True)  # nobody signals
    # The last one stays away from the second membership.
    groups = [everyone[:-1], everyone] if n > 2 else [everyone[::-1], everyone]
    for group in groups:
        if party.form(group) is None:
            continue
        for name, call in every_use(window, comm.get_rank()).items():
            with failures.case(name), refused(torchcomms.StaleGeneration, "register it again"):
                call()
        with failures.case("a window of a split"), refused(torchcomms.StaleGeneration, "split"):
            of_child.put(torch.ones(1), 0, 0, False)
        with failures.case("still its own"):
            assert window.get_size() == 16
        party.works(group)
    with failures.case("in flight"), refused((torchcomms.Aborted, torchcomms.PeerFailed)):
        waits.wait()
    # Needs nobody: members that have just come have no such window.
    mine = window.get_tensor().view(torch.float32)
    if context.rank != 0:
        window.tensor_deregister()
        of_child.tensor_deregister()
    party.works(everyone)
    if context.rank == 0:
        window.tensor_deregister()
    window.tensor_register(mine)
    following = (comm.get_rank() + 1) % n
    window.put(torch.full((2,), 5.0), following, 1, False)
    window.signal(following, False)
    window.wait_signal((comm.get_rank() - 1) % n, False)
    with failures.case("registered again"):
        assert mine.tolist() == [0.0, 5.0, 5.0, 0.0]
    del of_child  # of rank 0: with a tensor still
    window.tensor_deregister()
    party.works(everyone)
    comm.finalize()
    return failures.texts


@with_windows
@pytest.mark.parametrize("kind", MEMORY)
def test_windows_of_an_older_membership_are_stale_until_registered_again(world, kind):
    check_context(world, windows, kind)


def after_a_failure(context):
    """Without members a window is as useless as the communicator, and can be dropped."""
    party = Party(context)
    party.form([context.rank])
    window = party.comm.window_allocate(16, cpu_buf=True)
    work = party.reconfigure([*party.handles()], 50 + context.rank, timeout=1.0)
    with refused((torchcomms.Mismatch, torchcomms.CommTimeout)):
        work.wait()
    with refused(torchcomms.CommFinalized, "reconfigure() first"):
        window.put(torch.ones(1), 0, 0, False)
    del window
    party.uuid = 100
    party.meet("all have failed")
    party.form(list(range(context.size)))
    party.comm.finalize()
    return []


@with_windows
def test_a_failed_reconfigure_leaves_windows_without_members(world):
    check_context(world, after_a_failure)


def hooks(context):
    party, failures = Party(context), Failures()
    before, after = [], []
    party.comm.register_pre_hook(lambda name, op_id, args: before.append((name, op_id)))
    party.comm.register_post_hook(lambda op_id, args: after.append(op_id))
    everyone = list(range(context.size))
    for turn in range(1, 4):
        party.form(everyone)
        with failures.case("calls", turn):
            assert [op_id for _, op_id in before] == after
            assert len(before) == 2 * turn, "reconfigure itself is not hooked"
    with failures.case("ids"):
        assert after == sorted(set(after))
    party.comm.finalize()
    return failures.texts


@several
def test_hooks_go_on(world):
    check_context(world, hooks)


def recorded(context):
    party, n = Party(context), context.size
    recorder = FlightRecorderHook(100, isolated=True)
    recorder.register_with_comm(party.comm)
    everyone = list(range(n))
    party.form(everyone[:-1])
    if context.rank != n - 1:
        party.comm.barrier(False)
    party.form(everyone)
    dump = json.loads(recorder.dump_json())
    name = party.comm.get_name()
    seen = {}
    for entry in dump["entries"]:
        seen.setdefault(entry["process_group"][0], []).append(entry["collective_seq_id"])
    expected = {f"{name}#2": [1, 2]}
    if context.rank != n - 1:
        expected[f"{name}#1"] = [1, 2, 3]
    assert seen == expected
    ranks = {group["name"]: json.loads(group["ranks"]) for group in dump["pg_config"].values()}
    assert {group: ranks[group] for group in seen} == {
        f"{name}#{uuid}": list(range(size))
        for uuid, size in ((1, n - 1), (2, n))
        if f"{name}#{uuid}" in seen
    }
    party.comm.finalize()
    return []


@several
def test_the_recorder_tells_memberships_apart(world):
    """All members of one number its operations alike, whoever came when."""
    check_context(world, recorded)


def wrapped(context):
    party, n = Party(context), context.size
    wrapper = _BackendWrapper(party.comm)
    everyone = list(range(n))
    for group in (everyone, everyone[::-1]):
        party.form(group)
        total = torch.ones(3)
        wrapper.allreduce(total).wait()
        assert total.tolist() == [n] * 3
        told = torch.zeros(n)
        mine = torch.full((n,), float(party.comm.get_rank()))
        wrapper.alltoall_base(told, mine, [1] * n, []).wait()
        assert told.tolist() == everyone
    child = party.comm.split(everyone, "child")
    total = torch.ones(1)
    child.all_reduce(total, ReduceOp.SUM, False)
    assert total.item() == n
    party.comm.finalize()
    return []


@several
def test_a_wrapper_for_torch_distributed_follows_its_communicator(world):
    check_context(world, wrapped)
