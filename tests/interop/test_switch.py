"""torch's own switch: which groups come here and as what, how they are split, and how they end."""

from __future__ import annotations

import pytest
import torch
import torchcomms
from torch.torch_version import TorchVersion

from tests.harness.ports import free_port
from tests.harness.programs import ranks

pytestmark = pytest.mark.skipif(
    TorchVersion(torch.__version__) < (2, 15), reason="torch before 2.15 has no such switch"
)
SWITCH = {"TORCH_DISTRIBUTED_USE_TORCHCOMMS": "1"}
BEGIN = """
    import sys
    from datetime import timedelta
    import torch, torchcomms
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d
    from torchcomms._comms import _BackendWrapper

    def ours(group, device="cpu"):
        backend = group._get_backend(torch.device(device))
        return backend.get_comm() if isinstance(backend, _BackendWrapper) else None
"""
ROUTES = """
    def begun(name, **more):
        dist.init_process_group(name, world_size=1, rank=0, store=dist.HashStore(), **more)
        return dist.group.WORLD

    for name, backend, kind, devices in (
        ("gloo", "gloo", "gloo", {"cpu", "cuda"}),
        ("GLOO", "gloo", "gloo", {"cpu", "cuda"}),
        ("cpu:Gloo", "gloo", "gloo", {"cpu"}),
        ("CTRAN", "ctran", "custom", {"cpu"}),
        ("cpu:ctran", "ctran", "custom", {"cpu"}),
    ):
        group = begun(name)
        comm = ours(group)
        assert (comm.get_backend(), group.name()) == (backend, kind), name
        assert {device.type for device in group._device_types} == devices, name
        assert all(ours(group, device) is comm for device in devices), name
        assert comm.get_device() == torch.device("cpu")
        dist.destroy_process_group()

    # A bare name with a device: spread over torch's map of devices.
    group = begun("gloo", device_id=torch.device("cpu", 0))
    assert dist.get_backend_config(group).startswith("cpu:gloo,")
    assert ours(group).get_device() == torch.device("cpu", 0)
    dist.destroy_process_group()

    for name in ("gloo", "ctran"):
        group = begun(name, enable_reconfigure=True, timeout=timedelta(seconds=33))
        options = ours(group).get_options()
        assert options.enable_reconfigure and options.timeout == timedelta(seconds=33)
        assert ours(group).get_rank() == -1
        dist.destroy_process_group()

    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    assert ours(dist.group.WORLD) is None
    dist.destroy_process_group()

    for name in ("nccl", "nccl2", "nccl-lazy", "ucc", "mpi"):
        assert c10d._torchcomms_handles_backend(name) == torchcomms.is_backend_built(name), name
    assert c10d._torchcomms_handles_backend("cpu:gloo,cuda:ctran")
    assert not c10d._torchcomms_handles_backend("cpu:gloo,cuda:ucc")
    torchcomms.register_backend("nccl2", torchcomms.TorchCommBackend)
    assert c10d._torchcomms_handles_backend("nccl2")
    print("done")
"""
SPLITS = """
    dist.init_process_group({backend!r})
    rank, world = dist.get_rank(), dist.group.WORLD
    calls = []
    world.register_pre_hook(7, lambda args: calls.append(str(args.name)))
    from torch._C._distributed_c10d import NanCheckHook
    NanCheckHook.attach(world)

    both = dist.split_group(split_ranks=[[1, 0]], timeout=timedelta(seconds=44), group_desc="both")
    comm = ours(both)
    assert comm.get_options().timeout == timedelta(seconds=44)
    assert both._get_backend(torch.device("cpu")).options.group_name == comm.get_name()
    assert c10d._world.comms[-1] is comm
    tensor = torch.tensor([float(rank)])
    dist.broadcast(tensor, group=both, group_src=0)
    assert tensor.item() == 1.0
    first = dist.split_group(split_ranks=[[0]])
    if rank == 0:
        assert ours(first).get_size() == 1
    else:
        assert first == dist.GroupMember.NON_GROUP_MEMBER

    dist.all_reduce(torch.ones(1))
    assert [name.rpartition(".")[2] for name in calls][-1:] == ["ALLREDUCE"], calls
    try:
        dist.all_reduce(torch.tensor([float("nan")]))
        sys.exit("a NaN went through")
    except RuntimeError as error:
        assert "NaN" in str(error), error
    dist.barrier()

    dist.destroy_process_group(both)
    assert comm not in c10d._world.comms
    made = [*c10d._world.comms]
    backends = [world._get_backend(torch.device("cpu"))]
    dist.destroy_process_group()
    for one in (comm, *made):
        try:
            one.finalize()
            sys.exit("it was not finalized")
        except torchcomms.CommFinalized:
            pass
    for backend in backends:  # quiet on what was finalized
        backend.shutdown()
        backend.abort()
    print("done")
"""
ABORTS = """
    dist.init_process_group({backend!r})
    rank, world = dist.get_rank(), dist.group.WORLD
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        c10d._abort_process_group()
        try:
            work.wait()
            sys.exit("the work went well")
        except torchcomms.Aborted:
            pass
    else:
        comm = ours(world)
        try:
            dist.recv(torch.ones(1), 0)
            sys.exit("it received something")
        except RuntimeError as error:
            assert isinstance(error, torchcomms.CommError), error
        c10d._abort_process_group()
        assert comm.is_aborted()
    assert not dist.is_initialized()
    print("done")
"""
HELPER = """
    from torch.testing._internal import common_distributed as helpers
    import os
    assert helpers.TORCHCOMM_HAS_GLOO == torchcomms.is_backend_built("gloo")
    assert helpers.TORCHCOMM_HAS_NCCL == torchcomms.is_backend_built("nccl")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    group = helpers.setup_torchcomms_pg(
        {backend!r}, rank, size, torch.device("cpu"), {path!r}, "helped"
    )
    tensor = torch.tensor([float(rank)])
    group.allreduce([tensor]).wait()
    assert tensor.item() == 1.0
    ours(group).finalize()
    print("done")
"""


def run(body: str, size: int = 2, **values: str) -> None:
    for finished in ranks(BEGIN + body.format(**values), size, free_port(), **SWITCH):
        assert finished.expect_success().out.strip() == "done"


def test_what_is_routed_here():
    for backend in ("gloo", "ctran"):
        if not torchcomms.is_backend_built(backend):
            pytest.skip(f"needs backend {backend}")
    for finished in ranks(BEGIN + ROUTES, 1, free_port(), **SWITCH):
        assert finished.expect_success().out.strip() == "done"


@pytest.fixture(params=["gloo", "ctran"])
def backend(request):
    if not torchcomms.is_backend_built(request.param):
        pytest.skip(f"needs backend {request.param}")
    return request.param


def test_groups_are_split_and_end_quietly(backend):
    run(SPLITS, backend=backend)


def test_an_abort_of_all_groups_ends_what_waits():
    if not torchcomms.is_backend_built("ctran"):
        pytest.skip("needs backend ctran")
    run(ABORTS, backend="ctran")


def test_groups_of_torchs_test_helper_work(backend, tmp_path):
    run(HELPER, backend=backend, path=str(tmp_path / "store"))
