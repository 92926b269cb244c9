"""What a batch means: its sends and receives run as one group, in the order of each pair."""

from __future__ import annotations

import gc
import weakref
from datetime import timedelta

import pytest
import torch
from torchcomms import BatchP2POptions, P2POp, P2POpType, SendOptions

from tests.harness.cases import MODES, check, every_move, every_shape, finish, large_moves, refused
from tests.harness.guarded import Guarded
from tests.harness.values import sample

pytestmark = pytest.mark.worlds(needs=("messages",))
several = pytest.mark.worlds(sizes=(2, 3, 4))


def exchanges_with_everyone(comm, dtype, shape, async_op):
    """Receives are added first: in a batch that cannot deadlock."""
    rank, size = comm.get_rank(), comm.get_size()
    peers = [p for p in range(size) if p != rank]
    sent = {p: Guarded(shape, dtype, sample(rank, dtype, shape, salt=p)) for p in peers}
    got = {p: Guarded(shape, dtype) for p in peers}
    batch = comm.batch_op_create()
    for p in peers:
        assert batch.recv(got[p].tensor, p) is None
    for p in peers:
        assert batch.send(sent[p].tensor, p) is None
    finish(batch.issue(async_op), async_op)
    for p in peers:
        got[p].check_unchanged(sample(p, dtype, shape, salt=rank))
        sent[p].check_unchanged(sample(rank, dtype, shape, salt=p))


@several
@pytest.mark.parametrize("mode", MODES)
def test_everyone_exchanges_with_everyone(world, mode):
    check(world, every_move, exchanges_with_everyone, mode)


@several
def test_a_million_elements_are_exchanged(world):
    check(world, large_moves, exchanges_with_everyone)


@several
def test_shapes_do_not_matter(world):
    check(world, every_shape, exchanges_with_everyone)


def several_to_one_peer(comm, times):
    """Issuing does not clear the list: a second issue repeats the exchange with new content."""
    rank, size = comm.get_rank(), comm.get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    sent = [torch.zeros(1) for _ in range(4)]
    got = [torch.zeros(1) for _ in range(4)]
    batch = comm.batch_op_create()
    for outgoing, incoming in zip(sent, got, strict=True):
        batch.send(outgoing, right)
        batch.recv(incoming, left)
    seen = []
    for turn in range(times):
        for i, outgoing in enumerate(sent):
            outgoing.fill_(100 * turn + 10 * i + rank)
        batch.issue(False)
        seen.append([tensor.item() for tensor in got])
    return seen


@several
def test_operations_with_one_peer_match_in_order_and_a_batch_can_be_issued_again(world):
    for rank, seen in enumerate(world.run(several_to_one_peer, 3)):
        left = (rank - 1) % world.size
        assert seen == [[100.0 * turn + 10 * i + left for i in range(4)] for turn in range(3)]


def ops_of_a_batch(comm):
    batch = comm.batch_op_create()
    tensor = torch.ones(2)
    batch.send(tensor, 1)
    batch.recv(tensor, 0)
    first, second = batch.ops
    described = [
        (op.type, op.peer, op.tensor.data_ptr() == tensor.data_ptr()) for op in (first, second)
    ]
    batch.ops.append(first)  # a fresh list each time: the batch does not grow
    length = len(batch.ops)
    batch.ops = [P2POp(P2POpType.RECV, tensor, 1)]
    replaced = [(op.type, op.peer) for op in batch.ops]
    first.peer, first.type = 3, P2POpType.RECV
    return [(str(t), p, same) for t, p, same in described], length, str(replaced), first.peer


@pytest.mark.worlds(sizes=(2,))
def test_ops_lists_the_batch_and_assigning_replaces_it(world):
    for described, length, replaced, peer in world.run(ops_of_a_batch):
        assert [text.rsplit(".")[-1] for text, _, _ in described] == ["SEND", "RECV"]
        assert [(p, same) for _, p, same in described] == [(1, True), (0, True)]
        assert length == 2
        assert "RECV" in replaced
        assert "SEND" not in replaced
        assert peer == 3


