"""Hooks: when they fire, in which order, what they see, what their exceptions do."""

from __future__ import annotations

import gc
import itertools
import typing
import weakref
from types import SimpleNamespace

import pytest
import torch
import torchcomms
from torchcomms import OpName, RemovableHandle
from torchcomms.hooks import FlightRecorderHook, NanCheckHook, clog

from tests.harness.cases import Failures, assert_alive, check_context, refused
from tests.harness.operations import COLLECTIVES, OPERATIONS, arguments, call, operations_for

FINALIZE_OP_ID = 2**64 - 1

# The attributes of an operation's pre-hook arguments, and which parameter of the call each shows.
SHOWN = {
    "send": {"tensor": "tensor", "peer": "dst"},
    "recv": {"tensor": "tensor", "peer": "src"},
    "broadcast": {"tensor": "tensor", "root": "root"},
    "all_reduce": {"tensor": "tensor"},
    "reduce": {"tensor": "tensor", "root": "root"},
    "all_gather": {"output": "tensor_list", "input": "tensor"},
    "all_gather_v": {"output": "tensor_list", "input": "tensor"},
    "all_gather_single": {"output": "output", "input": "input"},
    "reduce_scatter": {"output": "output", "input": "input_list"},
    "reduce_scatter_v": {"output": "output", "input": "input_list"},
    "reduce_scatter_single": {"output": "output", "input": "input"},
    "all_to_all_single": {"output": "output", "input": "input"},
    "all_to_all_v_single": {
        "output": "output", "input": "input", "output_split_sizes": "output_split_sizes",
        "input_split_sizes": "input_split_sizes"},
    "all_to_all": {"output": "output_tensor_list", "input": "input_tensor_list"},
    "barrier": {},
    "scatter": {"output": "output_tensor", "input": "input_tensor_list", "root": "root"},
    "gather": {"output": "output_tensor_list", "input": "input_tensor", "root": "root"},
    "gather_single": {"output": "output", "input": "input", "root": "root"},
}  # fmt: skip
CLASSES = {name: "".join(part.capitalize() for part in name.split("_")) for name in OPERATIONS}
OTHER_PRE = (
    "SplitPreHookArgs",
    "BatchOpIssuePreHookArgs",
    "NewWindowPreHookArgs",
    "FinalizePreHookArgs",
)
OTHER_POST = (
    "CollectivePostHookArgs",
    "SplitPostHookArgs",
    "NewWindowPostHookArgs",
    "BatchOpIssuePostHookArgs",
    "FinalizePostHookArgs",
)


def record(comm):
    """Records of everything that fires from now on, and a function that ends it."""
    records: list[SimpleNamespace] = []
    handles = [
        comm.register_pre_hook(
            lambda name, op_id, args: records.append(
                SimpleNamespace(when="pre", name=name, op_id=op_id, args=args)
            )
        ),
        comm.register_post_hook(
            lambda op_id, args: records.append(SimpleNamespace(when="post", op_id=op_id, args=args))
        ),
    ]
    return records, lambda: [handle.remove() for handle in handles]


def same(seen, given):
    """Whether a hook's attribute shows the very argument: tensors by their memory."""
    if isinstance(given, torch.Tensor):
        return seen.data_ptr() == given.data_ptr() and seen.shape == given.shape
    if isinstance(given, list):
        return len(seen) == len(given) and all(map(same, seen, given))
    return seen == given


def attributes(args):
    return {name for name in dir(args) if not name.startswith("_")}


