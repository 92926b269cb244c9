"""Gradients of operations, against plain torch."""

from __future__ import annotations

import torch
from torchcomms import ReduceOp

from tests.python.compiled.cases import case, compiled, counted, outs, same


def summed(op):
    """What all_reduce is in plain torch: of all ranks' inputs, all ranks' outputs."""

    def run(xs):
        total = torch.stack(xs).sum(0)
        return [total / len(xs) if op == "avg" else total * (0.5 if op == "premul" else 1.0)] * len(
            xs
        )

    return run


def chunks(rank, x, size):
    return x.chunk(size)[rank]


def exchanged(xs):
    return [torch.cat([chunks(r, x, len(xs)) for x in xs]) for r in range(len(xs))]


def exchanged_unevenly(xs):
    """To rank i go i + 1 rows."""
    rows = [i + 1 for i in range(len(xs))]
    return [
        torch.cat([torch.cat([x] * len(xs))[: sum(rows)].split(rows)[r] for x in xs])
        for r in range(len(xs))
    ]


def exchanged_in_part(xs):
    """A row to each rank; the rows after those that came are twice the own ones."""
    size = len(xs)
    return [torch.cat([*(x[r : r + 1] for x in xs), 2 * xs[r][size:]]) for r in range(size)]


def scattered(factor):
    def run(xs):
        parts = [[x * (i + 1) for i in range(len(xs))] for x in xs]
        scale = 1 / len(xs) if factor == "avg" else 1.0
        return [torch.stack([part[r] for part in parts]).sum(0) * scale for r in range(len(xs))]

    return run


def chunked(xs):
    total = torch.stack(xs).sum(0)
    return [chunks(r, total, len(xs)) for r in range(len(xs))]


def returned(method, make, *rest):
    """The call that returns its result, with its gradient."""
    return lambda comm, x: getattr(comm, method)(make(comm, x), x, *rest, async_op=False)


def returned_in_place(op):
    return lambda comm, x: comm.all_reduce(x * 1, op, async_op=False)


def returned_scatter(op):
    def run(comm, x):
        inputs = [x * (i + 1) for i in range(comm.get_size())]
        return comm.reduce_scatter(torch.zeros_like(x), inputs, op, async_op=False)

    return run


def returned_uneven(comm, x):
    size, rank = comm.get_size(), comm.get_rank()
    splits = [i + 1 for i in range(size)]
    rows = torch.cat([x] * size)[: sum(splits)]
    out = x.new_zeros(size * (rank + 1), x.size(1))
    return comm.all_to_all_v_single(out, rows, [rank + 1] * size, splits, async_op=False)


def returned_in_part(comm, x):
    rows = [1] * comm.get_size()
    return comm.all_to_all_v_single(x * 2, x, rows, rows, async_op=False)


def returned_as_a_row_each(comm, x):
    rows = comm.all_gather(outs(comm, x), x.reshape(-1), async_op=False)
    return torch.cat(rows)


def returned_scatter_of_rows(comm, x):
    inputs = [(x * (i + 1)).reshape(1, -1) for i in range(comm.get_size())]
    return comm.reduce_scatter(torch.zeros_like(x), inputs, ReduceOp.SUM, async_op=False)


def times(comm, x):
    return x.new_zeros(x.size(0) * comm.get_size(), x.size(1))


