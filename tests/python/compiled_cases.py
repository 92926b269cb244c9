"""Programs of functions that torch.compile takes: run by test_functional_compile.py, a rank each.

Compile support is on in them, which `import torchcomms` decides for a whole process.
"""

from __future__ import annotations

import json
import operator
import sys
import traceback
from collections.abc import Callable

import torch
import torchcomms
from torchcomms import ReduceOp, Timeout, functional

from tests.harness.cases import refused

Comm = torchcomms.TorchComm
CASES: dict[str, Callable[[Comm, str], None]] = {}
ALONE: dict[str, Callable[[Comm, str], None]] = {}


def case(function):
    """A case that several ranks run; what its name says holds if it returns."""
    CASES[function.__name__] = function
    return function


def alone(function):
    """A case of one rank."""
    ALONE[function.__name__] = function
    return function


def main(kind: str, backend: str, names: list[str]) -> None:
    """Runs the cases on one communicator, and prints what became of each as JSON."""
    cases = {"together": CASES, "alone": ALONE}[kind]
    made = "fake" if kind == "alone" else "gloo"
    comm = torchcomms.new_comm(made, torch.device("cpu"), "compiled")
    results = dict.fromkeys(names, "not reached: a case before it has failed")
    for name in names:
        torch._dynamo.reset()
        try:
            cases[name](comm, backend)
        except Exception:
            results[name] = traceback.format_exc()
            break  # the ranks may be apart
        results[name] = ""
    print(json.dumps(results))
    sys.stdout.flush()


def compiled(function, backend):
    return torch.compile(function, backend=backend, fullgraph=True)


def counted(function, backend):
    """The compiled function, and how often it was compiled."""
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend(backend)
    return compiled(function, counter), lambda: counter.frame_count


def code_of(function, *arguments):
    """The result, and what inductor made of the function."""
    from torch._inductor.utils import run_and_get_code

    result, code = run_and_get_code(compiled(function, "inductor"), *arguments)
    return result, "\n".join(code)


def same(got, want):
    torch.testing.assert_close(got, want)


def ramp(comm, rows=2):
    return (torch.arange(rows * 3.0) + 10 * comm.get_rank()).reshape(rows, 3)


def outs(comm, like):
    return [torch.zeros_like(like) for _ in range(comm.get_size())]


def pairwise(comm, x):
    """Every rank sends to the next one and receives from the one before."""
    size, rank = comm.get_size(), comm.get_rank()
    got = torch.zeros_like(x)
    sent = comm.send(x, (rank + 1) % size, True)
    comm.recv(got, (rank - 1) % size, True).wait()
    sent.wait()
    return got


def in_place(method, *rest):
    def run(comm, x):
        getattr(comm, method)(x, *rest, False)
        return x

    return run


def into(method, rows, *rest):
    """`rows(size)` times the input's rows come out."""

    def run(comm, x):
        factor = rows(comm.get_size())
        out = x.new_zeros(int(x.size(0) * factor), x.size(1))
        getattr(comm, method)(out, x, *rest, True).wait()
        return out

    return run


def list_to_one(method, *rest):
    def run(comm, x):
        out = torch.zeros_like(x)
        inputs = [x * (i + 1) for i in range(comm.get_size())]
        getattr(comm, method)(out, inputs, *rest, False)
        return out

    return run


def one_to_list(method, *rest):
    def run(comm, x):
        lists = outs(comm, x)
        getattr(comm, method)(lists, x, *rest, True).wait()
        return torch.stack(lists)

    return run


def uneven(comm, x):
    size, rank = comm.get_size(), comm.get_rank()
    out = x.new_zeros(size * (rank + 1), x.size(1))
    splits = [i + 1 for i in range(size)]
    rows = torch.cat([x] * size)[: sum(splits)]
    comm.all_to_all_v_single(out, rows, [rank + 1] * size, splits, False)
    return out


def lists(comm, x):
    out = outs(comm, x)
    comm.all_to_all(out, [x + i for i in range(comm.get_size())], False)
    return torch.stack(out)


def gathered(comm, x):
    """Ranks other than the root may pass a list of one tensor that nobody looks at."""
    out = outs(comm, x) if comm.get_rank() == 0 else [torch.zeros_like(x)]
    comm.gather(out, x, 0, False)
    return torch.stack(out)


