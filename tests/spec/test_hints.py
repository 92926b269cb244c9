"""What hints mean: text to text, unknown ones ignored, the nearest one wins."""

from __future__ import annotations

import itertools
import time
from datetime import timedelta

import pytest
import torch
import torchcomms
from torchcomms import BatchP2POptions, CommOptions, ReduceOp

from tests.harness.cases import Failures, assert_alive, check_context, refused
from tests.harness.environment import environment
from tests.harness.operations import OPERATIONS, call, operations_for

anywhere = pytest.mark.worlds(data=False)

BAD_HINTS = ({"key": 1}, {"key": None}, {1: "value"}, {"key": True}, "text", ["key"], 5)


def unknown_per_call(context):
    failures, works = Failures(), []
    for name in operations_for(context):
        with failures.case(name):
            works.append(call(context.comm, name, True, hints={"some::unknown": "value", "": ""}))
    for work in works:
        work.wait()
    return failures.texts


@anywhere
def test_an_unknown_hint_never_fails_an_operation(world):
    check_context(world, unknown_per_call)


def empty_per_call(context):
    failures, works = Failures(), []
    for name, hints in itertools.product(operations_for(context), ({}, None)):
        with failures.case(name, hints):
            works.append(call(context.comm, name, True, hints=hints, timeout=None))
    for work in works:
        work.wait()
    return failures.texts


@anywhere
def test_hints_and_timeout_may_be_empty_or_none(world):
    check_context(world, empty_per_call)


def wrong_types(context):
    """Numbers are never turned into text. Only rank 0 makes the calls."""
    failures = Failures()
    if context.rank == 0:
        for name, hints in itertools.product(OPERATIONS, BAD_HINTS):
            with failures.case(name, hints), refused(TypeError):
                call(context.comm, name, False, hints=hints)
        for hints in BAD_HINTS:
            with failures.case("batch", hints), refused(TypeError):
                BatchP2POptions().hints = hints
            with failures.case("CommOptions", hints), refused(TypeError):
                CommOptions().hints = hints
            with failures.case("split", hints), refused(TypeError):
                context.comm.split([0], "hinted", hints=hints)
            with failures.case("new_comm", hints), refused(TypeError):
                context.new_comm(hints=hints)
        context._comm_count -= len(BAD_HINTS)  # the other ranks did not count these
    if context.row.moves_data:
        assert_alive(context.comm)
    return failures.texts


@anywhere
def test_hints_of_other_types_are_type_errors(world):
    check_context(world, wrong_types)


def at_creation(context):
    hints = {"some::unknown": "value", "another": "1"}
    comm = context.new_comm(hints=hints)
    shown = comm.get_options().hints
    failures = Failures()
    with failures.case("shown"):
        assert {key: shown.get(key) for key in hints} == hints
    with failures.case("copy"):
        shown["later"] = "x"
        assert "later" not in comm.get_options().hints
    if context.row.moves_data:
        assert_alive(comm)
    comm.finalize()
    return failures.texts


@anywhere
def test_creation_hints_are_kept_and_shown(world):
    check_context(world, at_creation)


def bind_address(context):
    """hostname as hint, as variable, and the hint against a variable that cannot work."""
    failures = Failures()
    bad = {"TORCHCOMM_GLOO_HOSTNAME": "no.such.host.invalid"}
    for label, variables, hints in (
        ("hint", {}, {"hostname": "127.0.0.1"}),
        ("interface hint", {}, {"interface": "lo"}),
        ("variable", {"TORCHCOMM_GLOO_HOSTNAME": "127.0.0.1"}, {}),
        ("interface variable", {"TORCHCOMM_GLOO_INTERFACE": "lo"}, {}),
        ("hint over variable", bad, {"hostname": "127.0.0.1"}),
        ("lazy", {}, {"lazy": "true"}),
        ("persistent store", {}, {"persistent_store": "true"}),
    ):
        with failures.case(label), environment(**variables):
            comm = context.new_comm(hints=hints, timeout=timedelta(seconds=30))
            assert_alive(comm)
            got = torch.zeros(1)
            receive = (
                comm.recv(got, (context.rank - 1) % context.size, True)
                if context.size > 1
                else None
            )
            if receive is not None:
                comm.send(torch.ones(1), (context.rank + 1) % context.size, True).wait()
                receive.wait()
            comm.finalize()
    return failures.texts