def part(comm, x):
    return x.new_zeros(x.size(0) // comm.get_size(), x.size(1))


GRADIENTS = {
    "all_reduce sum": (returned_in_place(ReduceOp.SUM), summed("sum")),
    "all_reduce avg": (returned_in_place(ReduceOp.AVG), summed("avg")),
    "all_reduce premul": (returned_in_place(ReduceOp.PREMUL_SUM(0.5)), summed("premul")),
    "all_gather": (
        lambda comm, x: torch.cat(comm.all_gather(outs(comm, x), x, async_op=False)),
        lambda xs: [torch.cat(xs)] * len(xs),
    ),
    "all_gather_single": (
        returned("all_gather_single", times),
        lambda xs: [torch.cat(xs)] * len(xs),
    ),
    "all_gather, other shapes": (returned_as_a_row_each, lambda xs: [torch.cat(xs)] * len(xs)),
    "reduce_scatter": (returned_scatter(ReduceOp.SUM), scattered("sum")),
    "reduce_scatter, other shapes": (returned_scatter_of_rows, scattered("sum")),
    "reduce_scatter avg": (returned_scatter(ReduceOp.AVG), scattered("avg")),
    "reduce_scatter_single": (returned("reduce_scatter_single", part, ReduceOp.SUM), chunked),
    "all_to_all_single": (
        returned("all_to_all_single", lambda comm, x: torch.zeros_like(x)),
        exchanged,
    ),
    "all_to_all_v_single": (returned_uneven, exchanged_unevenly),
    "all_to_all_v_single in part": (returned_in_part, exchanged_in_part),
}


def weighted(out, rank):
    """A loss that differs from rank to rank and from element to element."""
    weight = torch.linspace(0.5, 2.0, out.numel(), dtype=out.dtype).reshape(out.shape)
    return (out**2 * weight * (rank + 1)).sum()


def everyone(size):
    return [
        torch.sin(torch.arange(12.0, dtype=torch.float64) + 5 * r).reshape(4, 3).requires_grad_()
        for r in range(size)
    ]


@case
def gradients_are_those_of_plain_torch(comm, backend):
    """The gradient of the sum of all ranks' losses, eager and compiled, one graph for all."""
    rank, size = comm.get_rank(), comm.get_size()

    def losses(comm, inputs):
        return sum(
            weighted(run(comm, x), rank)
            for (run, _), x in zip(GRADIENTS.values(), inputs, strict=True)
        )

    function, compilations = counted(losses, backend)
    want = []
    for _, plain in GRADIENTS.values():
        xs = everyone(size)
        sum(weighted(out, r) for r, out in enumerate(plain(xs))).backward()
        want.append(xs[rank].grad)
    for run in (losses, function, function):
        inputs = [everyone(size)[rank] for _ in GRADIENTS]
        run(comm, inputs).backward()
        for name, x, gradient in zip(GRADIENTS, inputs, want, strict=True):
            torch.testing.assert_close(x.grad, gradient, msg=lambda text, n=name: f"{n}: {text}")
    assert compilations() == 1


@case
def what_comes_after_an_asynchronous_call_carries_its_gradient(comm, backend):
    def step(comm, x):
        y = x * 2
        work = comm.all_reduce(y, ReduceOp.SUM, async_op=True)
        work.wait()
        return (y**2).sum()

    x = (torch.arange(4.0) + comm.get_rank()).requires_grad_()
    compiled(step, backend)(comm, x).backward()
    size = comm.get_size()
    total = sum(2 * (torch.arange(4.0) + r) for r in range(size))
    same(x.grad, 2 * total * 2 * size)


@case
def a_leaf_that_requires_grad_is_written_and_the_result_carries_the_gradient(comm, backend):
    def step(comm, x):
        result = comm.all_reduce(x, ReduceOp.SUM, async_op=False)
        return (result**2).sum()

    seen = []
    for function in (step, compiled(step, backend)):
        x = (torch.arange(3.0) + comm.get_rank()).requires_grad_()
        function(comm, x).backward()
        seen.append((x.detach().clone(), x.grad))
    same(seen[1], seen[0])
    total = sum(torch.arange(3.0) + r for r in range(comm.get_size()))
    same(seen[0][0], total)
    same(seen[0][1], 2 * total * comm.get_size())


@case
def what_backward_keeps_is_not_the_callers_tensor(comm, backend):
    """The changed argument is kept for backward, which may write to what it gets."""

    def step(comm, x, w):
        comm.all_reduce(x, ReduceOp.SUM, False)
        scaled = torch.ops.torchcomms.torchcomm_all_reduce(comm, (x * w).sin(), ReduceOp.SUM)
        return scaled.sum()

    seen = []
    for function in (step, compiled(step, backend)):
        x, w = torch.arange(64.0) + comm.get_rank(), torch.ones(64, requires_grad=True)
        function(comm, x, w).backward()
        seen.append((x, w.grad))
    same(seen[1], seen[0])
    same(seen[1][0], sum(torch.arange(64.0) + r for r in range(comm.get_size())))


@case
def outputs_that_were_equal_before_stay_apart(comm, backend):
    """Equal constants may be one tensor in a graph that has gradients."""
    size, rank = comm.get_size(), comm.get_rank()

    def gathered(x):
        into = [torch.zeros(2) for _ in range(size)]
        comm.all_gather(into, x.detach(), False)
        return into

    def exchanged_rows(x):
        into = [x.new_zeros(2) for _ in range(size)]
        comm.all_to_all(into, [x.detach() * (i + 1) for i in range(size)], False)
        return into

    def at_the_root(x):
        into = [torch.full((2,), 7.0) for _ in range(size)]
        comm.gather(into, x.detach(), 0, False)
        return into

    def output_as_input(x):
        out = torch.ones(2)
        comm.reduce_scatter(out, [torch.ones(2) for _ in range(size)], ReduceOp.SUM, False)
        return [out]

    def step(x):
        results = [run(x) for run in (gathered, exchanged_rows, at_the_root, output_as_input)]
        return [(torch.stack(rows) * x).sum(0) for rows in results]

    seen = []
    for function in (step, compiled(step, backend)):
        x = torch.tensor([1.0 + 10 * rank, 2.0 + 10 * rank], requires_grad=True)
        sums = function(x)
        torch.stack(sums).sum().backward()
        seen.append(([one.detach() for one in sums], x.grad))
    same(seen[1], seen[0])
