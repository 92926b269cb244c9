"""register_mem_pool of a process group's backend, as programs call it that have pools of NCCL's."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torchcomms
from torchcomms import ReduceOp
from torchcomms._comms import _BackendWrapper

from tests.harness.cases import Failures, assert_alive, check_context, refused

pytestmark = pytest.mark.worlds(device="cpu")


class Pool:
    """Says what torch.cuda.MemPool says, of memory of the host."""

    def __init__(self, *tensors, device="cpu"):
        self.id, self.tensors, self.device = (0, 7), list(tensors), torch.device(device)

    def snapshot(self):
        device = self.device if self.device.type == "cpu" else self.device.index
        return [
            {"device": device, "address": tensor.data_ptr(), "total_size": tensor.nbytes}
            for tensor in self.tensors
        ]


def backend_of(comm):
    """What a program gets that asks its process group for the backend."""
    group = dist.ProcessGroup(dist.HashStore(), comm.get_rank(), comm.get_size())
    custom = dist.ProcessGroup.BackendType.CUSTOM
    group._register_backend(torch.device("cpu"), custom, _BackendWrapper(comm))
    group._set_default_backend(custom)
    return group._get_backend(torch.device("cpu"))


def registered_bytes(comm):
    return comm.describe()["memory"].get("registered tensors", 0)


def pools(context):
    comm, failures = context.comm, Failures()
    backend, before = backend_of(comm), registered_bytes(comm)
    first, second = torch.ones(100), torch.ones(50)
    pool = Pool(first)
    backend.register_mem_pool(pool)
    with failures.case("registered"):
        assert registered_bytes(comm) - before == 400
    pool.tensors.append(second)
    backend.register_mem_pool(pool)
    with failures.case("what has come since"):
        assert registered_bytes(comm) - before == 600
    pool.tensors.remove(first)
    backend.register_mem_pool(pool)
    with failures.case("what has gone since"):
        assert registered_bytes(comm) - before == 200
    comm.all_reduce(second, ReduceOp.SUM, False)
    backend.deregister_mem_pool(pool)
    with failures.case("deregistered"):
        assert registered_bytes(comm) == before
    backend.deregister_mem_pool(pool)
    with failures.case("symmetric"), refused(torchcomms.Unsupported, "symm", "new_window()"):
        backend.register_mem_pool(pool, symm=True)
    assert_alive(comm)
    return failures.texts


@pytest.mark.worlds(backends=("nccl", "ncclx", "ctran"))
def test_the_memory_of_a_pool_is_registered(world):
    check_context(world, pools)


def harmless(context):
    """Of memory of GPUs, and where the backend registers none."""
    comm, failures = context.comm, Failures()
    backend, before = backend_of(comm), registered_bytes(comm)
    memory = torch.ones(100)
    for pool in (Pool(), Pool(memory), Pool(memory, device="cuda:0")):
        with failures.case(pool.device):
            backend.register_mem_pool(pool)
            backend.deregister_mem_pool(pool)
            assert registered_bytes(comm) == before
    assert_alive(comm)
    return failures.texts


@pytest.mark.worlds(backends=("gloo", "ctran"))
def test_pools_are_harmless_on_the_cpu(world):
    check_context(world, harmless)


def finalized(context):
    child = context.comm.split(list(range(context.size)), "finalized")
    backend, pool = backend_of(child), Pool(torch.ones(10))
    backend.register_mem_pool(pool)
    child.finalize()
    backend.deregister_mem_pool(pool)
    with refused(TypeError, "register_mem_pool()", "'pool'", "torch.cuda.MemPool", "str"):
        backend.register_mem_pool("pool")
    with refused(TypeError, "deregister_mem_pool()", "'pool'"):
        backend.deregister_mem_pool(None)
    return []


@pytest.mark.worlds(backends=("nccl", "ctran"))
def test_finalize_ends_the_registration_of_pools(world):
    check_context(world, finalized)
