"""The registered operators, and the classes that they take."""

from __future__ import annotations

import sys

import torch
import torchcomms
from torchcomms import ReduceOp, Timeout

from tests.harness.cases import refused
from tests.python.compiled.cases import Comm, alone, same


@alone
def tensors_without_memory_are_not_sent(comm, backend):
    from torch._subclasses.fake_tensor import FakeTensorMode

    issued = []
    handle = comm.register_pre_hook(lambda name, op_id, args: issued.append(name))
    meta = torch.empty(4, device="meta")
    assert comm.all_reduce(meta, ReduceOp.SUM, False) is None
    assert comm.all_reduce(meta, ReduceOp.SUM, True).wait() is meta
    assert comm.all_gather([meta], meta, False) is None
    with FakeTensorMode():
        fake = torch.empty(4)
        assert comm.all_reduce(fake, ReduceOp.SUM, False) is None
        comm.all_gather_single(torch.empty(4), fake, True).wait()
        assert comm.barrier(False) is None
        comm.send(fake, 0, True).wait()
    handle.remove()
    assert issued == []


@alone
def the_classes_have_the_metaclass(comm, backend):
    module = sys.modules["torchcomms._opaque_meta"]
    for cls in (ReduceOp, Comm, torchcomms.TorchCommWindow, torchcomms.BatchSendRecv, Timeout):
        assert type(cls) is module.OpaqueBaseMeta, cls
    assert type(torchcomms.TorchWork) is not module.OpaqueBaseMeta
    assert module.OpaqueBaseMeta is torch._custom_class_base.CustomClassBaseMeta
    assert isinstance(comm, Comm)
    assert not isinstance(3, Comm)
    assert Timeout(seconds=2).total_seconds() == 2
    assert Comm.all_reduce.__doc__.count("Raises") == 1
    for wrong in (lambda: Comm(), lambda: torchcomms.TorchCommWindow()):
        with refused(TypeError):
            wrong()


@alone
def operators_have_their_signatures(comm, backend):
    from torchcomms.functional.registry import _REGISTERED_COLLECTIVES, register_collective

    ops = torch.ops.torchcomms
    mutating = {
        "all_reduce": "Tensor(a!)", "reduce": "Tensor(a!)", "broadcast": "Tensor(a!)",
        "recv": "Tensor(a!)", "all_gather": "Tensor(a!)[]", "all_gather_v": "Tensor(a!)[]",
        "all_gather_single": "Tensor(a!)", "reduce_scatter": "Tensor(a!)",
        "reduce_scatter_v": "Tensor(a!)", "reduce_scatter_single": "Tensor(a!)",
        "all_to_all_single": "Tensor(a!)", "all_to_all_v_single": "Tensor(a!)",
        "all_to_all": "Tensor(a!)[]", "scatter": "Tensor(a!)", "gather": "Tensor(a!)[]",
        "gather_single": "Tensor(a!)",
    }  # fmt: skip
    for method, returned_type in mutating.items():
        in_place_op = getattr(ops, f"torchcomm_{method}_").default
        assert str(in_place_op._schema).endswith(f"-> {returned_type}"), in_place_op._schema
        whole = str(getattr(ops, f"torchcomm_{method}").default._schema)
        assert "!" not in whole, whole
        assert (Comm, method) in _REGISTERED_COLLECTIVES
    for name in ("torchcomm_send", "torchcomm_barrier", "torchcommwindow_put",
                 "torchcommwindow_signal", "torchcommwindow_wait_signal"):  # fmt: skip
        assert str(getattr(ops, name).default._schema).endswith("-> Tensor")
        assert not hasattr(ops, f"{name}_")
    assert hasattr(ops, "torchcommwindow_map_remote_tensor")
    assert hasattr(ops, "batchsendrecv_send")
    assert hasattr(ops, "batchsendrecv_recv_")
    for cls, method in ((Comm, "all_reduce"), (Comm, "all_reduced")):
        with refused(ValueError, method):
            register_collective(cls, method, [])


@alone
def waiting_for_tensors_is_the_identity(comm, backend):
    ops = torch.ops.torchcomms
    tensors = [torch.arange(3.0), torch.ones(2, requires_grad=True)]
    assert str(ops.torchcomm_wait_tensors.default._schema).endswith(
        "(Tensor[] tensors) -> Tensor[]"
    )
    new = ops.torchcomm_wait_tensors(tensors)
    same([t.detach() for t in new], [t.detach() for t in tensors])
    assert all(a.data_ptr() != b.data_ptr() for a, b in zip(new, tensors, strict=True))
    (new[1] * 3).sum().backward()
    same(tensors[1].grad, torch.full((2,), 3.0))
    old = ops.torchcomm_wait_tensors_([tensors[0]])
    assert old[0].data_ptr() == tensors[0].data_ptr()


@alone
def operators_pass_torchs_own_checks(comm, backend):
    """Schema, and fake kernels against real ones."""
    x = torch.randn(4, dtype=torch.float64)
    ops = torch.ops.torchcomms
    for op, arguments in (
        (ops.torchcomm_all_reduce.default, (comm, x, ReduceOp.SUM)),
        (ops.torchcomm_all_gather.default, (comm, [torch.empty_like(x)], x)),
        (ops.torchcomm_all_to_all_v_single.default, (comm, x.clone(), x, [4], [4])),
        (ops.torchcomm_wait_tensors.default, ([x],)),
    ):
        torch.library.opcheck(op, arguments, test_utils=("test_schema",))
