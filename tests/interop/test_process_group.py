"""Calls on a process group of torch's own whose backend is one of our communicators."""

from __future__ import annotations

import functools
import operator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torchcomms
from torch.torch_version import TorchVersion
from torchcomms._comms import _BackendWrapper

from tests.harness.cases import Failures, check, check_context, refused
from tests.harness.programs import python, ranks

CUSTOM = dist.ProcessGroup.BackendType.CUSTOM


def group_of(comm):
    group = dist.ProcessGroup(dist.HashStore(), comm.get_rank(), comm.get_size())
    group._register_backend(torch.device("cpu"), CUSTOM, _BackendWrapper(comm))
    group._set_default_backend(CUSTOM)
    return group


def opts(kind, **values):
    made = kind()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def collectives(comm):
    group, rank, size = group_of(comm), comm.get_rank(), comm.get_size()
    failures = Failures()
    ranks = list(range(size))
    total = float(sum(ranks))
    mine = torch.full((3,), float(rank))

    with failures.case("allreduce"):
        tensor = mine.clone()
        work = group.allreduce([tensor])
        work.wait()
        assert tensor.tolist() == [total] * 3
        assert work.is_completed()
        assert work.is_success()
        assert work.result()[0] is tensor or work.result()[0].equal(tensor)
    for op, want in (("MIN", 0), ("MAX", size - 1), ("AVG", total / size), ("PRODUCT", 0)):
        with failures.case("allreduce", op):
            tensor = mine.clone()
            kind = opts(dist.AllreduceOptions, reduceOp=getattr(dist.ReduceOp, op))
            group.allreduce([tensor], kind).wait()
            assert tensor.tolist() == [want] * 3
    for op, by_two in (("BAND", operator.and_), ("BOR", operator.or_), ("BXOR", operator.xor)):
        with failures.case("allreduce", op):
            tensor = torch.tensor([rank + 4, 3 * rank])
            kind = opts(dist.AllreduceOptions, reduceOp=getattr(dist.ReduceOp, op))
            group.allreduce([tensor], kind).wait()
            wants = ([r + 4 for r in ranks], [3 * r for r in ranks])
            assert tensor.tolist() == [functools.reduce(by_two, each) for each in wants]
    with failures.case("premultiplied sum"):
        tensor = mine.clone()
        scaled = opts(dist.AllreduceOptions, reduceOp=dist._make_nccl_premul_sum(2.0))
        group.allreduce([tensor], scaled).wait()
        assert tensor.tolist() == [2 * total] * 3
    with failures.case("allreduce_coalesced"):
        tensors = [mine.clone(), mine.clone().double() + 1]
        group.allreduce_coalesced(tensors).wait()
        assert [t.tolist() for t in tensors] == [[total] * 3, [total + size] * 3]
    with failures.case("broadcast, channels last"):
        image = torch.arange(48.0).reshape(2, 2, 3, 4) if rank == 0 else torch.zeros(2, 2, 3, 4)
        image = image.to(memory_format=torch.channels_last)
        group.broadcast([image], opts(dist.BroadcastOptions, rootRank=0)).wait()
        assert image.equal(torch.arange(48.0).reshape(2, 2, 3, 4))
    with failures.case("reduce"):
        tensor = mine.clone()
        group.reduce([tensor], opts(dist.ReduceOptions, rootRank=size - 1)).wait()
        assert rank != size - 1 or tensor.tolist() == [total] * 3
    with failures.case("allgather"):
        outputs = [torch.empty(3) for _ in ranks]
        group.allgather([outputs], [mine]).wait()
        assert [t[0].item() for t in outputs] == ranks
    with failures.case("allgather into one place"):
        place = torch.empty(3)
        group.allgather([[place] * size], [mine]).wait()
        assert place.tolist() == [size - 1] * 3
    with failures.case("allgather, uneven"):
        outputs = [torch.empty(r + 1) for r in ranks]
        group.allgather([outputs], [torch.full((rank + 1,), float(rank))]).wait()
        assert [t.tolist() for t in outputs] == [[float(r)] * (r + 1) for r in ranks]
    with failures.case("_allgather_base"):
        output = torch.empty(3 * size)
        group._allgather_base(output, mine).wait()
        assert output[::3].tolist() == ranks
    with failures.case("allgather_into_tensor_coalesced"):
        outputs = [torch.empty(3 * size), torch.empty(size)]
        group.allgather_into_tensor_coalesced(outputs, [mine, mine[:1].clone()]).wait()
        assert outputs[0][::3].tolist() == outputs[1].tolist() == ranks
    with failures.case("allgather_coalesced"):
        lists = [[torch.empty(3), torch.empty(1)] for _ in ranks]
        if size > 1:
            group.allgather_coalesced(lists, [mine, mine[:1].clone()]).wait()
            assert [[t[0].item() for t in of_rank] for of_rank in lists] == [[r, r] for r in ranks]
    with failures.case("gather"):
        lists = [[torch.empty(3) for _ in ranks]] if rank == 0 else [[]]
        group.gather(lists, [mine], opts(dist.GatherOptions, rootRank=0)).wait()
        assert rank != 0 or [t[0].item() for t in lists[0]] == ranks
    if hasattr(group, "gather_single"):
        with failures.case("gather_single"):
            output = torch.empty(3 * size if rank == 0 else 0)
            group.gather_single(output, mine, opts(dist.GatherOptions, rootRank=0)).wait()
            assert rank != 0 or output[::3].tolist() == ranks
    with failures.case("scatter"):
        output = torch.empty(3)
        lists = [[torch.full((3,), float(r)) for r in ranks]] if rank == 0 else []
        group.scatter([output], lists, opts(dist.ScatterOptions, rootRank=0)).wait()
        assert output.equal(mine)
    with failures.case("reduce_scatter, uneven"):
        output = torch.empty(rank + 1)
        group.reduce_scatter([output], [[torch.full((r + 1,), r + 1.0) for r in ranks]]).wait()
        assert output.tolist() == [(rank + 1.0) * size] * (rank + 1)
    with failures.case("reduce_scatter"):
        output = torch.empty(3)
        group.reduce_scatter([output], [[mine + r for r in ranks]]).wait()
        assert output.tolist() == [total + rank * size] * 3
    with failures.case("_reduce_scatter_base"):
        output = torch.empty(3)
        group._reduce_scatter_base(output, mine.repeat(size)).wait()
        assert output.tolist() == [total] * 3
    with failures.case("reduce_scatter_tensor_coalesced"):
        outputs = [torch.empty(3), torch.empty(3)]
        group.reduce_scatter_tensor_coalesced(outputs, [mine.repeat(size)] * 2).wait()
        assert [t.tolist() for t in outputs] == [[total] * 3] * 2
    with failures.case("alltoall_base"):
        output = torch.empty(size)
        group.alltoall_base(output, torch.full((size,), float(rank)), [], []).wait()
        assert output.tolist() == ranks
    with failures.case("alltoall_base, uneven"):
        output = torch.empty(size * (rank + 1))
        sent = torch.full((size * (size + 1) // 2,), float(rank))
        group.alltoall_base(output, sent, [rank + 1] * size, [r + 1 for r in ranks]).wait()
        assert output[:: rank + 1].tolist() == ranks
    with failures.case("alltoall"):
        outputs = [torch.empty(1) for _ in ranks]
        group.alltoall(outputs, [torch.tensor([rank * 10.0 + r]) for r in ranks]).wait()
        assert [t.item() for t in outputs] == [r * 10.0 + rank for r in ranks]
    with failures.case("barrier"):
        group.barrier().wait()
    with failures.case("synchronous"):
        tensor = mine.clone()
        group.allreduce([tensor], opts(dist.AllreduceOptions, asyncOp=False))
        assert tensor.tolist() == [total] * 3
    if TorchVersion(torch.__version__) >= "2.15":  # before, torch asks its own backends alone
        with failures.case("sequence number"):
            assert group._get_sequence_number_for_group() > 20
    return failures.texts


def test_every_collective(world):
    check(world, collectives)


def in_any_layout(comm):
    """What is given and what is written to may be transposed, or every other element."""
    group, rank, size = group_of(comm), comm.get_rank(), comm.get_size()
    failures, ranks = Failures(), range(size)

    def given(value, rows=3):
        """`rows` by 2, of which each element is another."""
        return (torch.arange(2.0 * rows).reshape(2, rows) + 100 * value).t()

    def room(rows=3):
        return torch.zeros(rows, 4)[:, ::2]

    everyones = torch.cat([given(r) for r in ranks])
    with failures.case("allgather"):
        outputs = [room() for _ in ranks]
        group.allgather([outputs], [given(rank)]).wait()
        assert torch.cat(outputs).equal(everyones)
    with failures.case("_allgather_base"):
        output = room(3 * size)
        group._allgather_base(output, given(rank)).wait()
        assert output.equal(everyones)
    with failures.case("allgather_into_tensor_coalesced"):
        outputs = [room(3 * size), torch.zeros(3 * size, 2)]
        group.allgather_into_tensor_coalesced(outputs, [given(rank)] * 2).wait()
        assert outputs[0].equal(everyones)
        assert outputs[1].equal(everyones)
    with failures.case("gather"):
        lists = [[room() for _ in ranks]] if rank == 0 else [[]]
        group.gather(lists, [given(rank)], opts(dist.GatherOptions, rootRank=0)).wait()
        assert rank != 0 or torch.cat(lists[0]).equal(everyones)
    with failures.case("scatter"):
        output = room()
        lists = [[given(r) for r in ranks]] if rank == 0 else []
        group.scatter([output], lists, opts(dist.ScatterOptions, rootRank=0)).wait()
        assert output.equal(given(rank))
    with failures.case("reduce_scatter"):
        output = room()
        group.reduce_scatter([output], [[given(r) for r in ranks]]).wait()
        assert output.equal(given(rank) * size)
    with failures.case("_reduce_scatter_base"):
        output = room()
        group._reduce_scatter_base(output, given(0, 3 * size)).wait()
        assert output.equal(given(0, 3 * size)[3 * rank : 3 * rank + 3] * size)
    with failures.case("alltoall"):
        outputs = [room() for _ in ranks]
        group.alltoall(outputs, [given(10 * rank + r) for r in ranks]).wait()
        assert torch.cat(outputs).equal(torch.cat([given(10 * r + rank) for r in ranks]))
    with failures.case("alltoall_base"):
        output = room(3 * size)
        group.alltoall_base(output, given(rank, 3 * size), [], []).wait()
        want = [given(r, 3 * size)[3 * rank : 3 * rank + 3] for r in ranks]
        assert output.equal(torch.cat(want))
    with failures.case("alltoall_base, not all rows"):
        output = room(size + 1)
        output[size] = 7
        group.alltoall_base(output, given(rank, size), [1] * size, [1] * size).wait()
        want = [given(r, size)[rank : rank + 1] for r in ranks]
        assert output.equal(torch.cat([*want, torch.full((1, 2), 7.0)]))
    return failures.texts


def test_gathering_and_exchanging_take_any_layout(world):
    check(world, in_any_layout)


def messages(comm):
    group, rank, size = group_of(comm), comm.get_rank(), comm.get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    failures = Failures()
    with failures.case("send and recv"):
        got = torch.empty(2)
        works = [group.send([torch.full((2,), float(rank))], right, 0), group.recv([got], left, 0)]
        for work in works:
            work.wait()
        assert got.tolist() == [float(left)] * 2
        assert works[1].source_rank() == left if hasattr(works[1], "source_rank") else True
    with failures.case("a coalesced batch"):
        got = [torch.empty(2), torch.empty(1)]
        cpu = torch.device("cpu")
        group._start_coalescing(cpu)
        for tensor in got:
            group.recv([tensor], left, 0)
        group.send([torch.full((2,), float(rank))], right, 0)
        group.send([torch.full((1,), rank + 0.5)], right, 0)
        work = group._end_coalescing(cpu)
        work.wait()
        assert [t[0].item() for t in got] == [left, left + 0.5]
        assert len(work.result()) == 2
    with failures.case("an empty batch"):
        group._start_coalescing(cpu)
        group._end_coalescing(cpu).wait()
    with failures.case("unmatched"), refused(RuntimeError, "without startCoalescing"):
        group._end_coalescing(cpu)
    with failures.case("nested"):
        group._start_coalescing(cpu)
        with refused(RuntimeError, "was not ended"):
            group._start_coalescing(cpu)
        group._end_coalescing(cpu)
    return failures.texts


@pytest.mark.worlds(sizes=(2, 3))
def test_messages_and_batches(world):
    check(world, messages)


def tags_in_batches(comm):
    group, rank, size = group_of(comm), comm.get_rank(), comm.get_size()
    right, left, cpu = (rank + 1) % size, (rank - 1) % size, torch.device("cpu")
    failures = Failures()
    with failures.case("tags in a batch"):
        got = [torch.zeros(1), torch.zeros(1)]
        group._start_coalescing(cpu)
        for tag in (1, 2):
            group.send([torch.tensor([10.0 * rank + tag])], right, tag)
        for tag in (2, 1):
            group.recv([got[tag - 1]], left, tag)
        group._end_coalescing(cpu).wait()
        assert [t.item() for t in got] == [10.0 * left + 1, 10.0 * left + 2]
    with failures.case("a tag in a batch and outside of one"):
        group._start_coalescing(cpu)
        group.send([torch.tensor([0.5 + rank])], right, 7)
        sent = group._end_coalescing(cpu)
        group.recv([got[0]], left, 7).wait()
        sent.wait()
        assert got[0].item() == 0.5 + left
    return failures.texts


@pytest.mark.worlds(sizes=(2, 3), backends=("gloo", "ctran"))
def test_messages_of_a_batch_match_by_tag(world):
    check(world, tags_in_batches)


def left_regions(comm):
    """As torch's batch_isend_irecv leaves them, whose end is in no `finally`."""
    group, rank, size = group_of(comm), comm.get_rank(), comm.get_size()
    right, left, cpu = (rank + 1) % size, (rank - 1) % size, torch.device("cpu")
    failures = Failures()

    def exchanged():
        got = torch.empty(2)
        works = [group.recv([got], left, 0), group.send([torch.full((2,), float(rank))], right, 0)]
        for work in works:
            work.wait()
        return got.tolist() == [float(left)] * 2

    with failures.case("by a call that raises here"):
        group._start_coalescing(cpu)
        lost = group.send([torch.ones(2)], right, 0)
        with refused(RuntimeError, "one per rank"):
            group.recv([torch.ones(2)] * 2, left, 0)
        with refused(RuntimeError, "recv failed"):
            lost.wait()
        assert exchanged()
    with failures.case("not at all"):
        got = torch.empty(2)
        group._start_coalescing(cpu)
        group.recv([got], left, 0).wait()
        group.send([torch.full((2,), float(rank))], right, 0).wait()
        group._end_coalescing(cpu).wait()
        assert got.tolist() == [float(left)] * 2
    with failures.case("and coalescing begins again"):
        group._start_coalescing(cpu)
        lost = group.send([torch.ones(2)], right, 0)
        with refused(RuntimeError, "was not ended"):
            group._start_coalescing(cpu)
        with refused(RuntimeError, "before endCoalescing"):
            lost.wait()
        got = torch.empty(2)
        group._start_coalescing(cpu)
        received = group.recv([got], left, 0)
        group.send([torch.full((2,), float(rank))], right, 0)
        assert received.is_completed()
        group._end_coalescing(cpu)
        received.wait()
        assert got.tolist() == [float(left)] * 2
    return failures.texts


@pytest.mark.worlds(sizes=(2,))
def test_no_message_is_lost_where_coalescing_is_left(world):
    check(world, left_regions)


def from_anybody(comm):
    group, rank, size = group_of(comm), comm.get_rank(), comm.get_size()
    failures = Failures()
    for name, tag, numel in (("small", 0, 3), ("with a tag", 7, 3), ("large", 9, 1 << 18)):
        with failures.case(name):
            if rank != 0:
                group.send([torch.full((numel,), float(rank))], 0, tag).wait()
                continue
            seen = []
            for _ in range(size - 1):
                got = torch.empty(numel)
                work = group.recv_anysource([got], tag)
                work.wait()
                assert got.tolist() == [float(work._source_rank())] * numel
                seen.append(work._source_rank())
            assert sorted(seen) == list(range(1, size))
    with failures.case("posted before the messages, and beside receives from one rank"):
        if rank == 0:
            named = [torch.empty(1) for _ in range(size - 1)]
            works = [group.recv([t], r + 1, 0) for r, t in enumerate(named)]
            got = [torch.empty(1) for _ in range(size - 1)]
            works += [group.recv_anysource([t], 0) for t in got]
            group.broadcast([torch.ones(1)], opts(dist.BroadcastOptions, rootRank=0)).wait()
            for work in works:
                work.wait()
            # Each takes a message, so the first of a rank may go to either.
            assert sorted(t.item() for t in named + got) == sorted(
                10.0 * r + i for r in range(1, size) for i in range(2)
            )
            for work, tensor in zip(works, named + got, strict=True):
                assert tensor.item() // 10 == work._source_rank()
        else:
            group.broadcast([torch.zeros(1)], opts(dist.BroadcastOptions, rootRank=0)).wait()
            for i in range(2):
                group.send([torch.tensor([10.0 * rank + i])], 0, 0).wait()
    if size == 2:
        with failures.case("in a batch"):
            group._start_coalescing(torch.device("cpu"))
            with refused(RuntimeError, "any source"):
                group.recv_anysource([torch.empty(1)], 0)
            group._end_coalescing(torch.device("cpu"))
    return failures.texts


@pytest.mark.worlds(sizes=(2, 3, 4))
def test_a_receive_from_any_source_says_who_has_sent(world):
    check(world, from_anybody)


def from_anybody_that_leaves(context):
    comm, failures = context.new_comm(timeout=30.0), Failures()
    group, works = group_of(comm), []
    if context.rank == 0:
        got = [torch.zeros(1) for _ in range(2)]
        works = [group.recv_anysource([tensor], 0) for tensor in got]
    elif context.rank == context.size - 1:
        group.send([torch.ones(1)], 0, 0).wait()
    context.meet("from_anybody_that_leaves/posted")
    comm.finalize()
    if works:
        with failures.case("sent"):
            works[0].wait()
            assert got[0].item() == 1
        with failures.case("never sent"), refused(RuntimeError, "has closed the communicator"):
            works[1].wait()
    context.meet("from_anybody_that_leaves/over")
    return failures.texts


@pytest.mark.worlds(sizes=(2, 3))
def test_a_receive_from_any_source_ends_when_all_others_have_finalized(world):
    check_context(world, from_anybody_that_leaves)


def sparse(comm):
    group, rank, size = group_of(comm), comm.get_rank(), comm.get_size()
    failures = Failures()
    total = sum(range(1, size + 1))

    def made(elements):  # at (i, 0) twice, with a row of two each; none on rank 0
        places = torch.tensor([[i, i] for i in range(elements)]).reshape(-1).repeat(2, 1)
        places[1] = 0
        return torch.sparse_coo_tensor(places, torch.ones(2 * elements, 2), (size, 3, 2))

    wanted = torch.stack([made(r).to_dense() for r in range(size)]).sum(0)
    for asynchronous in (False, True):
        with failures.case("sum", asynchronous):
            tensor = made(rank)
            work = group.allreduce([tensor], opts(dist.AllreduceOptions, asyncOp=asynchronous))
            work.wait()
            assert tensor.is_coalesced()
            assert tensor.to_dense().equal(wanted)
            assert work.result()[0].to_dense().equal(wanted)
    with failures.case("mean"):
        tensor = torch.full((3,), rank + 1.0).to_sparse()
        group.allreduce([tensor], opts(dist.AllreduceOptions, reduceOp=dist.ReduceOp.AVG)).wait()
        assert tensor.to_dense().tolist() == [total / size] * 3
    with failures.case("future"):
        tensor = torch.full((3,), rank + 1).to_sparse()
        (value,) = group.allreduce([tensor]).get_future().wait()
        assert value.to_dense().tolist() == [total] * 3
    with failures.case("tensor and work are dropped at once"):
        for _ in range(20):
            group.allreduce([made(1 + rank)])
        group.barrier().wait()
    with failures.case("another reduction"), refused(RuntimeError, "SUM or AVG"):
        group.allreduce([made(1)], opts(dist.AllreduceOptions, reduceOp=dist.ReduceOp.MAX))
    with failures.case("another layout"), refused(RuntimeError):  # by the dispatcher of torch
        group.allreduce([torch.ones(2, 2).to_sparse_csr()])
    if size > 1:
        with failures.case("another shape"), refused(RuntimeError, "must pass the same"):
            group.allreduce([torch.ones(2 + rank).to_sparse()])
    return failures.texts


@pytest.mark.worlds(sizes=(1, 2, 3))
def test_sparse_tensors_are_added(world):
    check(world, sparse)


def profiled(comm):
    group, rank = group_of(comm), comm.get_rank()
    failures = Failures()
    name = comm.get_backend()

    def seen(call):
        with torch.autograd.profiler.profile(record_shapes=True) as profiler:
            call()
        return [e for e in profiler.function_events if e.name.startswith(f"{name}:")]

    for asynchronous in (False, True):
        with failures.case("one tensor", asynchronous):
            kind = opts(dist.AllreduceOptions, asyncOp=asynchronous)
            (event,) = seen(lambda kind=kind: group.allreduce([torch.ones(2, 3)], kind).wait())
            assert (event.name, event.is_async) == (f"{name}:all_reduce", True)
            assert event.input_shapes == [[2, 3]]
    with failures.case("several tensors, one call"):
        (event,) = seen(lambda: group.allreduce_coalesced([torch.ones(2), torch.ones(3)]).wait())
        assert event.input_shapes == [[2], [3]]
    with failures.case("messages"):
        if rank < 2:
            (event,) = seen(
                lambda: (
                    group.send([torch.ones(4)], 1, 0).wait()
                    if rank == 0
                    else group.recv([torch.ones(4)], 0, 0).wait()
                )
            )
            assert (event.name, event.input_shapes) == (
                f"{name}:{('send', 'recv')[rank]}",
                [[4]],
            )
    with failures.case("what the communicator does inside is not shown"):
        with torch.autograd.profiler.profile() as profiler:
            group.allreduce([torch.ones(5)]).wait()
        names = [e.name for e in profiler.function_events]
        assert names.count("record_param_comms") == 1
        assert not [n for n in names if n.startswith("gloo:") and name != "gloo"]
    return failures.texts


@pytest.mark.worlds(sizes=(2, 3))
def test_profilers_see_each_call_once(world):
    check(world, profiled)


def futures(comm):
    group, rank, size = group_of(comm), comm.get_rank(), comm.get_size()
    failures = Failures()
    total = float(sum(range(size)))
    with failures.case("value"):
        future = group.allreduce([torch.full((3,), float(rank))]).get_future()
        assert future.wait()[0].tolist() == [total] * 3
    with failures.case("the future of a finished work is complete"):
        work = group.allreduce([torch.full((3,), float(rank))])
        future = work.get_future()
        work.wait()
        assert future.done()
        assert future.value()[0].tolist() == [total] * 3
    with failures.case("a callback that waits for another collective"):

        def again(done):
            return group.allreduce([done.value()[0]]).get_future().wait()[0] + 1

        future = group.allreduce([torch.full((3,), float(rank))]).get_future().then(again)
        assert future.wait().tolist() == [total * size + 1] * 3
    with failures.case("many callbacks"):
        works = [group.allreduce([torch.full((5,), float(i))]) for i in range(20)]
        seen = [w.get_future().then(lambda done: done.value()[0][0].item()) for w in works]
        assert torch.futures.wait_all(seen) == [float(i * size) for i in range(20)]
    with failures.case("no limit afterwards"), refused(RuntimeError, "wait(timeout)"):
        group.barrier().wait(timedelta(seconds=5))
    return failures.texts


@pytest.mark.worlds(sizes=(1, 2))
def test_futures_complete_when_the_data_is_there(world):
    check(world, futures)


def wrong_calls(comm):
    group, size = group_of(comm), comm.get_size()
    failures = Failures()
    for name, call in {
        "two tensors": lambda: group.allreduce([torch.ones(1), torch.ones(1)]),
        "no tensor": lambda: group.broadcast([]),
        "lists of other lengths": lambda: group.allgather_into_tensor_coalesced(
            [torch.ones(size)], []
        ),
        "negative split": lambda: group.alltoall_base(
            torch.ones(size), torch.ones(size), [-1] * size, [1] * size
        ),
        "root tensor": lambda: group.broadcast(
            [torch.ones(1)], opts(dist.BroadcastOptions, rootTensor=1)
        ),
    }.items():
        with failures.case(name), refused(RuntimeError):
            call()
    with failures.case("no communicator"), refused(TypeError):
        _BackendWrapper(None)
    return failures.texts


@pytest.mark.worlds(sizes=(2,))
def test_wrong_calls_raise_before_anything_is_sent(world):
    check(world, wrong_calls)


def wrapper(comm):
    made = _BackendWrapper(comm=comm)
    assert made.get_comm() is comm
    assert (made.rank(), made.size(), made.name()) == (
        comm.get_rank(),
        comm.get_size(),
        comm.get_backend(),
    )
    assert made.supports_coalescing
    assert made.supports_splitting
    for name in ("reconfigure", "shrinking", "abort_hooks"):
        assert not getattr(made, f"supports_{name}", False), name
    assert not getattr(made, "_supports_time_estimate", False)
    assert not hasattr(made, "comm_split_count")
    assert made.options.backend == "torchcomms"
    for allocator in (made.get_mem_allocator, comm.get_mem_allocator):
        with refused(torchcomms.Unsupported, "no memory allocator"):
            allocator()
    group = group_of(comm)
    made._set_default_timeout(timedelta(seconds=77))
    assert group._get_backend(torch.device("cpu")).get_comm() is comm
    return True


def test_the_wrapper_knows_its_communicator(world):
    assert all(world.run(wrapper))


def limits(comm):
    made = _BackendWrapper(comm)
    group = dist.ProcessGroup(dist.HashStore(), comm.get_rank(), comm.get_size())
    group._register_backend(torch.device("cpu"), CUSTOM, made)
    group._set_default_backend(CUSTOM)
    made._set_default_timeout(timedelta(seconds=77))
    default = made._verify_work_timeout(group.allreduce([torch.ones(1)]), timedelta(seconds=77))
    own = opts(dist.AllreduceOptions, timeout=timedelta(seconds=55))
    given = made._verify_work_timeout(group.allreduce([torch.ones(1)], own), timedelta(seconds=55))
    group.barrier().wait()
    return default, given


@pytest.mark.worlds(sizes=(2,))
def test_limits_of_the_call_and_of_the_group_reach_the_work(world):
    assert world.run(limits) == [(True, True)] * 2


def hooked(comm):
    group, rank, size = group_of(comm), comm.get_rank(), comm.get_size()
    before, after, right = [], [], (rank + 1) % size
    handles = [
        comm.register_pre_hook(lambda name, op_id, args: before.append((str(name), op_id))),
        comm.register_post_hook(lambda op_id, args: after.append(op_id)),
    ]
    tensor = torch.ones(2)
    group.allreduce([tensor]).wait()
    group._allgather_base(torch.empty(2 * size), tensor).wait()
    group._start_coalescing(torch.device("cpu"))
    group.recv([torch.empty(2)], (rank - 1) % size, 0)
    group.send([tensor], right, 0)
    group._end_coalescing(torch.device("cpu")).wait()
    group.barrier().wait()
    for handle in handles:
        handle.remove()
    group.barrier().wait()
    names = [name.rpartition(".")[2] for name, _ in before]
    return names, [op_id for _, op_id in before] == after


@pytest.mark.worlds(sizes=(2,))
def test_hooks_of_the_communicator_see_calls_on_the_group(world):
    names = ["all_reduce", "all_gather_single", "batch_op_issue", "barrier"]
    assert world.run(hooked) == [(names, True)] * 2


def windows(comm):
    group, rank, size = group_of(comm), comm.get_rank(), comm.get_size()
    wrapper = group._get_backend(torch.device("cpu"))
    right, left = (rank + 1) % size, (rank - 1) % size
    failures = Failures()
    assert group.supports_window == wrapper.supports_window == (comm.get_backend() == "ctran")
    if not group.supports_window:
        with failures.case("refused"), refused(RuntimeError, "new_window"):
            group.new_window()
        return failures.texts
    for early in (True, False):
        memory = torch.zeros(4)
        window = group.new_window(memory if early else None)
        if not early:
            window.tensor_register(memory)
        with failures.case("a put is there with its signal", early):
            put = window.put(torch.full((2,), rank + 0.5), right, 1, True)
            window.signal(right, False)
            window.wait_signal(left, False).wait()
            put.wait()
            assert memory.tolist() == [0.0, left + 0.5, left + 0.5, 0.0]
            assert put.is_completed()
        with failures.case("memory of others", early):
            ours = comm.new_window(memory)
            kind = ours.get_attr(right).access_type.name
            assert kind.endswith(f"_{window.get_attr(right).access_type.name}")
            ours.tensor_deregister()
            assert window.map_remote_tensor(rank).equal(memory)
        for method, *arguments in (
            ("put", torch.ones(1), right, -1, False),
            ("put", torch.ones(1), right, 4, False),
            ("put", torch.ones(1), 2**32 + right, 0, False),
            ("signal", size, False),
            ("get_attr", -1),
        ):
            with failures.case("wrong", early, *arguments), refused(RuntimeError):
                getattr(window, method)(*arguments)
        with failures.case("limits", early):
            wrapper._set_default_timeout(timedelta(seconds=77))
            works = [window.signal(right, True), window.wait_signal(left, True)]
            assert wrapper._verify_work_timeout(works[1], timedelta(seconds=77))
            for work in works:
                work.wait()
        window.tensor_deregister()
    return failures.texts


@pytest.mark.skipif(
    not hasattr(dist.ProcessGroup, "new_window"), reason="this torch has no windows of groups"
)
@pytest.mark.worlds(sizes=(1, 2))
def test_windows_of_a_group_are_the_communicators(world):
    check(world, windows)


def splits(context):
    comm = context.comm
    group, rank, size = group_of(comm), comm.get_rank(), comm.get_size()
    even = [r for r in range(size) if r % 2 == 0]
    child = group.split_group(even, timeout=timedelta(seconds=50), group_name="even")
    if rank not in even:
        return child is None
    tensor = torch.full((2,), float(rank))
    child.allreduce([tensor]).wait()
    good = tensor.tolist() == [float(sum(even))] * 2
    child._get_backend(torch.device("cpu")).get_comm().finalize()
    return good and child.size() == len(even)


@pytest.mark.worlds(sizes=(2, 4))
def test_a_split_group_has_its_own_communicator(world):
    assert world.run_context(splits) == [True] * world.size


def monitored(comm):
    group = group_of(comm)
    group.monitored_barrier(timedelta(seconds=60), True)
    return True


def test_a_monitored_barrier_passes(world):
    assert world.run(monitored) == [True] * world.size


@pytest.mark.parametrize(
    "imports",
    [
        "import torch.distributed as dist, torchcomms",
        "import torchcomms, torch.distributed as dist",
    ],
)
def test_ctran_is_known_by_name_whatever_is_imported_first(imports, free_port):
    """Torch 2.11 imports this package before it has its own table of backends."""
    if not torchcomms.is_backend_built("ctran"):
        pytest.skip("needs backend ctran")
    source = f"""
        {imports}
        dist.init_process_group("ctran")
        print(dist.get_backend())
        assert dist.group.WORLD.name() == "custom"  # torch's own list of names
        dist.destroy_process_group()
    """
    job = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port),
    }
    assert python(source, **job).expect_success().out.split() == ["ctran"]