def batch_from_assigned_ops(comm):
    rank = comm.get_rank()
    sent, got = torch.full((3,), float(rank)), torch.zeros(3)
    batch = comm.batch_op_create()
    batch.ops = [P2POp(P2POpType.RECV, got, 1 - rank), P2POp(P2POpType.SEND, sent, 1 - rank)]
    options = BatchP2POptions()
    options.timeout = timedelta(seconds=20)
    options.hints = {"unknown::key": "ignored"}
    batch.issue(True, options).wait()
    batch.issue(async_op=False, options=options)
    batch.issue(True, None).wait()
    batch.issue(False, options=None)
    return got.tolist()


@pytest.mark.worlds(sizes=(2,))
def test_assigned_operations_are_issued_and_options_are_accepted(world):
    assert world.run(batch_from_assigned_ops) == [[1.0] * 3, [0.0] * 3]


def batch_outlives_comm_variable(context):
    comm = context.new_comm()
    alive = weakref.ref(comm)
    batch = comm.batch_op_create()
    rank = context.rank
    got = torch.zeros(2)
    batch.send(torch.full((2,), float(rank)), 1 - rank)
    batch.recv(got, 1 - rank)
    del comm
    gc.collect()
    batch.issue(False)
    return got.tolist(), alive() is None


@pytest.mark.worlds(sizes=(2,))
def test_a_batch_keeps_its_communicator_alive(world):
    assert [got for got, _ in world.run_context(batch_outlives_comm_variable)] == [
        [1.0, 1.0],
        [0.0, 0.0],
    ]


def issue_empty(comm):
    with pytest.raises(RuntimeError, match=r"(?i)batch.*empty"):
        comm.batch_op_create().issue(False)
    with refused(TypeError, "issue()", "missing", "'async_op'"):
        comm.batch_op_create().issue()
    with refused(TypeError, "issue", "options", "BatchP2POptions", "SendOptions"):
        comm.batch_op_create().issue(False, SendOptions())
    with refused(TypeError, "send", "tensor", "torch.Tensor", "list"):
        comm.batch_op_create().send([1.0], 0)
    with refused(TypeError, "recv", "src", "int", "str"):
        comm.batch_op_create().recv(torch.ones(1), "0")


def test_an_empty_batch_is_refused_and_async_op_has_no_default(world):
    world.run(issue_empty)


def outside_peers(comm):
    """Adding checks nothing; issuing refuses before anything is sent to the good peers."""
    size = comm.get_size()
    for peer in (size, size + 7, -1):
        batch = comm.batch_op_create()
        batch.send(torch.ones(1), (comm.get_rank() + 1) % size)
        batch.recv(torch.ones(1), peer)
        with pytest.raises(RuntimeError) as caught:
            batch.issue(False)
        assert str(peer) in str(caught.value)
        assert str(size - 1) in str(caught.value), "the message must say what is allowed"
    comm.barrier(False)


@several
def test_a_peer_outside_of_the_communicator_is_refused_at_issue(world):
    world.run(outside_peers)


def batch_to_oneself(context):
    comm = context.comm
    batch = comm.batch_op_create()
    sent, got = torch.ones(2), torch.zeros(2)
    batch.send(sent, context.rank)
    batch.recv(got, context.rank)
    if context.row.self_messages:
        batch.issue(False)
        return
    with pytest.raises(RuntimeError, match=r"(?i)itself|oneself"):
        batch.issue(False)
    assert got.tolist() == [0, 0]
    comm.barrier(False)


def test_messages_to_oneself_follow_the_backends_rule(world):
    world.run_context(batch_to_oneself)


def wrong_tensors(comm):
    peer = (comm.get_rank() + 1) % comm.get_size()
    for tensor in (torch.zeros(3, 4).t(), torch.zeros(3, device="meta")):
        batch = comm.batch_op_create()
        batch.send(tensor, peer)
        with pytest.raises(RuntimeError, match=r"contiguous|meta"):
            batch.issue(False)
    comm.barrier(False)


@several
def test_wrong_tensors_are_refused_at_issue(world):
    world.run(wrong_tensors)