def waited(comm, x):
    comm.barrier(False)
    comm.barrier(async_op=True).wait()
    return x + 1


OPERATIONS = {
    "send recv": pairwise,
    "broadcast": in_place("broadcast", 1),
    "all_reduce": in_place("all_reduce", ReduceOp.SUM),
    "all_reduce max": in_place("all_reduce", ReduceOp.MAX),
    "all_reduce premul": in_place("all_reduce", ReduceOp.PREMUL_SUM(0.5)),
    "reduce": in_place("reduce", 0, ReduceOp.SUM),
    "all_gather": one_to_list("all_gather"),
    "all_gather_v": one_to_list("all_gather_v"),
    "all_gather_single": into("all_gather_single", lambda size: size),
    "reduce_scatter": list_to_one("reduce_scatter", ReduceOp.AVG),
    "reduce_scatter_v": list_to_one("reduce_scatter_v", ReduceOp.SUM),
    "reduce_scatter_single": into("reduce_scatter_single", lambda size: 1 / size, ReduceOp.SUM),
    "all_to_all_single": into("all_to_all_single", lambda size: 1),
    "all_to_all_v_single": uneven,
    "all_to_all": lists,
    "scatter": list_to_one("scatter", 1),
    "gather": gathered,
    "gather_single": into("gather_single", lambda size: size, 0),
    "barrier": waited,
}


@case
def every_operation_gives_what_it_gives_eagerly(comm, backend):
    """One graph of all operations; equal results, equal changes, in the same order."""

    def everything(comm, inputs):
        return [run(comm, x) for run, x in zip(OPERATIONS.values(), inputs, strict=True)]

    def run(function):
        inputs = [ramp(comm) + i for i in range(len(OPERATIONS))]
        issued = []
        handle = comm.register_pre_hook(lambda name, op_id, args: issued.append(str(name)))
        results = function(comm, inputs)
        handle.remove()
        return results, inputs, issued

    want = run(everything)
    function, compilations = counted(everything, backend)
    for _ in range(2):
        got = run(function)
        same(got[:2], want[:2])
        assert got[2] == want[2], "other operations, or another order"
    assert compilations() == 1


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
    "reduce_scatter": (returned_scatter(ReduceOp.SUM), scattered("sum")),
    "reduce_scatter avg": (returned_scatter(ReduceOp.AVG), scattered("avg")),
    "reduce_scatter_single": (returned("reduce_scatter_single", part, ReduceOp.SUM), chunked),
    "all_to_all_single": (
        returned("all_to_all_single", lambda comm, x: torch.zeros_like(x)),
        exchanged,
    ),
    "all_to_all_v_single": (returned_uneven, exchanged_unevenly),
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
def an_operation_whose_result_is_not_used_still_runs(comm, backend):
    def step(comm, x):
        comm.all_reduce(x * 2, ReduceOp.SUM, False)
        functional.all_reduce(comm, x)
        comm.barrier(False)
        return x + 1

    issued = []
    handle = comm.register_pre_hook(lambda name, op_id, args: issued.append(str(name)))
    compiled(step, backend)(comm, torch.ones(3))
    handle.remove()
    assert [name.split(".")[-1] for name in issued] == ["all_reduce", "all_reduce", "barrier"]


@case
def answers_about_the_communicator_are_constants(comm, backend):
    def step(x):
        assert comm.get_name() == "compiled"
        return x * comm.get_size() + comm.get_rank(), str(comm.get_device())

    got = compiled(step, backend)(torch.ones(2))
    same(got[0], torch.ones(2) * comm.get_size() + comm.get_rank())
    assert got[1] == "cpu"


@case
def recompiles_are_one_a_communicator(comm, backend):
    def step(comm, x):
        comm.all_reduce(x, ReduceOp.SUM, False)
        return x * comm.get_size()

    function, compilations = counted(step, backend)
    other = comm.split(list(range(comm.get_size())), "other")
    for group, count in ((comm, 1), (comm, 1), (other, 2), (other, 2), (comm, 2)):
        same(function(group, torch.ones(3)), torch.ones(3) * comm.get_size() ** 2)
        assert compilations() == count
    other.finalize()


