"""What new_comm means: every rank calls it, and gets its place among the others."""

from __future__ import annotations

import pytest
import torch
import torchcomms

from tests.harness.cases import Failures, assert_alive, check_context, refused

pytestmark = pytest.mark.worlds(data=False)


def positions(context):
    comm = torchcomms.new_comm(
        context.backend,
        context.device,
        "by_position",
        None,
        None,
        None,
        context.store("by_position"),
        False,
        None,
    )
    answer = comm.get_rank(), comm.get_size(), comm.get_name()
    comm.finalize()
    return answer


def test_all_parameters_may_be_positional(world):
    want = [(rank, world.size, "by_position") for rank in range(world.size)]
    assert world.run_context(positions) == want


def keywords(context):
    comm = torchcomms.new_comm(
        backend=context.backend,
        device=context.device,
        name="by_keyword",
        abort_process_on_timeout_or_error=False,
        timeout=30.0,
        is_high_priority_stream=True,
        store=context.store("by_keyword"),
        enable_reconfigure=False,
        hints={},
    )
    answer = comm.get_rank(), comm.get_size(), comm.get_name()
    comm.finalize()
    return answer


def test_all_parameters_may_be_keywords(world):
    want = [(rank, world.size, "by_keyword") for rank in range(world.size)]
    assert world.run_context(keywords) == want


# Each error names the argument, the types that are allowed, and what came.
WRONG_VALUES = (
    ("timeout", 30, "datetime.timedelta, float seconds or None, not int 30"),
    ("timeout", "30", "datetime.timedelta, float seconds or None, not str"),
    ("store", "127.0.0.1:29500", "torch.distributed.Store or None, not str"),
    ("abort_process_on_timeout_or_error", "maybe", "bool or None, not str"),
)


def wrong_arguments(context):
    """Refused on the rank that asks, at once: the others do not call."""
    failures, backend, device = Failures(), context.backend, context.device
    cases = {
        "text device": ((backend, "cpu", "n"), {}),
        "no device": ((backend,), {}),
        "no arguments": ((), {}),
        "device None": ((backend, None, "n"), {}),
        "backend None": ((None, device, "n"), {}),
        "name 5": ((backend, device, 5), {}),
        "name bytes": ((backend, device, b"n"), {}),
        "name 5 by keyword": ((backend, device), {"name": 5}),
        "unknown keyword": ((backend, device, "n"), {"ranks": 2}),
        "int timeout": ((backend, device, "n"), {"timeout": 30}),
        "text timeout": ((backend, device, "n"), {"timeout": "30"}),
        "store": ((backend, device, "n"), {"store": "127.0.0.1:29500"}),
        "hints": ((backend, device, "n"), {"hints": {"key": 1}}),
        "abort text": ((backend, device, "n"), {"abort_process_on_timeout_or_error": "maybe"}),
        "options": ((backend, device, "n"), {"options": {"timeout": 3.0}}),
        "name twice": ((backend, device, "n"), {"name": "m"}),
    }
    if context.rank == 0:
        for label, (positional, keyword) in cases.items():
            with failures.case(label), refused(TypeError):
                torchcomms.new_comm(*positional, **keyword)
        for argument, value, sentence in WRONG_VALUES:
            text = f"new_comm(): argument '{argument}' must be {sentence}"
            with failures.case(argument, value), refused(TypeError, text):
                torchcomms.new_comm(backend, device, "n", **{argument: value})
    return failures.texts


def test_wrong_types_are_type_errors_before_anything_is_connected(world):
    check_context(world, wrong_arguments)


def unknown_backend(context):
    failures = Failures()
    for kind in (ModuleNotFoundError, RuntimeError, torchcomms.BackendUnavailable):
        with failures.case(kind), refused(kind, "failed to find backend", "no_such_backend"):
            torchcomms.new_comm("no_such_backend", context.device, "unknown")
    with failures.case("what there is"), refused(ModuleNotFoundError, *torchcomms.built_backends()):
        torchcomms.new_comm("no_such_backend", context.device, "unknown")
    return failures.texts


