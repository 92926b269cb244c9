"""The `fake` backend: rank 0 of 1, everything completes at once, nothing moves."""

from __future__ import annotations

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp

from tests.harness.operations import OPERATIONS, call


@pytest.mark.parametrize("async_op", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_completes_at_once(comm, name, async_op):
    work = call(comm, name, async_op)
    assert work.is_completed()
    work.wait()
    work.wait_blocking()


def test_no_data_moves(comm):
    tensor, output = torch.tensor([3.0]), torch.tensor([7.0])
    comm.all_reduce(tensor, ReduceOp.PREMUL_SUM(5.0), False)
    comm.all_gather_single(output, tensor, False)
    assert (tensor.item(), output.item()) == (3.0, 7.0)


def test_it_is_rank_0_of_1_whatever_the_environment_says():
    from tests.harness.environment import environment

    with environment(TORCHCOMM_RANK="3", TORCHCOMM_SIZE="8"):
        made = torchcomms.new_comm("fake", torch.device("cpu"), "alone")
    assert (made.get_rank(), made.get_size()) == (0, 1)


@pytest.mark.parametrize("device", ["cpu", "meta", "cuda:0", "xpu"])
def test_it_is_at_home_on_every_device(device):
    made = torchcomms.new_comm("fake", torch.device(device), "anywhere")
    assert made.get_device() == torch.device(device)
    made.all_reduce(torch.zeros(3, device="meta"), ReduceOp.SUM, False)


def test_sizes_and_layouts_are_not_checked(comm):
    """For dry runs of programs written for more ranks than there are."""
    comm.all_gather([torch.zeros(2)] * 8, torch.zeros(2), False)
    comm.all_reduce(torch.zeros(4, 4).t(), ReduceOp.SUM, False)
    comm.all_to_all_v_single(torch.zeros(8), torch.zeros(8), [2] * 4, [2] * 4, False)


def test_root_and_peer_are_still_checked(comm):
    for name, parameter in (("send", "dst"), ("recv", "src"), ("broadcast", "root")):
        with pytest.raises(RuntimeError, match=parameter):
            call(comm, name, False, **{parameter: 1})


def test_split_always_gives_a_child(comm):
    for ranks in ([], [0]):
        child = comm.split(ranks, "child")
        assert child.get_backend() == "fake"
        assert (child.get_rank(), child.get_size()) == (0, 1)
        child.barrier(False)


def test_limits_hints_and_registration_are_accepted(comm):
    tensor = torch.zeros(4)
    comm.set_timeout(5.0)
    comm.set_hints({"key": "value"})
    comm.tensor_register(tensor)
    comm.tensor_deregister(tensor)


def test_a_batch_completes(comm):
    batch = comm.batch_op_create()
    batch.send(torch.zeros(1), 0)
    batch.recv(torch.zeros(1), 0)
    assert batch.issue(True).is_completed()


def test_names_need_not_be_unique():
    comms = [torchcomms.new_comm("fake", torch.device("cpu"), "twin") for _ in range(3)]
    assert [c.get_name() for c in comms] == ["twin"] * 3
