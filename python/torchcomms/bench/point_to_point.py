"""The measured point-to-point operations; `bytes` is the size of one message."""

from __future__ import annotations

from functools import partial

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from torchcomms import TorchComm
from torchcomms.bench.exchange import Call, Exchange, bench, timed

Pairs = list[tuple[torch.Tensor, torch.Tensor]]


@bench("send_recv")
class SendRecv(Exchange):
    """A ping-pong between ranks 2k and 2k+1; half a round trip is one message.

    An odd last rank does not take part.
    """

    min_ranks = 2
    messages = 2

    def allocate(self) -> None:
        self.out = self.case.empty(self.case.numel)
        self.back = self.case.empty(self.case.numel)
        self.first = self.case.rank % 2 == 0
        self.peer = self.case.rank + 1 if self.first else self.case.rank - 1

    def fill(self) -> None:
        self.out.copy_(self.case.sample(self.case.rank, self.case.numel))
        self.case.poison(self.back)

    def results(self) -> Pairs:
        if self.peer >= self.case.size:
            return []
        return [(self.back, self.case.sample(self.peer, self.case.numel))]

    def call(self, comm: TorchComm, async_op: bool) -> Call:
        send = partial(comm.send, self.out, self.peer, async_op)
        recv = partial(comm.recv, self.back, self.peer, async_op)
        return self._ping_pong(send, recv, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> Call:
        functions = (dist.isend, dist.irecv) if async_op else (dist.send, dist.recv)
        send: Call = partial(functions[0], self.out, self.peer, group)
        recv: Call = partial(functions[1], self.back, self.peer, group)
        return self._ping_pong(send, recv, async_op)

    def _ping_pong(self, send: Call, recv: Call, async_op: bool) -> Call:
        if self.peer >= self.case.size:
            return lambda: None
        one, two = (send, recv) if self.first else (recv, send)
        if not async_op:

            def sync() -> None:
                one()
                two()

            return sync

        def wait_each() -> None:
            one().wait()
            two().wait()

        return wait_each


@bench("batch")
class Batch(Exchange):
    """Every rank sends to the next rank and receives from the previous one, as one batch."""

    min_ranks = 2

    def allocate(self) -> None:
        self.out = self.case.empty(self.case.numel)
        self.into = self.case.empty(self.case.numel)
        self.next = (self.case.rank + 1) % self.case.size
        self.previous = (self.case.rank - 1) % self.case.size

    def fill(self) -> None:
        self.out.copy_(self.case.sample(self.case.rank, self.case.numel))
        self.case.poison(self.into)

    def results(self) -> Pairs:
        return [(self.into, self.case.sample(self.previous, self.case.numel))]

    def call(self, comm: TorchComm, async_op: bool) -> Call:
        batch = comm.batch_op_create()
        batch.send(self.out, self.next)
        batch.recv(self.into, self.previous)
        return timed(async_op, batch.issue, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> Call:
        operations = [
            dist.P2POp(dist.isend, self.out, self.next, group),
            dist.P2POp(dist.irecv, self.into, self.previous, group),
        ]

        def issue_and_wait() -> None:  # torch.distributed has only the asynchronous form
            for work in dist.batch_isend_irecv(operations):
                work.wait()

        return issue_and_wait
