"""share_cpu_tensors(): tensors that the other ranks of the host map."""

from __future__ import annotations

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp

from tests.harness.cases import Failures, check_context

pytestmark = pytest.mark.worlds(backends=("ctran",), sizes=(2, 4))
MAPPED = "peers map the tensors of this process"
COUNTS = (1000, 40_000, 1_000_003)  # elements: below what is shared, above, and many chunks


def on_cpu(context, name):
    """Its ranks are of one host, whatever the row says."""
    device = torch.device("cpu")
    return torchcomms.new_comm(context.backend, device, name, store=context.store(name))


def values(rank, count):
    return torch.arange(count, dtype=torch.float32).remainder(1021) + rank


def all_ways(comm, count):
    """Names and (what came, what should have come)."""
    rank, size = comm.get_rank(), comm.get_size()
    everybody = [values(r, count) for r in range(size)]
    total = torch.stack(everybody).sum(0)

    tensor = values(rank, count)
    comm.all_reduce(tensor, ReduceOp.SUM, False)
    yield "all_reduce", tensor, total

    output = torch.empty(size * count)
    comm.all_gather_single(output, values(rank, count), False)
    yield "all_gather_single", output, torch.cat(everybody)

    # Parts of a larger tensor, in place.
    for r in range(size):
        output[r * count : (r + 1) * count] = values(rank + r, count)
    part = torch.empty(count)
    comm.reduce_scatter_single(part, output, ReduceOp.SUM, False)
    yield "reduce_scatter_single", part, torch.stack([e + rank for e in everybody]).sum(0)

    output = torch.empty(size * count)
    comm.all_to_all_single(
        output, torch.cat([values(9 * rank + r, count) for r in range(size)]), False
    )
    yield "all_to_all_single", output, torch.cat([values(9 * r + rank, count) for r in range(size)])

    tensor = values(rank, count)
    comm.broadcast(tensor, size - 1, False)
    yield "broadcast", tensor, everybody[-1]

    # The sender's tensor goes at once, and its memory is used again.
    receipt = torch.empty(count)
    receive = comm.recv(receipt, (rank - 1) % size, True)
    send = comm.send(values(rank, count), (rank + 1) % size, True)
    again = torch.full((count,), -1.0)
    send.wait()
    receive.wait()
    yield "send, recv", receipt, everybody[(rank - 1) % size]
    yield "what was made meanwhile", again, torch.full((count,), -1.0)


def check(comm, failures, label):
    for count in COUNTS:
        for again in range(3):  # in memory that was used before
            for name, came, wanted in all_ways(comm, count):
                with failures.case(label, name, count, again):
                    assert torch.equal(came, wanted)


def everybodys(context):
    failures = Failures()
    before = torch.arange(100_000)
    torchcomms.share_cpu_tensors()
    try:
        comm = on_cpu(context, "shared")
        with failures.case("described"):
            assert MAPPED in comm.describe()["notes"]["links"]
        check(comm, failures, "shared")
        # What was made before goes as ever.
        with failures.case("before"):
            comm.broadcast(before, 0, False)
            assert torch.equal(before, torch.arange(100_000))
        child = comm.split(list(range(context.size)), "child")
        check(child, failures, "split")
        child.finalize()
        torchcomms.share_cpu_tensors(False)
        check(comm, failures, "switched off")
        comm.finalize()
    finally:
        torchcomms.share_cpu_tensors(False)
    return failures.texts


def test_collectives_and_messages_out_of_them_are_right(world):
    check_context(world, everybodys)


def some_ranks(context):
    failures = Failures()
    if context.rank % 2 == 0:
        torchcomms.share_cpu_tensors()
    try:
        comm = on_cpu(context, "mixed")
        check(comm, failures, "mixed")
        comm.finalize()
    finally:
        if context.rank % 2 == 0:
            torchcomms.share_cpu_tensors(False)
    return failures.texts


def test_each_rank_decides_for_itself(world):
    check_context(world, some_ranks)


def in_window(context):
    """A window of such a tensor is mapped, as after share_memory_()."""
    torchcomms.share_cpu_tensors()
    try:
        comm = on_cpu(context, "window")
        memory = torch.zeros(50_000)
        window = comm.new_window(memory)
        peer = (context.rank + 1) % context.size
        window.put(torch.full((50_000,), float(context.rank + 1)), peer, 0, False)
        window.signal(peer, False)
        window.wait_signal((context.rank - 1) % context.size, False)
        expected = float((context.rank - 1) % context.size + 1)
        right = bool((memory == expected).all())
        window.tensor_deregister()
        comm.finalize()
    finally:
        torchcomms.share_cpu_tensors(False)
    return [] if right else ["what was put is not there"]


def test_they_can_be_windows(world):
    check_context(world, in_window)