def no_such_interface(context):
    failures = Failures()
    with failures.case("alone too"), refused(ValueError, "nosuchif0"):
        context.new_comm(hints={"ctran::interface": "nosuchif0"}, timeout=timedelta(seconds=20))
    return failures.texts


@pytest.mark.worlds(backends=("ctran",))
def test_an_interface_that_is_not_there_is_refused_whether_needed_or_not(world):
    check_context(world, no_such_interface)


def one_has_no_such_interface(context, failed):
    failures = Failures()
    key = "ctran::interface" if context.backend == "ctran" else "side_channel_interface"
    hints = {key: "nosuchif0"} if context.rank == failed else {}
    words = () if context.rank == failed else (f"rank {failed} cannot connect",)
    kind = ValueError if context.rank == failed else torchcomms.PeerFailed
    start = time.monotonic()
    with failures.case("new_comm"), refused(kind, "nosuchif0", *words):
        context.new_comm(hints=hints, timeout=timedelta(seconds=60))
    with failures.case("long before the limit"):
        assert time.monotonic() - start < 20
    return failures.texts


@pytest.mark.parametrize("failed", [0, 1])
@pytest.mark.worlds(backends=("gloo", "ctran"), sizes=(2, 4))
def test_the_others_are_told_at_once_why_one_cannot_connect(world, failed):
    check_context(world, one_has_no_such_interface, failed)


@pytest.mark.worlds(backends=("gloo",))
def test_gloo_binds_where_hint_or_variable_say_and_the_hint_wins(world):
    check_context(world, bind_address)


def unusable(context):
    failures = Failures()
    for hints, fragment in (
        ({"hostname": "no.such.host.invalid"}, "no.such.host.invalid"),
        ({"interface": "nosuchif0"}, "nosuchif0"),
        ({"persistent_store": "perhaps"}, "perhaps"),
    ):
        with failures.case(hints), refused(RuntimeError, fragment):
            context.new_comm(hints=hints, timeout=timedelta(seconds=20))
    with (
        failures.case("variable"),
        refused(RuntimeError, "nosuchif1"),
        environment(TORCHCOMM_GLOO_INTERFACE="nosuchif1"),
    ):
        context.new_comm(timeout=timedelta(seconds=20))
    return failures.texts


@pytest.mark.worlds(backends=("gloo",), sizes=(1, 2))
def test_gloo_refuses_an_address_it_cannot_use_naming_it(world):
    check_context(world, unusable)


def unset_values(context):
    """What torch passes for options that nobody set."""
    comm = context.new_comm(hints={
        "persistent_store": "true", "blocking": "-2147483648", "comm_name": "None",
        "is_high_priority_stream": "False", "global_ranks_in_group": "[]", "group_name": "",
        "enable_reconfigure": "False", "split_from": "None"})  # fmt: skip
    tensor = torch.ones(1)
    comm.all_reduce(tensor, ReduceOp.SUM, False)
    comm.finalize()
    return tensor.item()


@anywhere
def test_torchs_values_for_unset_options_are_accepted(world):
    want = float(world.size) if world.backend.moves_data else 1.0
    assert world.run_context(unset_values) == [want] * world.size


def through_set_hints(context):
    failures = Failures()
    if "set_hints" in context.row.optional:
        with failures.case("accepted"):
            context.comm.set_hints({"key": "value"})
    else:
        with failures.case("refused"), refused(RuntimeError, context.backend):
            context.comm.set_hints({"key": "value"})
    with failures.case("types"), refused(TypeError):
        context.comm.set_hints({"key": 1})
    return failures.texts


@anywhere
def test_set_hints_is_accepted_where_supported(world):
    check_context(world, through_set_hints)