@case
def another_size_takes_one_graph_for_all_sizes(comm, backend):
    def step(comm, x):
        out = x.new_empty(x.size(0) * comm.get_size())
        comm.all_gather_single(out, x, False)
        comm.all_reduce(out, ReduceOp.SUM, False)
        return out + 1

    function, compilations = counted(step, backend)
    for rows in (4, 6, 9, 12):
        x = torch.arange(float(rows)) + comm.get_rank()
        same(function(comm, x.clone()), step(comm, x.clone()))
    assert compilations() <= 2


@case
def parameters_have_defaults_and_limits_are_timeouts(comm, backend):
    def step(x):
        comm.all_reduce(x, ReduceOp.SUM)
        comm.all_reduce(x, op=ReduceOp.SUM, timeout=Timeout(seconds=20), hints={"any": "thing"})
        comm.all_reduce(tensor=x, op=ReduceOp.PREMUL_SUM(0.5), async_op=True).wait()
        return x

    size = comm.get_size()
    same(compiled(step, backend)(torch.ones(2)), torch.ones(2) * size**3 / 2)


@case
def windows_are_arguments(comm, backend):
    del comm
    world = torchcomms.new_comm("ctran", torch.device("cpu"), "windows")
    rank, size = world.get_rank(), world.get_size()
    memory = torch.zeros(4 * size)
    window = world.new_window()
    window.tensor_register(memory)

    def step(window, x):
        window.put(x * 2, (rank + 1) % size, 4 * rank, False)
        window.signal((rank + 1) % size, async_op=True).wait()
        window.wait_signal((rank - 1) % size, False)
        mine = window.map_remote_tensor(rank)
        mine += window.get_size()  # a graph's own tensor: the window stays as it is
        return mine + torch.ones(list(window.shape), dtype=window.dtype, device=window.device)

    x = torch.arange(4.0) + rank
    function, compilations = counted(step, backend)
    for _ in range(2):
        got = function(window, x)
        before = (rank - 1) % size
        held = torch.zeros(4 * size)
        held[4 * before : 4 * before + 4] = 2 * (torch.arange(4.0) + before)
        same(memory, held)
        same(got, held + 16 * size + 1)
        world.barrier(False)
    assert compilations() == 1
    window.tensor_deregister()
    world.finalize()


@case
def batches_are_arguments(comm, backend):
    size, rank = comm.get_size(), comm.get_rank()

    def step(batch, x, out):
        mine = torch.zeros_like(x)
        batch.send(x * 2, (rank + 1) % size)
        batch.recv(out, (rank - 1) % size)
        batch.send(x * 3, (rank + 1) % size)
        batch.recv(mine, (rank - 1) % size)
        work = batch.issue(async_op=True)
        other = torch.sin(x)
        work.wait()
        return out + 1, mine * 2, other

    x = torch.arange(4.0) + rank
    function, compilations = counted(step, backend)
    for _ in range(3):
        out = torch.zeros(4)
        first, second, other = function(comm.batch_op_create(), x, out)
        before = torch.arange(4.0) + (rank - 1) % size
        same((out, first, second, other), (before * 2, before * 2 + 1, before * 6, torch.sin(x)))
    assert compilations() == 1


@case
def functional_collectives_stand_in_the_same_graphs(comm, backend):
    def step(comm, x):
        mean = functional.all_reduce(comm, x, "avg")
        comm.all_reduce(x, ReduceOp.SUM, False)
        return functional.all_gather(comm, mean).sum() + x.sum()

    x, y = ramp(comm), ramp(comm)
    same((compiled(step, backend)(comm, x), x), (step(comm, y), y))


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


