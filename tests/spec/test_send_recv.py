"""What send and recv mean: messages between two ranks pair in order and arrive whole."""

from __future__ import annotations

import pytest
import torch

from tests.harness.cases import (
    MODES,
    check,
    every_move,
    every_shape,
    finish,
    large_moves,
    row_of,
)
from tests.harness.guarded import Guarded
from tests.harness.values import assert_same_bits, sample

pytestmark = pytest.mark.worlds(sizes=(2, 3, 4, 16), needs=("messages",))


def passes_round_the_ring(comm, dtype, shape, async_op):
    """Every rank sends to its right neighbour; even ranks send first when calls block."""
    rank, size = comm.get_rank(), comm.get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    own = Guarded(shape, dtype, sample(rank, dtype, shape))
    got = Guarded(shape, dtype)
    if async_op and "early_sends" not in row_of(comm).lacks:
        works = [comm.send(own.tensor, right, True), comm.recv(got.tensor, left, True)]
        for work in works:
            finish(work, True)
    elif rank % 2 == 0 and not (rank == 0 and size % 2 == 1):
        finish(comm.send(own.tensor, right, async_op), async_op)
        finish(comm.recv(got.tensor, left, async_op), async_op)
    else:
        finish(comm.recv(got.tensor, left, async_op), async_op)
        finish(comm.send(own.tensor, right, async_op), async_op)
    got.check_unchanged(sample(left, dtype, shape))
    own.check_unchanged(sample(rank, dtype, shape))


@pytest.mark.parametrize("mode", MODES)
def test_a_message_arrives_as_it_was_sent(world, mode):
    check(world, every_move, passes_round_the_ring, mode)


def test_a_million_elements_arrive(world):
    check(world, large_moves, passes_round_the_ring)


@pytest.mark.crowd
def test_shapes_do_not_matter(world):
    check(world, every_shape, passes_round_the_ring)


def exchange_numbered(comm, waited_backwards):
    """Rank 0 and the last rank send each other messages of different sizes, all in flight."""
    rank, last = comm.get_rank(), comm.get_size() - 1
    if rank not in (0, last):
        return []
    peer = last - rank
    sent = [torch.full((i % 7 + 1,), float(i + 100 * rank)) for i in range(40)]
    got = [torch.zeros_like(t) for t in sent]
    works = []
    for outgoing, incoming in zip(sent, got, strict=True):
        works += [comm.send(outgoing, peer, True), comm.recv(incoming, peer, True)]
    for work in reversed(works) if waited_backwards else works:
        work.wait()
    return [tensor[0].item() for tensor in got]


@pytest.mark.worlds(needs=("early_sends",))
@pytest.mark.parametrize("waited_backwards", [False, True])
def test_messages_of_a_pair_arrive_in_the_order_sent(world, waited_backwards):
    results = world.run(exchange_numbered, waited_backwards)
    assert results[0] == [float(i + 100 * (world.size - 1)) for i in range(40)]
    assert results[-1] == [float(i) for i in range(40)]


def reuse_after_sync_send(comm):
    """What a finished synchronous send took with it is not changed by the sender's next write."""
    rank = comm.get_rank()
    tensor = torch.zeros(1000)
    received = []
    for i in range(20):
        if rank == 0:
            tensor.fill_(i)
            comm.send(tensor, 1, False)
        elif rank == 1:
            comm.recv(tensor, 0, False)
            received.append((tensor.min().item(), tensor.max().item()))
    return received


def test_the_buffer_of_a_finished_send_may_be_reused(world):
    assert world.run(reuse_after_sync_send)[1] == [(float(i), float(i)) for i in range(20)]


def collective_between_messages(comm):
    """Messages in flight and collectives of one communicator do not disturb each other."""
    rank, size = comm.get_rank(), comm.get_size()
    from torchcomms import ReduceOp

    total, got = torch.tensor([float(rank)]), torch.zeros(3)
    receive = comm.recv(got, (rank - 1) % size, True)
    comm.all_reduce(total, ReduceOp.SUM, False)
    comm.send(torch.full((3,), float(rank)), (rank + 1) % size, True).wait()
    receive.wait()
    return total.item(), got.tolist()


@pytest.mark.worlds(needs=("unordered_messages",))
def test_collectives_pass_messages_that_wait(world):
    total = float(sum(range(world.size)))
    for rank, result in enumerate(world.run(collective_between_messages)):
        assert result == (total, [float((rank - 1) % world.size)] * 3)


def many_to_one(comm):
    """The root receives from the highest rank first: arrival order must not matter."""
    rank, size = comm.get_rank(), comm.get_size()
    if rank:
        comm.send(sample(rank, torch.int32, 100), 0, False)
        return None
    slots = {peer: torch.zeros(100, dtype=torch.int32) for peer in range(size - 1, 0, -1)}
    for peer, slot in slots.items():
        comm.recv(slot, peer, False)
    return slots


def test_a_receive_takes_from_the_rank_it_names(world):
    for peer, slot in world.run(many_to_one)[0].items():
        assert_same_bits(slot, sample(peer, torch.int32, 100))