def every_operation(context):
    comm, failures, messages = context.comm, Failures(), []
    for name, async_op in itertools.product(operations_for(context), (True, False)):
        if name in ("send", "recv") and not async_op and context.size > 1:
            continue
        given = arguments(name, context.rank, context.size, lambda _s, shape: torch.ones(shape))
        records, stop = record(comm)
        with failures.case(name, "async" if async_op else "sync"):
            work = getattr(comm, name)(*given.values(), async_op)
            stop()
            if name in ("send", "recv"):
                messages.append(work)  # a message ends when its partner is there
            else:
                work.wait()
            pre, post = records
            assert (pre.when, post.when) == ("pre", "post")
            assert pre.name == getattr(OpName, name)
            assert type(pre.args).__name__ == f"{CLASSES[name]}PreHookArgs"
            assert attributes(pre.args) == {*SHOWN[name], "async_op"}
            for attribute, parameter in SHOWN[name].items():
                assert same(getattr(pre.args, attribute), given[parameter]), attribute
            assert pre.args.async_op is async_op
            assert pre.op_id == post.op_id
            assert type(post.args).__name__ == "CollectivePostHookArgs"
            assert attributes(post.args) == set()
        with failures.case(name, "read-only"), refused(AttributeError):
            records[0].args.async_op = True
    for work in messages:
        work.wait()
    return failures.texts


@pytest.mark.worlds(data=False, sizes=(1, 2))
def test_every_operation_shows_its_arguments_before_and_fires_after(world):
    check_context(world, every_operation)


def test_every_argument_class_is_importable():
    for name in OPERATIONS:
        assert isinstance(getattr(torchcomms, f"{CLASSES[name]}PreHookArgs"), type)
        post = getattr(torchcomms, f"{CLASSES[name]}PostHookArgs")
        assert issubclass(post, torchcomms.CollectivePostHookArgs)
    for name in (*OTHER_PRE, *OTHER_POST):
        assert isinstance(getattr(torchcomms, name), type)


@pytest.mark.parametrize("when", ["Pre", "Post"])
def test_the_unions_hold_every_argument_class(when):
    union = set(typing.get_args(getattr(torchcomms, f"{when}HookArgs")))
    others = OTHER_PRE if when == "Pre" else OTHER_POST
    names = [f"{CLASSES[name]}{when}HookArgs" for name in OPERATIONS] + list(others)
    assert {getattr(torchcomms, name) for name in names} <= union


def test_batch_split_and_finalize_show_theirs(comm):
    records, _ = record(comm)
    batch = comm.batch_op_create()
    batch.send(torch.zeros(1), 0)
    batch.recv(torch.zeros(1), 0)
    assert records == [], "filling a batch fires nothing"
    batch.issue(True)
    comm.split([0], "hooked")
    comm.finalize()
    names = [str(r.name).rsplit(".")[-1] for r in records if r.when == "pre"]
    assert names == ["batch_op_issue", "split", "finalize"]
    issue, issued, split, splitted, end, ended = records
    assert (issue.args.num_ops, issue.args.async_op) == (2, True)
    assert attributes(issue.args) == {"num_ops", "async_op"}
    assert (list(split.args.ranks), split.args.name) == ([0], "hooked")
    assert attributes(split.args) == {"ranks", "name"}
    assert attributes(end.args) == set()
    for post, name in ((issued, "BatchOpIssue"), (splitted, "Split"), (ended, "Finalize")):
        assert type(post.args).__name__ == f"{name}PostHookArgs"
        assert attributes(post.args) == set()
    assert issue.op_id == issued.op_id
    assert split.op_id == splitted.op_id == issue.op_id + 1
    assert end.op_id == ended.op_id == FINALIZE_OP_ID


def test_finalize_takes_no_operation_id(comm):
    records, _ = record(comm)
    comm.barrier(False)
    other = torchcomms.new_comm("fake", torch.device("cpu"), "ends_between")
    other.finalize()
    comm.barrier(False)
    ids = [r.op_id for r in records if r.when == "pre"]
    assert ids[1] == ids[0] + 1


def test_ids_grow_over_all_communicators_of_the_process(comm):
    other = torchcomms.new_comm("fake", torch.device("cpu"), "other")
    ids = []
    for each in (comm, other):
        each.register_pre_hook(lambda name, op_id, args: ids.append(op_id))
    for each in (comm, other, other, comm):
        each.barrier(False)
    assert ids == list(range(ids[0], ids[0] + 4))