@case
def results_of_eager_calls_carry_grad(comm, backend):
    """The table of eager behaviour: with and without grad, synchronous and not."""
    from torchcomms.functional.async_tensor import TorchCommsAsyncTensor

    size = comm.get_size()
    total = sum(torch.arange(4.0) + r for r in range(size))

    def leaf():
        return (torch.arange(4.0) + comm.get_rank()).requires_grad_()

    for x in (leaf().detach(), leaf()):
        with torch.no_grad():
            assert isinstance(comm.all_reduce(x, ReduceOp.SUM, False), torchcomms.TorchWork)
        same(x.detach(), total)
    x = leaf()
    result = comm.all_reduce(x, ReduceOp.SUM, False)
    same((result.detach(), x.detach()), (total, total))
    (result * 3).sum().backward()
    same(x.grad, torch.full((4,), 3.0 * size))
    x = leaf()
    later = comm.all_reduce(x, ReduceOp.SUM, 1)  # anything with a truth value
    assert isinstance(later, TorchCommsAsyncTensor)
    assert later.shape == (4,)
    assert later.grad_fn is not None
    assert not later.is_leaf
    assert not later.completed, "looking at the shape is no use"
    (later * 3).sum().backward()
    assert later.completed
    same(x.grad, torch.full((4,), 3.0 * size))
    x = leaf()
    lists = comm.all_gather([torch.zeros(4) for _ in range(size)], x, True)
    assert all(isinstance(one, TorchCommsAsyncTensor) for one in lists)
    torch.stack([one * (i + 1) for i, one in enumerate(lists)]).sum().backward()
    same(x.grad, torch.full((4,), float(size * (comm.get_rank() + 1))))
    x = leaf()
    assert isinstance(comm.broadcast(x, 0, False), torchcomms.TorchWork), "it has no gradient"


@case
def what_has_no_gradient_says_so(comm, backend):
    x = torch.ones(3, requires_grad=True)
    result = comm.all_reduce(x, ReduceOp.MAX, False)
    with refused(torchcomms.Unsupported, "MAX", "SUM"):
        result.sum().backward()


@case
def a_saved_value_that_was_overwritten_is_noticed(comm, backend):
    x = torch.ones(3, requires_grad=True)
    y = x.exp()  # saves its result
    comm.all_reduce(y, ReduceOp.SUM, False)
    with refused(RuntimeError, "modified by an inplace operation"):
        y.sum().backward()


@alone
def tensors_without_memory_are_not_sent(comm, backend):
    from torch._subclasses.fake_tensor import FakeTensorMode

    issued = []
    handle = comm.register_pre_hook(lambda name, op_id, args: issued.append(name))
    meta = torch.empty(4, device="meta")
    assert comm.all_reduce(meta, ReduceOp.SUM, False) is None
    assert comm.all_reduce(meta, ReduceOp.SUM, True).wait() is meta
    assert comm.all_gather([meta], meta, False) is None
    with FakeTensorMode():
        fake = torch.empty(4)
        assert comm.all_reduce(fake, ReduceOp.SUM, False) is None
        comm.all_gather_single(torch.empty(4), fake, True).wait()
        assert comm.barrier(False) is None
        comm.send(fake, 0, True).wait()
    handle.remove()
    assert issued == []


@alone
def the_classes_have_the_metaclass(comm, backend):
    module = sys.modules["torchcomms._opaque_meta"]
    for cls in (ReduceOp, Comm, torchcomms.TorchCommWindow, torchcomms.BatchSendRecv, Timeout):
        assert type(cls) is module.OpaqueBaseMeta, cls
    assert type(torchcomms.TorchWork) is not module.OpaqueBaseMeta
    assert module.OpaqueBaseMeta is torch._custom_class_base.CustomClassBaseMeta
    assert isinstance(comm, Comm)
    assert not isinstance(3, Comm)
    assert Timeout(seconds=2).total_seconds() == 2
    assert Comm.all_reduce.__doc__.count("Raises") == 1
    for wrong in (lambda: Comm(), lambda: torchcomms.TorchCommWindow()):
        with refused(TypeError):
            wrong()


