"""What inductor's code does with the tensors of operations."""

from __future__ import annotations

import torch
from torchcomms import ReduceOp

from tests.python.compiled.cases import case, code_of, compiled, same
from tests.python.compiled.passes import CASES_OF_WAITS, expect_behind_waits


@case
def inductor_writes_in_place_and_copies_nothing(comm, backend):
    """One operator a call, the in-place one; no buffer beyond what the program makes."""

    def step(comm, x):
        comm.all_reduce(x, ReduceOp.SUM, False)
        out = torch.empty(x.numel() * comm.get_size())
        comm.all_gather_single(out, x, True).wait()
        return out

    x = torch.arange(64.0)
    got, code = code_of(step, comm, x)
    same(x, torch.arange(64.0) * comm.get_size())
    same(got, torch.cat([x] * comm.get_size()))
    body = code[code.index("def call") :]
    for name in ("torchcomm_all_reduce_.", "torchcomm_all_gather_single_.", "wait_tensors_."):
        assert name in body, f"{name} not in\n{body}"
    for name in ("torchcomm_all_reduce.", "all_gather_single.", "wait_tensors.", "copy", "clone"):
        assert name not in body, f"{name} in\n{body}"
    assert body.count("= empty_strided_cpu(") == 1, body


@case
def inductor_copies_what_is_still_read(comm, backend):
    """Where the old value is read after the call, the call works on a tensor of its own."""

    def step(comm, x):
        y = x * 2
        z = y.clone()
        comm.all_reduce(z, ReduceOp.SUM, False)
        return y, z

    y, z = compiled(step, "inductor")(comm, torch.ones(8))
    same((y, z), (torch.full((8,), 2.0), torch.full((8,), 2.0 * comm.get_size())))


@case
def inductor_keeps_what_comes_after_a_wait_behind_it(comm, backend):
    """In the graph that inductor's passes over operators make. Later it writes in place."""
    from torch._inductor import config

    for step, want in CASES_OF_WAITS:
        x, looked = torch.full((3,), 1.0 + comm.get_rank()), []

        def look(graph, looked=looked):
            expect_behind_waits(graph, comm)
            looked.append(True)

        with config.patch(post_grad_custom_post_pass=look):
            same(compiled(step, "inductor")(comm, x), want(comm, x))
        assert looked == [True]


@case
def inductor_does_not_reuse_what_is_being_sent(comm, backend):
    def step(comm, x):
        sent = x * 3
        out = torch.empty(x.numel() * comm.get_size())
        work = comm.all_gather_single(out, sent, True)
        a = torch.sin(x)
        comm.broadcast(a, 0, False)  # made between the call and its wait
        work.wait()
        return out, a

    x = torch.arange(64.0)
    got, code = code_of(step, comm, x)
    assert "# reuse" not in code
    same(got[0], torch.cat([x * 3] * comm.get_size()))
