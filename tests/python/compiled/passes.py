"""Graphs, and what the passes make of them."""

from __future__ import annotations

import operator

import torch
from torchcomms import ReduceOp

from tests.harness.cases import refused
from tests.python.compiled.cases import alone, case, compiled, same


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


def is_wait(node):
    """Whether a node waits: as it is, or in a wrapper that keeps effects in order."""
    wrapped = node.args[1] if "with_effects" in str(node.target) else node.target
    return "torchcomm_wait_tensors" in str(wrapped)


def stands_behind_a_wait(node):
    """Whether a value is what a wait returns, or is made of that."""
    return is_wait(node) or any(map(stands_behind_a_wait, node.all_input_nodes))


def results_of(graph, count):
    """The last values that a graph returns: before them are tokens, and inputs that it changes."""
    (output,) = [node for node in graph.nodes if node.op == "output"]
    values = output.args[0]
    return list(values)[-count:]


def returned(comm, x, rows, sent):
    """What wait() returns, of an operation that changes one tensor and of one of a list."""
    one = comm.all_reduce(x, ReduceOp.SUM, async_op=True).wait()
    several = comm.all_gather(rows, sent, async_op=True).wait()
    return [one, *several]


def used(comm, x, rows, sent):
    """What is used after wait()."""
    work = comm.all_reduce(x, ReduceOp.SUM, async_op=True)
    more = comm.all_gather(rows, sent, async_op=True)
    work.wait()
    more.wait()
    return [x * 2, *(row * 2 for row in rows)]


def behind(function, doubled):
    """The function on tensors that the graph makes, and what it gives eagerly."""

    def step(comm, x):
        rows = [torch.zeros_like(x) for _ in range(comm.get_size())]
        return function(comm, x + 0, rows, x * 3)

    def want(comm, x):
        ranks = [torch.full((3,), 1.0 + rank) for rank in range(comm.get_size())]
        return [factor * doubled for factor in (sum(ranks), *(3 * one for one in ranks))]

    return step, want


CASES_OF_WAITS = (behind(returned, 1), behind(used, 2))


def expect_behind_waits(graph, comm):
    results = results_of(graph, 1 + comm.get_size())
    late = [node for node in results if not stands_behind_a_wait(node)]
    assert not late, f"{late} do not come from a wait\n{graph}"


@case
def what_comes_after_a_wait_is_made_of_what_it_returns(comm, backend):
    """Of one tensor and of lists, before and after the graph is made functional."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    for at, (step, want) in enumerate(CASES_OF_WAITS):
        x = torch.full((3,), 1.0 + comm.get_rank())
        traced, functional = [], []

        def look(gm, example_inputs, functional=functional):
            functional.append(gm.graph)
            return make_boxed_func(gm.forward)

        def of_dynamo(gm, example_inputs, traced=traced, look=look):
            traced.append(gm.graph)
            return aot_autograd(fw_compiler=look)(gm, example_inputs)

        same(compiled(step, of_dynamo)(comm, x), want(comm, x))
        expect_behind_waits(functional[0], comm)
        if at == 0:  # a traced graph changes tensors: their names stay what they are
            expect_behind_waits(traced[0], comm)


@alone
def only_parts_of_a_tensor_are_waited_for_at_once(comm, backend):
    """A part's new value is copied into the whole, so that it must be there."""

    def waits(view):
        def step(comm, x):
            y = x * 2
            work = comm.all_reduce(view(y), ReduceOp.SUM, async_op=True)
            z = x + 1
            work.wait()
            return y + z

        _, (before, _) = graph_of(step, comm, torch.ones(1, 4))
        return before.count("torchcomm_wait_tensors.default")

    for whole in (lambda t: t, lambda t: t.view(-1), lambda t: t.t(), lambda t: t.detach()):
        assert waits(whole) == 1
    for part in (lambda t: t[0], lambda t: t[:, 1:], lambda t: t.unbind(0)[0]):
        assert waits(part) == 2


@alone
def a_batch_does_not_receive_into_a_part(comm, backend):
    """Its `issue` would write to a tensor that the graph has copied from by then."""

    def step(batch, x):
        batch.recv(x[0], 0)
        batch.issue(False)
        return x + 1

    with refused(Exception, "recv", "part of a tensor", "a whole one"):
        compiled(step, backend)(comm.batch_op_create(), torch.zeros(2, 2))


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

    def what_it_reads(comm, x):
        y = x * 2
        return torch.ops.torchcomms.torchcomm_all_gather_single(comm, y, y) + 1

    def what_it_reads_a_part_of(comm, x):
        y = x * 2
        return torch.ops.torchcomms.torchcomm_all_gather_single(comm, y, y[:4]) + 1

    for function in (
        read_later, an_input, a_view_is_read, twice_the_same, what_it_reads,
        what_it_reads_a_part_of,
    ):  # fmt: skip
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