@alone
def operators_have_their_signatures(comm, backend):
    from torchcomms.functional.registry import _REGISTERED_COLLECTIVES, register_collective

    ops = torch.ops.torchcomms
    mutating = {
        "all_reduce": "Tensor(a!)", "reduce": "Tensor(a!)", "broadcast": "Tensor(a!)",
        "recv": "Tensor(a!)", "all_gather": "Tensor(a!)[]", "all_gather_v": "Tensor(a!)[]",
        "all_gather_single": "Tensor(a!)", "reduce_scatter": "Tensor(a!)",
        "reduce_scatter_v": "Tensor(a!)", "reduce_scatter_single": "Tensor(a!)",
        "all_to_all_single": "Tensor(a!)", "all_to_all_v_single": "Tensor(a!)",
        "all_to_all": "Tensor(a!)[]", "scatter": "Tensor(a!)", "gather": "Tensor(a!)[]",
        "gather_single": "Tensor(a!)",
    }  # fmt: skip
    for method, returned_type in mutating.items():
        in_place_op = getattr(ops, f"torchcomm_{method}_").default
        assert str(in_place_op._schema).endswith(f"-> {returned_type}"), in_place_op._schema
        whole = str(getattr(ops, f"torchcomm_{method}").default._schema)
        assert "!" not in whole, whole
        assert (Comm, method) in _REGISTERED_COLLECTIVES
    for name in ("torchcomm_send", "torchcomm_barrier", "torchcommwindow_put",
                 "torchcommwindow_signal", "torchcommwindow_wait_signal"):  # fmt: skip
        assert str(getattr(ops, name).default._schema).endswith("-> Tensor")
        assert not hasattr(ops, f"{name}_")
    assert hasattr(ops, "torchcommwindow_map_remote_tensor")
    assert hasattr(ops, "batchsendrecv_send")
    assert hasattr(ops, "batchsendrecv_recv_")
    for cls, method in ((Comm, "all_reduce"), (Comm, "all_reduced")):
        with refused(ValueError, method):
            register_collective(cls, method, [])


@alone
def waiting_for_tensors_is_the_identity(comm, backend):
    ops = torch.ops.torchcomms
    tensors = [torch.arange(3.0), torch.ones(2, requires_grad=True)]
    assert str(ops.torchcomm_wait_tensors.default._schema).endswith(
        "(Tensor[] tensors) -> Tensor[]"
    )
    new = ops.torchcomm_wait_tensors(tensors)
    same([t.detach() for t in new], [t.detach() for t in tensors])
    assert all(a.data_ptr() != b.data_ptr() for a, b in zip(new, tensors, strict=True))
    (new[1] * 3).sum().backward()
    same(tensors[1].grad, torch.full((2,), 3.0))
    old = ops.torchcomm_wait_tensors_([tensors[0]])
    assert old[0].data_ptr() == tensors[0].data_ptr()


def graph_of(function, *arguments, passes=()):
    """What the function returns with `passes` over its graph, and the graph before and after."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    texts = []

    def compiler(gm, example_inputs):
        texts.append(str(gm.code))
        for change in passes:
            assert change(gm, example_inputs) is gm
        texts.append(str(gm.code))
        return make_boxed_func(gm.forward)

    backend = aot_autograd(fw_compiler=compiler, keep_inference_input_mutations=True)
    return compiled(function, backend)(*arguments), texts


@case
def in_graphs_what_is_used_after_the_wait_flows_from_it(comm, backend):
    def step(comm, x):
        work = comm.all_reduce(x, ReduceOp.SUM, async_op=True)
        work.wait()
        return x + 1

    graphs = []

    def look(gm, example_inputs):
        graphs.append(gm.graph)
        from functorch.compile import make_boxed_func

        return make_boxed_func(gm.forward)

    from torch._dynamo.backends.common import aot_autograd

    compiled(step, aot_autograd(fw_compiler=look))(comm, torch.ones(3))
    (add,) = [n for n in graphs[0].nodes if n.target is torch.ops.aten.add.Tensor]
    behind, node = [], add.args[0]
    while node.op == "call_function" and len(behind) < 10:
        behind.append(str(node.args[1]) if "with_effects" in str(node.target) else "")
        node = node.args[0]
        if any(behind):
            break
    assert behind[-1] == "torchcomms.torchcomm_wait_tensors.default", behind


@case
def passes_leave_the_results_as_they_are(comm, backend):
    """All operators in place, all wrappers gone, and the program's results unchanged."""
    from torchcomms.functional.passes import reinplacement_pass, strip_with_effects_pass

    size = comm.get_size()

    def step(comm, x):
        y = x * 2
        comm.all_reduce(y, ReduceOp.SUM, True).wait()
        comm.all_reduce(x, ReduceOp.SUM, True).wait()
        lists = [torch.empty(4) for _ in range(size)]
        comm.all_gather(lists, y, True).wait()
        comm.barrier(False)
        comm.all_reduce(lists[0], ReduceOp.SUM, True).wait()
        return y, x + 1, torch.stack(lists)

    x, other = torch.arange(4.0), torch.arange(4.0)
    want = step(comm, x)
    got, (before, after) = graph_of(
        step, comm, other, passes=(reinplacement_pass, strip_with_effects_pass)
    )
    same((got, other), (want, x))
    assert "with_effects" in before
    assert "with_effects" not in after
    for name in ("all_reduce", "all_gather", "wait_tensors"):
        assert f"torchcomm_{name}.default" in before
        assert f"torchcomm_{name}.default" not in after, after
        assert f"torchcomm_{name}_.default" in after
    assert "copy_" in before
    assert "copy_" not in after