def test_an_unknown_backend_is_a_module_not_found_error_that_lists_the_known_ones(world):
    check_context(world, unknown_backend)


def wrong_device(context):
    with refused(RuntimeError, "gloo", "meta"):
        torchcomms.new_comm("gloo", torch.device("meta"), "on_meta", store=context.store("on_meta"))
    return []


@pytest.mark.worlds(backends=("gloo",), sizes=(1, 2))
def test_a_device_that_the_backend_does_not_serve_is_refused(world):
    check_context(world, wrong_device)


def indexed_device(context):
    comm = context.new_comm()
    device = comm.get_device()
    comm.finalize()
    comm = torchcomms.new_comm(
        context.backend, torch.device("cpu", 0), "indexed", store=context.store("indexed")
    )
    assert comm.get_device() in (torch.device("cpu"), torch.device("cpu", 0))
    if context.row.moves_data:
        assert_alive(comm)
    comm.finalize()
    return str(device)


@pytest.mark.worlds(device="cpu")
def test_the_cpu_may_have_an_index(world):
    assert world.run_context(indexed_device) == ["cpu"] * world.size


def unindexed_device(context):
    count = torch.cuda.device_count()
    torch.cuda.set_device((context.rank + 1) % count)
    comm = torchcomms.new_comm(
        context.backend, torch.device("cuda"), "unindexed", store=context.store("unindexed")
    )
    want = torch.device("cuda", context.rank % count)
    assert (comm.get_device(), torch.cuda.current_device()) == (want, want.index)
    assert_alive(comm)
    comm.finalize()
    return []


@pytest.mark.worlds(device="cuda")
def test_a_device_without_index_is_the_ranks_and_becomes_the_current_one(world):
    check_context(world, unindexed_device)


def odd_names(context):
    failures = Failures()
    for name in ("0", "a/b", "with space", "ünïcödé", "x" * 1000, "a" * 40, "%s{}", "../up"):
        with failures.case(repr(name[:20])):
            comm = context.new_comm(name)
            assert comm.get_name() == name
            if context.row.moves_data:
                assert_alive(comm)
            comm.finalize()
    return failures.texts


def test_names_are_any_text(world):
    check_context(world, odd_names)


def too_long(context):
    """Refused before anything is sent: one rank alone learns it at once."""
    failures = Failures()
    longest = "n" * 1024
    if context.rank == 0:
        for name in (longest + "n", "\u00fc" * 513, "n" * 100_000):
            size = len(name.encode())
            with (
                failures.case(size),
                refused(torchcomms.InvalidArgument, "new_comm", f"{size} bytes", "1024"),
            ):
                torchcomms.new_comm(
                    context.backend, context.device, name, store=context.store("too_long")
                )
    comm = context.new_comm(longest)
    if context.row.moves_data:
        assert_alive(comm)
    with refused(torchcomms.InvalidArgument, "split", "1025 bytes", "1024"):
        comm.split([comm.get_rank()], longest + "n")
    comm.finalize()
    return failures.texts


def test_a_name_that_is_too_long_is_refused_before_anything_is_sent(world):
    check_context(world, too_long)


def unnamed(context):
    """The counter is the process's: ranks that create in the same order agree."""
    names = []
    for i in range(3):
        comm = torchcomms.new_comm(
            context.backend, context.device, store=context.store(f"unnamed_{i}")
        )
        names.append(comm.get_name())
        if context.row.moves_data:
            assert_alive(comm)
        comm.finalize()
    return names


def test_a_name_left_out_is_generated_and_equal_on_all_ranks(world):
    first, *others = world.run_context(unnamed)
    assert len(set(first)) == 3
    assert all(first)
    assert all(names == first for names in others)
