"""What reconfigure means: exactly the given members are connected, again and again."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp
from torchcomms.hooks import FlightRecorderHook, NanCheckHook

from tests.harness.cases import Failures, barrier_until_refused, check_context, refused
from tests.harness.party import Party
from tests.harness.threads import busy_threads

several = pytest.mark.worlds(backends=("gloo", "ctran", "nccl"), sizes=(2, 3, 4))
every = pytest.mark.worlds(backends=("gloo", "ctran", "nccl"))


def everybody(context):
    return list(range(context.size))


def first_connection(context):
    party, failures = Party(context), Failures()
    comm = party.comm
    with failures.case("before"):
        party.is_of_nobody()
        assert comm.describe()["rank"] == comm.describe()["size"] == -1
        FlightRecorderHook(16, True).register_with_comm(comm)
        NanCheckHook().register_with_comm(comm)
        wrapper = torchcomms._comms._BackendWrapper(comm)
        assert (wrapper.rank(), wrapper.size()) == (0, 1)
        with refused(torchcomms.CommFinalized, "not initialized", "reconfigure"):
            comm.barrier(False)
        with refused(RuntimeError, "not initialized"):
            comm.split([0], "early")
        fired = []
        comm.register_pre_hook(lambda name, op_id, args: fired.append(name)).remove()
    handle = comm.get_init_handle()
    with failures.case("handle"):
        assert handle.startswith(f"{context.backend}:-1:-1:127.0.0.1:{context.spec.store_port}:")
        assert comm.get_init_handle() == handle
        handles = party.handles()
        assert len(set(handles)) == context.size
    ranks = list(reversed(everybody(context)))
    party.uuid = 7
    work = party.reconfigure([handles[rank] for rank in ranks])
    with failures.case("work"):
        assert work.is_completed()
        work.wait()
        work.wait_blocking()
    with failures.case("members"):
        party.works(ranks)
        assert comm.get_init_handle().startswith(f"{context.backend}:{comm.get_rank()}:7:")
        assert comm.get_init_handle() != handle
        assert comm.get_name()
        assert comm.get_options().store is None
    comm.finalize()
    with failures.case("after finalize"):
        with refused(torchcomms.CommFinalized):
            comm.reconfigure(8, handles)
        assert comm.get_init_handle()
    return failures.texts


@every
def test_a_list_connects_its_members_in_its_order(world):
    """Nothing is connected before; the handle is stable until then."""
    check_context(world, first_connection)


def in_a_set(context):
    party = Party(context)
    handles = party.handles()
    party.reconfigure(set(handles), 1).wait()
    order = [handles.index(handle) for handle in sorted(handles, key=lambda h: h.split(":")[-1])]
    party.works(order)
    # Connected members stay in their order.
    party.reconfigure(set(party.handles()), 2).wait()
    party.works(order)
    party.comm.finalize()
    return []


@several
def test_a_set_is_ordered_alike_by_all(world):
    check_context(world, in_a_set)


def changes(context):
    party, n = Party(context), context.size
    everyone = list(range(n))
    failures = Failures()
    for name, groups in {
        "first": [everyone],
        "identical": [everyone],
        "identical again": [everyone],
        "without the last": [everyone[:-1]],
        "late one comes back": [everyone],
        "without the first": [everyone[1:]],
        "another order": [everyone[::-1]],
        "only one": [[0]],
        "all": [everyone],
        "each alone": [[rank] for rank in everyone],
        "all once more": [everyone],
        "half": [everyone[: (n + 1) // 2]],
        "late joiners": [everyone],
        "two halves": [everyone[: n // 2], everyone[n // 2 :]],
        "merged": [everyone],
        "without the middle": [[rank for rank in everyone if rank != n // 2]],
        "one in the middle": [[n // 2]],
        "the end": [everyone],
    }.items():
        with failures.case(name):
            party.form(*groups)
    party.comm.finalize()
    return failures.texts


@several
def test_members_come_and_go(world):
    check_context(world, changes)


def halves_first(context):
    """Two groups that never met before become one."""
    party, n = Party(context), context.size
    party.form(list(range(n // 2)), list(range(n // 2, n)))
    party.form(list(reversed(range(n))))
    party.comm.finalize()
    return []


@several
def test_two_halves_merge(world):
    check_context(world, halves_first)


def other_names(context):
    store = context.store("named")
    comm = torchcomms.new_comm(
        context.backend, context.device, f"member_{context.rank}", enable_reconfigure=True,
        store=torch.distributed.PrefixStore(f"own_{context.rank}", store),
    )  # fmt: skip
    store.set(f"handle_{context.rank}", comm.get_init_handle())
    handles = [store.get(f"handle_{rank}").decode() for rank in range(context.size)]
    comm.reconfigure(1, handles).wait()
    total = torch.ones(1)
    comm.all_reduce(total, ReduceOp.SUM, False)
    assert total.item() == context.size
    comm.finalize()
    return []


@several
def test_members_may_have_other_names_and_prefixes(world):
    check_context(world, other_names)


def wrong_calls(context):
    party, failures = Party(context), Failures()
    comm = party.comm
    ranks = everybody(context)
    party.form(ranks)
    handles = party.handles()
    wrong = torchcomms.InvalidArgument
    own = comm.get_init_handle()
    parts = own.split(":")
    for name, uuid, given, words in [
        ("used uuid", 1, handles, ["uuid 1", "used before"]),
        ("nobody", 2, [], ["not among"]),
        ("without this one", 2, [h for h in handles if h != own], ["not among", own]),
        ("twice", 2, [*handles, own], ["twice", own]),
        ("not one", 2, [*handles, "handle"], ["'handle'"]),
        ("cut", 2, [*handles, own[:-3]], ["not what get_init_handle() returns"]),
        ("of another", 2, [*handles, "nccl" + own], ["not one of backend"]),
        (
            "of a later version",
            2,
            [*handles, ":".join([*parts[:-2], "9", parts[-1]])],
            ["version 9"],
        ),
        ("long", 2, [*handles, context.backend + ":" + "7" * 100_000], ["'" + context.backend]),
    ]:
        with failures.case(name), refused(wrong, "reconfigure", *words):
            comm.reconfigure(uuid, given)
    with failures.case("timeout"), refused(wrong, "timeout"):
        comm.reconfigure(2, handles, timeout=timedelta(0))
    text = "'init_handles' must be list[str] or set[str], not"
    for name, given, options, words in [
        ("text", handles[0], {}, f"{text} str"),
        ("bytes", handles[0].encode(), {}, f"{text} bytes"),
        ("a number", 5, {}, f"{text} int 5"),
        ("none", None, {}, f"{text} NoneType"),
        ("one of a list", [5, *handles], {}, "'init_handles[0]' must be str, not int 5"),
        ("one of a set", {*handles, b"x"}, {}, f"{text} bytes"),
        ("limit", handles, {"timeout": 3}, "'timeout' must be datetime.timedelta, float seconds"),
        ("hints", handles, {"hints": "text"}, "'hints' must be dict[str, str] or None, not str"),
        ("one hint", handles, {"hints": {"key": 1}}, "'hints['key']' must be str"),
    ]:
        with failures.case(name), refused(TypeError, "reconfigure(): argument", words):
            comm.reconfigure(2, given, **options)
    for uuid, words in [("2", "int, not str"), (2.0, "int, not float"), (1 << 63, "64 bits")]:
        with failures.case(uuid), refused(TypeError, "reconfigure(): argument 'uuid'", words):
            comm.reconfigure(uuid, handles)
    with failures.case("nothing has changed"):
        party.works(ranks)
        assert comm.get_init_handle() == own
    party.comm.finalize()
    return failures.texts


@several
def test_a_wrong_call_changes_nothing(world):
    check_context(world, wrong_calls)


def not_reconfigurable(context):
    comm = context.comm
    with refused(torchcomms.Unsupported, "enable_reconfigure=True"):
        comm.reconfigure(1, ["handle"])
    if context.backend == "gloo":
        assert comm.get_init_handle().startswith(f"gloo:{context.rank}:-1:")
    else:
        with refused(torchcomms.Unsupported, "enable_reconfigure=True"):
            comm.get_init_handle()
    return []


@every
def test_a_communicator_must_be_made_for_it(world):
    check_context(world, not_reconfigurable)


def late_message(context):
    """What was sent in one membership is not received in the next one."""
    party = Party(context)
    ranks = everybody(context)
    party.form(ranks)
    old, box = torch.full((2000,), 1.0), torch.zeros(2000)
    last = context.size - 1
    if context.rank == 0:
        party.comm.send(old, last, True)
    party.form(ranks)
    if context.rank == 0:
        party.comm.send(torch.full((2000,), 2.0), last, False)
    elif context.rank == last:
        party.comm.recv(box, 0, False)
        assert bool((box == 2).all()), "an older membership's message came"
    party.comm.finalize()
    return []


@pytest.mark.worlds(backends=("ctran", "gloo", "nccl"), sizes=(2, 3, 4), needs=("early_sends",))
def test_no_message_of_an_older_membership_arrives(world):
    check_context(world, late_message)


def in_flight(context):
    party = Party(context)
    ranks = everybody(context)
    party.form(ranks)
    box = torch.zeros(10)
    peer = (context.rank + 1) % context.size
    work = party.comm.recv(box, peer, True)  # nobody sends
    child = party.comm.split(ranks, "child")
    total = torch.ones(1)
    child.all_reduce(total, ReduceOp.SUM, False)
    assert total.item() == context.size  # on a GPU it is done only then
    of_child = child.recv(torch.zeros(10), peer, True)
    party.form(ranks)
    failures = Failures()
    # The peer may have left its links before this rank did.
    with (
        failures.case("work of the split"),
        refused((torchcomms.StaleGeneration, torchcomms.PeerFailed)),
    ):
        if box.is_cuda:  # where wait() does not block the host
            torch.cuda.synchronize()
        of_child.wait()
    with failures.case("work in flight"), refused((torchcomms.Aborted, torchcomms.PeerFailed)):
        work.wait()
    with (
        failures.case("split"),
        refused(torchcomms.StaleGeneration, "parent communicator was reconfigured"),
    ):
        child.barrier(False)
    with failures.case("new split"):
        again = party.comm.split(ranks, "child")
        again.all_reduce(total, ReduceOp.SUM, False)
        assert total.item() == context.size**2
    party.comm.finalize()
    return failures.texts


@pytest.mark.worlds(backends=("ctran",), sizes=(2, 3, 4))
def test_what_is_in_flight_and_splits_end_with_their_links(world):
    check_context(world, in_flight)


def aborted(context):
    party, failures = Party(context), Failures()
    ranks = everybody(context)
    party.form(ranks)
    calls = []
    party.comm.register_abort_hook(lambda: calls.append(1))
    for turn in (1, 2):
        party.meet(f"nobody is in the operations of {turn - 1} any more")
        if context.rank == 0:
            party.comm.abort()
            assert party.comm.is_aborted()
        with refused((torchcomms.Aborted, torchcomms.PeerFailed)):
            barrier_until_refused(party.comm)
        party.form(ranks)
        with failures.case("hooks, each time", turn):
            assert len(calls) == turn
    party.meet("nobody is in an operation any more")
    party.comm.abort()
    party.comm.finalize()
    return failures.texts


@pytest.mark.worlds(backends=("ctran",))
def test_abort_is_recovered_from(world):
    check_context(world, aborted)


def options_last(context):
    party = Party(context, timeout=timedelta(seconds=33))
    party.form(everybody(context), hints={"gloo::unknown": "1"}, timeout=timedelta(seconds=20))
    assert party.comm.get_options().timeout == timedelta(seconds=33)
    party.form(everybody(context))
    assert party.comm.get_options().timeout == timedelta(seconds=33)
    party.comm.finalize()
    return []


@every
def test_options_survive(world):
    check_context(world, options_last)


def compared_from_then_on(context):
    party, failures = Party(context), Failures()
    comm, odd = party.comm, context.size - 1
    ranks = everybody(context)
    handles = party.handles()
    with failures.case("no bool"), refused(ValueError, "reconfigure", "check_calls", "perhaps"):
        comm.reconfigure(1, handles, hints={"check_calls": "perhaps"})
    party.form(ranks)
    if context.row.kernels:  # which compare what they run anyhow
        comm.finalize()
        return failures.texts
    with failures.case("not yet"):
        assert "compared before they begin" not in str(comm.describe()["notes"])
    party.form(ranks, hints={"check_calls": "true"})
    with failures.case("then"):
        assert "compared before they begin" in str(comm.describe()["notes"])
    op = ReduceOp.MAX if context.rank == odd else ReduceOp.SUM
    with failures.case("reduction"), refused(torchcomms.Mismatch, f"rank {odd} calls"):
        comm.all_reduce(torch.ones(3), op, False)
    party.meet("told")
    party.form(ranks, hints={"check_calls": "false"})
    with failures.case("no more"):
        assert "compared before they begin" not in str(comm.describe()["notes"])
    comm.finalize()
    return failures.texts


@several
def test_calls_are_compared_where_the_hints_of_reconfigure_say_so(world):
    check_context(world, compared_from_then_on)


def held(pid):
    """What a process holds: descriptors, threads, its shared memory."""
    segments = [name for name in os.listdir("/dev/shm") if str(pid) in name]
    return len(os.listdir("/proc/self/fd")), len(busy_threads()), len(segments)


def cycles(context, count):
    party = Party(context)
    ranks = everybody(context)
    seen = []
    for turn in range(count):
        party.form(ranks if turn % 2 else ranks[::-1])
        if turn >= 10:
            seen.append(held(os.getpid()))
    party.comm.finalize()
    low = [min(column) for column in zip(*seen, strict=True)]
    # Threads that end an older membership may still be on their way.
    grown = [(a, b) for a, b in zip(low, seen[-1], strict=True) if b > a + 4]
    print(f"descriptors, threads, segments: {low} at least, {seen[-1]} at the end", flush=True)
    return [f"grew from {low} to {seen[-1]}"] if grown else []


@pytest.mark.worlds(backends=("gloo", "ctran"), sizes=(2,))
def test_forty_reconfigures_hold_no_more_than_ten(world):
    check_context(world, cycles, 40)