def test_several_hooks_fire_in_the_order_of_their_registration(comm):
    order = []
    for i in range(5):
        comm.register_pre_hook(lambda name, op_id, args, i=i: order.append(("pre", i)))
        comm.register_post_hook(lambda op_id, args, i=i: order.append(("post", i)))
    comm.barrier(False)
    assert order == [("pre", i) for i in range(5)] + [("post", i) for i in range(5)]


def test_a_removed_hook_is_silent_and_removing_again_is_harmless(comm):
    fired = []
    handle = comm.register_pre_hook(lambda name, op_id, args: fired.append(1))
    assert isinstance(handle, RemovableHandle)
    comm.barrier(False)
    handle.remove()
    handle.remove()
    comm.barrier(False)
    assert fired == [1]


def test_dropping_the_handle_leaves_the_hook(comm):
    fired = []
    handle = comm.register_pre_hook(lambda name, op_id, args: fired.append(1))
    del handle
    gc.collect()
    comm.barrier(False)
    assert fired == [1]


def test_a_handle_may_be_removed_after_its_communicator_is_gone():
    made = torchcomms.new_comm("fake", torch.device("cpu"), "short_lived")
    handles = [
        made.register_pre_hook(lambda name, op_id, args: None),
        made.register_post_hook(lambda op_id, args: None),
        made.register_abort_hook(lambda: None),
    ]
    made.finalize()
    del made
    gc.collect()
    for handle in handles:
        handle.remove()
        handle.remove()


def test_a_hook_may_remove_itself_and_add_others_while_it_runs(comm):
    fired = []

    def once(name, op_id, args):
        fired.append("once")
        handle.remove()
        comm.register_pre_hook(lambda name, op_id, args: fired.append("added"))

    handle = comm.register_pre_hook(once)
    comm.barrier(False)
    before = fired.count("added")
    comm.barrier(False)
    assert fired.count("once") == 1
    assert fired.count("added") == before + 1


@pytest.mark.parametrize(
    "register", ["register_pre_hook", "register_post_hook", "register_abort_hook"]
)
@pytest.mark.parametrize("callback", [None, 5, "text", [print]], ids=repr)
def test_what_cannot_be_called_is_a_type_error_at_registration(comm, register, callback):
    with refused(TypeError, register, "callback", "callable", type(callback).__name__):
        getattr(comm, register)(callback)


@pytest.mark.parametrize("wrong", [None, 5, "world"], ids=repr)
def test_observers_say_that_they_need_a_communicator(wrong, tmp_path):
    for hook in (FlightRecorderHook(), NanCheckHook(), clog(str(tmp_path / "log"), events=[])):
        with refused(TypeError, "register_with_comm", "comm", "torchcomms.TorchComm"):
            hook.register_with_comm(wrong)


def test_a_wrong_number_of_parameters_is_a_type_error_of_the_operation(comm):
    handle = comm.register_pre_hook(lambda name: None)
    with pytest.raises(TypeError):
        comm.barrier(False)
    handle.remove()
    handle = comm.register_post_hook(lambda: None)
    with pytest.raises(TypeError):
        comm.barrier(False)
    handle.remove()
    comm.barrier(False)


class Refusal(Exception):
    pass


def veto_everything(context):
    """Pre-hooks stop rank 0's operations; nothing reaches the others, so all go on together."""
    comm, failures, fired = context.comm, Failures(), []
    if context.rank == 0:

        def refuse(name, op_id, args):
            raise Refusal(str(name))

        handles = [
            comm.register_pre_hook(refuse),
            comm.register_pre_hook(lambda name, op_id, args: fired.append("later pre")),
            comm.register_post_hook(lambda op_id, args: fired.append("post")),
        ]
        for name, async_op in itertools.product(operations_for(context), (False, True)):
            with failures.case(name), refused(Refusal, name):
                call(comm, name, async_op)
        batch = comm.batch_op_create()
        batch.send(torch.zeros(1), (context.rank + 1) % context.size)
        if context.size > 1:
            with failures.case("batch"), refused(Refusal, "batch_op_issue"):
                batch.issue(False)
        with failures.case("split"), refused(Refusal, "split"):
            comm.split([0], "never")
        for handle in handles:
            handle.remove()
        with failures.case("skipped"):
            assert fired == []
    assert_alive(comm)
    return failures.texts


