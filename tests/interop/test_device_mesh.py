"""Meshes whose dimensions are communicators, and what torch runs on them."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torchcomms
from torchcomms.device_mesh import init_device_mesh

from tests.harness.cases import refused
from tests.harness.environment import environment
from tests.harness.ports import free_port
from tests.harness.programs import ranks

PROGRAM = """
    import torch, torchcomms
    import torch.distributed as dist
    from torchcomms.device_mesh import init_device_mesh, _flatten_with_comm

    world = torchcomms.new_comm("{backend}", torch.device("cpu"), "world")
    rank, size = world.get_rank(), world.get_size()
    {body}
    dist.destroy_process_group()  # finalizes the communicators
    for comm in comms:
        try:
            comm.finalize()
            raise AssertionError("it was not finalized")
        except torchcomms.CommFinalized:
            pass
    print("done")
"""
ONE = """
    comms = [world]
    mesh = init_device_mesh((world,), ("dp",))
    assert mesh.get_group("dp").group_name == "dp"
    assert mesh.get_rank() == rank == dist.get_rank()
    assert dist.get_world_size() == size
    tensor = torch.full((3,), float(rank))
    dist.all_reduce(tensor, group=mesh.get_group("dp"))
    assert tensor.tolist() == [float(sum(range(size)))] * 3
"""
TWO = """
    row, column = rank // 2, rank % 2
    tp = world.split([row * 2, row * 2 + 1], f"tp{row}")
    dp = world.split([column, column + 2], f"dp{column}")
    comms = [tp, dp, world]
    mesh = init_device_mesh((dp, tp), ("dp", "tp"), _global_comm=world)
    assert mesh.mesh.tolist() == [[0, 1], [2, 3]]
    assert mesh.get_rank() == rank
    assert mesh.get_local_rank("dp") == row and mesh.get_local_rank("tp") == column
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor, group=mesh["tp"].get_group())
    assert tensor.item() == 4 * row + 1
    tensor = torch.tensor([float(rank)])
    dist.broadcast(tensor, src=2 + column, group=mesh["dp"].get_group())
    assert tensor.item() == 2 + column

    whole = _flatten_with_comm(mesh, "all", world, [0, 1, 2, 3], mesh._layout)
    assert mesh["all"].size() == whole.size() == 4
    assert mesh["all"].get_group().group_name == "all"
    tensor = torch.tensor([1.0])
    dist.all_reduce(tensor, group=mesh["all"].get_group())
    assert tensor.item() == 4

    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    whole = torch.arange(32.0).reshape(8, 4)
    sharded = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
    assert sharded.to_local().shape == (4, 2)
    assert sharded.full_tensor().equal(whole)
    product = (sharded @ distribute_tensor(torch.eye(4), mesh, [Replicate(), Shard(0)]))
    assert product.full_tensor().equal(whole)
