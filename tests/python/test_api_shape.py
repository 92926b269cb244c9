"""Names, their homes and their parameters: what programs and annotations import."""

from __future__ import annotations

import inspect

import pytest
import torch
import torchcomms
from torchcomms import _comms

from tests.harness.operations import OPERATIONS, arguments

ALL = ["new_comm", "TorchComm", "ReduceOp", "TorchWork", "Timeout", "BatchP2POptions",
       "BatchSendRecv", "P2POp", "CommOptions", "TorchCommWindow", "register_backend",
       "TorchCommBackend"]  # fmt: skip
COMM_METHODS = {
    *OPERATIONS, "finalize", "get_rank", "get_size", "get_name", "get_device", "get_backend",
    "get_backend_version", "get_options", "get_backend_impl", "unsafe_get_backend", "describe",
    "batch_op_create", "split", "new_window", "window_allocate", "get_init_handle", "reconfigure",
    "abort", "is_abort_supported", "is_aborted", "set_timeout", "set_hints", "register_pre_hook",
    "register_post_hook", "register_abort_hook", "all_gather_p_init", "all_gather_p_exec",
    "all_gather_p_free", "get_mem_allocator", "mem_allocator", "tensor_register",
    "tensor_deregister", "get_device_transport",
}  # fmt: skip
MEMBERS = {
    "TorchWork": {"wait", "is_completed", "wait_blocking", "_set_status"},
    "BatchSendRecv": {"send", "recv", "issue", "ops"},
    "P2POp": {"type", "tensor", "peer"},
    "TorchCommWindow": {
        "tensor_register", "tensor_deregister", "put", "signal", "wait_signal",
        "map_remote_tensor", "get_attr", "get_size", "get_tensor", "get_device", "dtype", "shape",
        "device", "get_device_window", "register_local_buffer", "deregister_local_buffer",
        "get_nvlink_address", "get_multimem_address",
    },
    "TorchCommBackend": set(),
    "RemovableHandle": {"remove"},
}  # fmt: skip


def test_a_star_import_gives_twelve_names_in_order():
    assert list(torchcomms.__all__) == ALL
    given: dict[str, object] = {}
    exec("from torchcomms import *", given)
    assert set(given) - {"__builtins__"} == set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_these_names_live_in_the_package(name):
    assert getattr(torchcomms, name).__module__ == "torchcomms"


@pytest.mark.parametrize(
    "name",
    [
        "RedOpType",
        "WorkStatus",
        "OpName",
        "RemovableHandle",
        "P2POpType",
        "SendOptions",
        "SendPreHookArgs",
    ],
)
def test_other_native_names_live_in_the_native_module(name):
    assert getattr(torchcomms, name).__module__ == "torchcomms._comms"


def test_public_names_of_the_native_module_are_names_of_the_package():
    for name in dir(_comms):
        if not name.startswith("_"):
            assert hasattr(torchcomms, name), name


def test_every_listed_name_has_what_the_contract_lists():
    missing = sorted(COMM_METHODS - set(dir(torchcomms.TorchComm)))
    for kind, members in MEMBERS.items():
        missing += [f"{kind}.{m}" for m in members if not hasattr(getattr(torchcomms, kind), m)]
    assert missing == []


def test_classes_that_the_library_makes_cannot_be_constructed():
    for name in (
        "TorchComm",
        "TorchWork",
        "TorchCommWindow",
        "RemovableHandle",
        "AllReducePreHookArgs",
        "CollectivePostHookArgs",
    ):
        with pytest.raises(TypeError):
            getattr(torchcomms, name)()


@pytest.mark.parametrize("name", OPERATIONS)
def test_parameters_have_their_names_and_their_order(comm, name):
    """All by keyword, then all by position, with hints and timeout at the end."""
    given = arguments(name, 0, 1)
    operation = getattr(comm, name)
    operation(**given, async_op=False, hints=None, timeout=None).wait()
    operation(*given.values(), False, None, None).wait()
    operation(*given.values(), async_op=True, timeout=1.5, hints={"k": "v"}).wait()
    for parameter in given:
        missing = {key: value for key, value in given.items() if key != parameter}
        with pytest.raises(TypeError):
            operation(**missing, async_op=False)


def test_new_comm_has_its_parameters():
    shown = inspect.signature(torchcomms.new_comm)
    assert list(shown.parameters) == [
        "backend",
        "device",
        "name",
        "abort_process_on_timeout_or_error",
        "timeout",
        "is_high_priority_stream",
        "store",
        "enable_reconfigure",
        "hints",
        "options",
    ]
    assert shown.return_annotation is torchcomms.TorchComm
    torchcomms.new_comm(
        backend="fake",
        device=torch.device("cpu"),
        name="n",
        abort_process_on_timeout_or_error=None,
        timeout=None,
        is_high_priority_stream=None,
        store=None,
        enable_reconfigure=False,
        hints=None,
    )


def test_batch_parameters_have_their_names(comm):
    tensor, batch = torch.zeros(1), comm.batch_op_create()
    batch.send(tensor=tensor, dst=0)
    batch.recv(tensor=tensor, src=0)
    batch.issue(async_op=True, options=torchcomms.BatchP2POptions()).wait()
    operation = torchcomms.P2POp(type=torchcomms.P2POpType.SEND, tensor=tensor, peer=0)
    assert operation.peer == 0


def test_split_parameters_have_their_names(comm):
    assert comm.split(ranks=[0], name="n", hints=None, timeout=None).get_size() == 1
    assert comm.split([0], "n", {"k": "v"}, 2.0).get_size() == 1


def test_subclasses_of_the_backend_class_are_the_only_way_to_one():
    assert isinstance(torchcomms.TorchCommBackend(), torchcomms.TorchCommBackend)
    assert issubclass(torchcomms.TorchCommBackend, object)