@pytest.mark.skipif(
    TorchVersion(torch.__version__) < "2.15", reason="before, torch splits groups of GPUs alone"
)
@pytest.mark.parametrize("bound", [None, 'torch.device("cpu:0")'])
def test_groups_of_ctran_are_split_by_torch(bound, free_port):
    """By name, without torch's switch; a device that a group is bound to changes nothing."""
    if not torchcomms.is_backend_built("ctran"):
        pytest.skip("needs backend ctran")
    source = f"""
        import torch, torch.distributed as dist
        from datetime import timedelta
        dist.init_process_group("ctran", device_id={bound})
        rank = dist.get_rank()

        def total(group):
            tensor = torch.tensor([rank + 1.0])
            dist.all_reduce(tensor, group=group)
            return tensor.item()

        both = dist.split_group(split_ranks=[[2, 0], [1]], timeout=timedelta(seconds=44))
        comm = both._get_backend(torch.device("cpu")).get_comm()
        assert comm.get_options().timeout == timedelta(seconds=44)
        assert total(both) == (2.0 if rank == 1 else 4.0)
        assert dist.get_group_rank(both, rank) == (1 if rank == 0 else 0)
        for make in (dist.new_group, lambda ranks: dist.split_group(split_ranks=[ranks])):
            first = make([0, 1])
            if rank < 2:
                assert total(first) == 3.0
            else:
                assert first == dist.GroupMember.NON_GROUP_MEMBER
        assert total(dist.group.WORLD) == 6.0
        dist.barrier()
        dist.destroy_process_group()
        print("done")
    """
    for finished in ranks(source, 3, free_port):
        assert finished.expect_success().out.split() == ["done"]