@alone
def a_value_that_is_read_later_is_not_written_to(comm, backend):
    from torchcomms.functional.passes import reinplacement_pass, strip_with_effects_pass

    passes = (strip_with_effects_pass, reinplacement_pass)

    def read_later(comm, x):
        y = x * 2
        z = torch.ops.torchcomms.torchcomm_all_reduce(comm, y, ReduceOp.SUM)
        return y + z

    def an_input(comm, x):
        return torch.ops.torchcomms.torchcomm_all_reduce(comm, x, ReduceOp.SUM) + 1

    def a_view_is_read(comm, x):
        y = x * 2
        view = y.view(2, 2)
        z = torch.ops.torchcomms.torchcomm_all_reduce(comm, y, ReduceOp.SUM)
        return view + z.view(2, 2)

    def twice_the_same(comm, x):
        y = x * 2
        return torch.ops.torchcomms.torchcomm_all_gather(comm, [y, y], x)[0] + 1

    for function in (read_later, an_input, a_view_is_read, twice_the_same):
        _, (_, after) = graph_of(function, comm, torch.ones(4), passes=passes)
        assert "_.default" not in after, (function.__name__, after)

    def free(comm, x):
        return torch.ops.torchcomms.torchcomm_all_reduce(comm, x * 2, ReduceOp.SUM) + 1

    _, (_, after) = graph_of(free, comm, torch.ones(4), passes=passes)
    assert "torchcomm_all_reduce_.default" in after


def effects_graph(op, *arguments):
    """A graph by hand: a token comes in, `op` runs in a wrapper, token and result go out."""
    graph = torch.fx.Graph()
    token, x = graph.placeholder("token"), graph.placeholder("x")
    wrapper = torch.ops.higher_order.with_effects
    call = graph.call_function(wrapper, (token, op, *arguments, x))
    graph.output(tuple(graph.call_function(operator.getitem, (call, at)) for at in range(2)))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


@alone
def wrappers_of_other_operators_stay(comm, backend):
    from torchcomms.functional.passes import strip_with_effects_pass

    foreign = effects_graph(torch.ops.aten.sin.default)
    assert "with_effects" in strip_with_effects_pass(foreign).code


@alone
def the_output_keeps_its_arity_without_tokens(comm, backend):
    from torchcomms.functional.passes import strip_with_effects_pass

    graph = torch.fx.Graph()
    token, group, x = (graph.placeholder(name) for name in ("token", "group", "x"))
    call = graph.call_function(
        torch.ops.higher_order.with_effects,
        (token, torch.ops.torchcomms.torchcomm_all_reduce.default, group, x, ReduceOp.SUM),
    )
    parts = [graph.call_function(operator.getitem, (call, index)) for index in range(2)]
    graph.output(tuple(parts))
    gm = strip_with_effects_pass(torch.fx.GraphModule(torch.nn.Module(), graph))
    out = next(iter(reversed(gm.graph.nodes)))
    assert len(out.args[0]) == 2
    assert "with_effects" not in str(gm.graph)
    token_out, result = gm(torch.empty(0), comm, torch.ones(3))
    assert token_out.numel() == 0
    same(result, torch.ones(3))


@alone
def operators_pass_torchs_own_checks(comm, backend):
    """Schema, and fake kernels against real ones."""
    x = torch.randn(4, dtype=torch.float64)
    ops = torch.ops.torchcomms
    for op, arguments in (
        (ops.torchcomm_all_reduce.default, (comm, x, ReduceOp.SUM)),
        (ops.torchcomm_all_gather.default, (comm, [torch.empty_like(x)], x)),
        (ops.torchcomm_all_to_all_v_single.default, (comm, x.clone(), x, [4], [4])),
        (ops.torchcomm_wait_tensors.default, ([x],)),
    ):
        torch.library.opcheck(op, arguments, test_utils=("test_schema",))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
