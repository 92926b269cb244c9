"""What a backend that lacks a capability answers: RuntimeError, at once, naming itself."""

from __future__ import annotations

import pytest
import torch
import torchcomms

from tests.harness.cases import Failures, assert_alive, check_context, refused

FRAGMENTS = {
    "get_init_handle": "getInitHandle not implemented",
    "reconfigure": "reconfigure not implemented",
}


def optional_calls(comm):
    tensor = torch.zeros(4)
    return {
        "get_init_handle": lambda: comm.get_init_handle(),
        "reconfigure": lambda: comm.reconfigure(1, ["handle"]),
        "abort": lambda: comm.abort(),
        "set_timeout": lambda: comm.set_timeout(1.0),
        "set_hints": lambda: comm.set_hints({}),
        "get_backend_version": lambda: comm.get_backend_version(),
        "new_window": lambda: comm.new_window(),
        "window_allocate": lambda: comm.window_allocate(1024),
        "all_gather_p_init": lambda: comm.all_gather_p_init(tensor),
        "get_mem_allocator": lambda: comm.get_mem_allocator(),
        "mem_allocator": lambda: comm.mem_allocator,
        "tensor_register": lambda: comm.tensor_register(tensor),
        "tensor_deregister": lambda: comm.tensor_deregister(tensor),
        "get_device_transport": lambda: comm.get_device_transport(),
    }


def ask_for_everything(context):
    failures, fired = Failures(), []
    handle = context.comm.register_pre_hook(lambda name, op_id, args: fired.append(str(name)))
    for name, ask in optional_calls(context.comm).items():
        if name not in context.row.optional:
            fragment = FRAGMENTS.get(name, context.backend)
            with failures.case(name), refused(RuntimeError, fragment):
                ask()
    handle.remove()
    with failures.case("hooks"):
        assert [n for n in fired if not n.endswith(".new_window")] == []
    if context.row.moves_data:
        assert_alive(context.comm)
    return failures.texts


@pytest.mark.worlds(data=False, sizes=(1, 2))
def test_what_a_backend_lacks_is_refused_at_once(world):
    check_context(world, ask_for_everything)


def typed(context):
    """One type to catch, which is also Python's own for this."""
    with refused(torchcomms.Unsupported):
        context.comm.get_device_transport()
    with refused(NotImplementedError):
        context.comm.get_device_transport()
    with refused(torchcomms.CommError):
        context.comm.get_device_transport()
    return []


@pytest.mark.worlds(data=False, sizes=(1,))
def test_the_error_is_unsupported_and_a_not_implemented_error(world):
    check_context(world, typed)


def not_aborted(context):
    import threading

    answers = []
    thread = threading.Thread(target=lambda: answers.append(context.comm.is_aborted()))
    thread.start()
    thread.join()
    assert answers == [False]
    assert context.comm.is_abort_supported() is context.row.aborts
    return []


@pytest.mark.worlds(data=False)
def test_is_aborted_may_be_asked_from_any_thread(world):
    check_context(world, not_aborted)