"""


def run(body: str, size: int, backend: str) -> None:
    for finished in ranks(PROGRAM.format(body=body.strip(), backend=backend), size, free_port()):
        assert finished.expect_success().out.strip() == "done"


@pytest.mark.parametrize("backend", ["gloo", "ctran"])
def test_one_dimension_is_the_default_group(backend):
    if not torchcomms.is_backend_built(backend):
        pytest.skip(f"needs backend {backend}")
    run(ONE, 2, backend)


@pytest.mark.parametrize("backend", ["gloo", "ctran"])
def test_two_dimensions_and_a_flattened_one_carry_dtensors(backend):
    if not torchcomms.is_backend_built(backend):
        pytest.skip(f"needs backend {backend}")
    run(TWO, 4, backend)


def test_what_does_not_fit_is_refused():
    comm = torchcomms.new_comm("fake", torch.device("cpu"), "alone")
    with pytest.raises(torchcomms.InvalidArgument, match="1 communicators and 2 names"):
        init_device_mesh((comm,), ("a", "b"))
    with pytest.raises(torchcomms.InvalidArgument, match="at least one"):
        init_device_mesh((), ())
    with pytest.raises(RuntimeError, match="_global_comm"):
        init_device_mesh((comm, comm), ("a", "b"))
    for comms, names, said in (
        (comm, ("a",), ("mesh_dim_comms", "tuple[TorchComm, ...]", "TorchComm")),
        ("cpu", (2,), ("mesh_dim_comms", "tuple[TorchComm, ...]", "str")),
        (("cpu",), ("a",), ("mesh_dim_comms[0]", "TorchComm", "str")),
        ((comm,), None, ("mesh_dim_names", "tuple[str, ...]", "NoneType")),
        ((comm,), "a", ("mesh_dim_names", "tuple[str, ...]", "str")),
        ((comm,), (0,), ("mesh_dim_names[0]", "str", "int")),
    ):
        with refused(TypeError, "init_device_mesh", *said):
            init_device_mesh(comms, names)
    with refused(TypeError, "_global_comm", "TorchComm"):
        init_device_mesh((comm,), ("a",), _global_comm="world")
    with refused(torchcomms.InvalidArgument, "two dimensions", "'a'"):
        init_device_mesh((comm, comm), ("a", "a"), _global_comm=comm)
    other = torchcomms.new_comm("fake", torch.device("meta"), "elsewhere")
    with refused(torchcomms.InvalidArgument, "one type of device", "'elsewhere' on meta"):
        init_device_mesh((comm, other), ("a", "b"), _global_comm=comm)
    with environment(TORCHCOMM_RANK="0", TORCHCOMM_SIZE="1"):
        apart = torchcomms.new_comm("gloo", torch.device("cpu"), "apart", enable_reconfigure=True)
    with refused(torchcomms.InvalidArgument, "'apart' is not connected", "reconfigure()"):
        init_device_mesh((apart,), ("a",))
    for each in (comm, other):
        each.finalize()
    assert not dist.is_initialized()


NO_STORE = """
    comms = [world]
    init_device_mesh((world,), ("dp",))
    for backend in "gloo", "ctran":
        try:
            dist.new_group([0, 1], backend=backend)
            raise AssertionError("where did they meet?")
        except RuntimeError as error:
            assert "'dp'" in str(error) and "store that all ranks share" in str(error), error
"""


def test_a_new_group_that_cannot_meet_says_so():
    if not torchcomms.is_backend_built("ctran"):
        pytest.skip("needs backend ctran")
    run(NO_STORE, 2, "ctran")


BESIDE_A_DEFAULT_GROUP = """
    import torch, torchcomms
    import torch.distributed as dist
    from torchcomms.device_mesh import init_device_mesh

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    world = torchcomms.new_comm("gloo", torch.device("cpu"), "world")
    turned = world.split([2, 1, 0], "turned")
    pair = world.split([0, 1] if rank < 2 else [], "pair")
    other_pair = world.split([1, 2] if rank > 0 else [], "other pair")

    def fits(comm, name):
        try:
            return init_device_mesh((comm,), (name,)).get_local_rank() == comm.get_rank()
        except torchcomms.InvalidArgument as error:
            assert f"rank {comm.get_rank()} of {comm.get_size()}" in str(error)
            assert f"rank {rank} of 3 in the default process group" in str(error)
            return False

    assert fits(world, "all")
    assert rank == 1 or not fits(turned, "turned")
    assert rank == 2 or fits(pair, "some")
    assert rank == 0 or not fits(other_pair, "others")
    dist.barrier()
    print("done")
"""


def test_ranks_are_those_of_a_default_group_that_there_is():
    for finished in ranks(BESIDE_A_DEFAULT_GROUP, 3, free_port()):
        assert finished.expect_success().out.strip() == "done"


def test_a_name_that_a_group_has_is_refused():
    comm = torchcomms.new_comm("fake", torch.device("cpu"), "named")
    init_device_mesh((comm,), ("taken",))
    try:
        with refused(torchcomms.InvalidArgument, "'taken'", "another name"):
            init_device_mesh((comm,), ("taken",))
    finally:
        dist.destroy_process_group()