@pytest.mark.worlds(sizes=(1, 2, 3))
def test_a_raising_pre_hook_stops_the_operation_before_anything_is_sent(world):
    check_context(world, veto_everything)


def regret(context):
    """The post-hook's exception comes too late to stop anything: the data has changed."""
    comm, fired = context.comm, []

    def complain(op_id, args):
        raise Refusal("too late")

    handles = [
        comm.register_post_hook(complain),
        comm.register_post_hook(lambda op_id, args: fired.append("later")),
    ]
    tensor = torch.ones(2)
    with refused(Refusal, "too late"):
        comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, False)
    for handle in handles:
        handle.remove()
    assert tensor.tolist() == [float(context.size)] * 2
    assert fired == []
    assert_alive(comm)
    return []


def test_a_raising_post_hook_comes_after_the_operation(world):
    check_context(world, regret)


def failing_checks(context):
    """A failing range check fires no hook; a failing backend check fires no post-hook."""
    comm, failures = context.comm, Failures()
    if context.rank == 0:
        records, stop = record(comm)
        for name in ("broadcast", "reduce", "scatter", "gather", "gather_single"):
            with failures.case(name), refused(RuntimeError, "root"):
                call(comm, name, False, root=context.size)
        with failures.case("nothing fired"):
            assert records == []
        for name in COLLECTIVES:
            if name != "barrier":
                with failures.case(name), refused(RuntimeError):
                    call(comm, name, False, lambda _s, shape: torch.zeros(shape, device="meta"))
        stop()
        with failures.case("no post-hook"):
            assert [r for r in records if r.when == "post"] == []
    assert_alive(comm)
    return failures.texts


@pytest.mark.worlds(sizes=(1, 2))
def test_a_refused_call_fires_no_post_hook_and_a_wrong_root_none_at_all(world):
    check_context(world, failing_checks)


def test_a_hook_may_communicate_on_another_communicator(comm):
    other = torchcomms.new_comm("fake", torch.device("cpu"), "other")
    done = []
    comm.register_pre_hook(lambda name, op_id, args: done.append(other.barrier(False)))
    comm.barrier(False)
    assert len(done) == 1


def test_hooks_of_a_communicator_see_only_its_operations(comm):
    records, _ = record(comm)
    other = torchcomms.new_comm("fake", torch.device("cpu"), "other")
    other.barrier(False)
    child = comm.split([0], "child")
    records.clear()
    child.barrier(False)
    assert records == [], "hooks are not inherited"


def test_a_hook_keeps_what_it_saw(comm):
    """The arguments outlive the call: a hook may store them."""
    seen = []
    comm.register_pre_hook(lambda name, op_id, args: seen.append(args))
    call(comm, "all_gather", False, lambda _s, shape: torch.full(shape, 7.0))
    gc.collect()
    assert seen[0].input.tolist() == [[7.0] * 3] * 2
    assert seen[0].output[0].shape == (2, 3)


def test_properties_and_registration_have_no_hooks(comm):
    records, _ = record(comm)
    comm.get_rank(), comm.get_size(), comm.get_name(), comm.get_options(), comm.is_aborted()
    comm.tensor_register(torch.zeros(1))
    comm.set_timeout(5.0)
    comm.register_abort_hook(lambda: None).remove()
    assert records == []


def test_hooks_end_with_their_communicator():
    made = torchcomms.new_comm("fake", torch.device("cpu"), "watched")
    marker = Marker()
    watch = weakref.ref(marker)
    made.register_pre_hook(lambda name, op_id, args, marker=marker: None)
    made.finalize()
    del made, marker
    gc.collect()
    assert watch() is None, "the hook lives on without its communicator"


class Marker:
    pass
