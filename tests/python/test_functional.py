"""Collectives that return tensors: their values, gradients and shapes, and that they compile."""

from __future__ import annotations

import pytest
import torch
import torchcomms
from torchcomms import functional

from tests.harness.cases import assert_alive, refused
from tests.harness.environment import environment
from tests.harness.ports import free_port
from tests.harness.programs import python, ranks

SIZES = (1, 2, 3)


class TestTheGate:
    @pytest.mark.parametrize(
        ("version", "supported"),
        [("2.11.0", False), ("2.11.0+cu130", False), ("2.12.0.dev20250101", True), ("2.12.0", True),
         ("2.15.0+cu132", True), ("3.0", True)],
    )  # fmt: skip
    def test_by_version(self, version, supported):
        with environment(
            TORCHCOMMS_PATCH_FOR_COMPILE="1",
            TORCHCOMMS_COMPILE_IGNORE_PYTORCH_VERSION_REQUIREMENT=None,
        ):
            assert functional.is_torch_compile_supported(_current_version=version) is supported
            enabled = functional.is_torch_compile_supported_and_enabled(_current_version=version)
            assert enabled is supported
        assert functional.MIN_PYTORCH_VERSION_FOR_COMPILE == "2.12.0.dev0"

    def test_by_environment(self):
        with environment(
            TORCHCOMMS_PATCH_FOR_COMPILE=None,
            TORCHCOMMS_COMPILE_IGNORE_PYTORCH_VERSION_REQUIREMENT="1",
        ):
            assert functional.is_torch_compile_supported(_current_version="2.0")
            assert not functional.is_torch_compile_supported_and_enabled(_current_version="2.15")

    @pytest.mark.parametrize("switch", ["0", "1"])
    def test_the_top_level_imports_the_operators_only_when_asked(self, switch):
        python(
            f"""
            import sys
            import torch.distributed
            import torchcomms
            torchcomms.new_comm("fake", torch.device("cpu"), "first").finalize()
            there = "torchcomms.functional.collectives" in sys.modules
            assert there == hasattr(torchcomms.TorchComm, "_traceable")
            wanted = {switch} == 1 and torchcomms.functional.is_torch_compile_supported()
            assert there == wanted, (there, wanted)
            """,
            TORCHCOMMS_PATCH_FOR_COMPILE=switch,
        ).expect_success()

    @pytest.mark.skipif(
        not functional.is_torch_compile_supported(), reason="this torch has no compile support"
    )
    @pytest.mark.parametrize(
        "imports",
        ["import torch", "import torchcomms", "import torchcomms.functional.collectives",
         *(pytest.param(words, marks=pytest.mark.slow) for words in (
             "import torch; import torchcomms", "import torch.distributed", "from torch import nn",
             "import torch._dynamo"))],
    )  # fmt: skip
    def test_operators_are_there_in_every_order_of_imports(self, imports):
        """torch imports us while it is half loaded: no communicator has to be made first."""
        python(
            f"""
            {imports}
            import sys, torch
            assert torch.ops.torchcomms.torchcomm_all_reduce_.default
            assert torch.ops.torchcomms.torchcomm_wait_tensors.default
            from torchcomms.functional import registry
            more = torch.library.Library("torchcomms", "FRAGMENT")
            registry.finalize_registration(more)  # which has nothing to add
            assert not [f for f in sys.meta_path if type(f).__module__.startswith("torchcomms")]
            """,
            TORCHCOMMS_PATCH_FOR_COMPILE="1",
        ).expect_success()


def ramp(rank, rows=6):
    return torch.arange(rows * 2, dtype=torch.float64).reshape(rows, 2) + 100 * rank


def gives_what_the_operations_give(comm):
    rank, size = comm.get_rank(), comm.get_size()
    inputs = [ramp(r) for r in range(size)]
    total = torch.stack(inputs).sum(0)
    mine = inputs[rank].clone()
    for op, want in (
        ("sum", total),
        (torchcomms.ReduceOp.AVG, total / size),
        ("max", inputs[-1]),
        ("premul_sum:0.5", total / 2),
        (torchcomms.ReduceOp.PREMUL_SUM(0.5), total / 2),
    ):
        torch.testing.assert_close(functional.all_reduce(comm, mine, op), want)
        got = functional.reduce_scatter(comm, mine, op)
        torch.testing.assert_close(got, want.chunk(size)[rank])
    assert torch.equal(functional.all_gather(comm, mine), torch.cat(inputs))
    strided = mine.T.contiguous().T  # not contiguous
    assert torch.equal(functional.all_gather(comm, strided), torch.cat(inputs))
    got = functional.all_to_all(comm, mine)
    assert torch.equal(got, torch.cat([t.chunk(size)[rank] for t in inputs]))
    rows = [r + 1 for r in range(size)]  # to rank r
    mine = ramp(rank, sum(rows))
    got = functional.all_to_all(comm, mine, [rank + 1] * size, rows)
    want = torch.cat([ramp(r, sum(rows)).split(rows)[rank] for r in range(size)])
    assert torch.equal(got, want)
    assert torch.equal(mine, ramp(rank, sum(rows))), "the input was changed"


@pytest.mark.worlds(sizes=SIZES, backends=("gloo",))
def test_values(world):
    world.run(gives_what_the_operations_give)


def uneven(comm, x):
    rows = [2] + [4] * (comm.get_size() - 1) if comm.get_size() > 1 else [6]
    rows = [r * 6 // sum(rows) for r in rows]
    rows[-1] += 6 - sum(rows)
    mine = rows[comm.get_rank()]
    return functional.all_to_all(comm, x, [mine] * comm.get_size(), rows)


DIFFERENTIABLE = {
    "all_reduce sum": lambda comm, x: functional.all_reduce(comm, x),
    "all_reduce avg": lambda comm, x: functional.all_reduce(comm, x, "avg"),
    "all_reduce premul": lambda comm, x: functional.all_reduce(comm, x, "premul_sum:0.5"),
    "all_reduce premul of a number": lambda comm, x: functional.all_reduce(
        comm, x, torchcomms.ReduceOp.PREMUL_SUM(0.5)
    ),
    "all_gather": lambda comm, x: functional.all_gather(comm, x),
    "reduce_scatter sum": lambda comm, x: functional.reduce_scatter(comm, x),
    "reduce_scatter avg": lambda comm, x: functional.reduce_scatter(comm, x, "avg"),
    "all_to_all": lambda comm, x: functional.all_to_all(comm, x),
    "all_to_all uneven": uneven,
}


def loss_of(comm, function, x):
    """A loss that differs from rank to rank and from element to element."""
    out = function(comm, x)
    weight = torch.linspace(0.5, 2.0, out.numel(), dtype=torch.float64).reshape(out.shape)
    return (out**2 * weight * (comm.get_rank() + 1)).sum()


def has_the_gradient_of_the_sum_of_all_losses(comm, name):
    """Central differences of the sum of all ranks' losses, one element of one rank at a time."""
    function, rank = DIFFERENTIABLE[name], comm.get_rank()
    x = torch.sin(ramp(rank)).requires_grad_()
    loss_of(comm, function, x).backward()
    step = 1e-6
    for owner in range(comm.get_size()):
        for at in range(x.numel()):
            sides = []
            for sign in (1, -1):
                moved = x.detach().clone()
                if rank == owner:
                    moved.view(-1)[at] += sign * step
                total = loss_of(comm, function, moved).reshape(1)
                comm.all_reduce(total, torchcomms.ReduceOp.SUM, False)
                sides.append(total.item())
            if rank == owner:
                numeric = (sides[0] - sides[1]) / (2 * step)
                assert abs(numeric - x.grad.view(-1)[at].item()) < 1e-6 * max(1, abs(numeric))


@pytest.mark.worlds(sizes=(2, 3), backends=("gloo",))
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(world, name):
    world.run(has_the_gradient_of_the_sum_of_all_losses, name)


def refuses_wrong_calls(comm):
    size = comm.get_size()
    odd = torch.ones(size + 1, requires_grad=True)
    for function in (functional.reduce_scatter, functional.all_to_all):
        with refused(torchcomms.InvalidArgument, f"{size + 1} rows", f"{size} ranks"):
            function(comm, odd)
    with refused(torchcomms.InvalidArgument, "dimension"):
        functional.all_gather(comm, torch.tensor(1.0))
    with refused(torchcomms.InvalidArgument, "both"):
        functional.all_to_all(comm, odd, [1] * size)
    with refused(torchcomms.InvalidArgument, "add up"):
        functional.all_to_all(comm, odd, [1] * size, [1] * size)
    with refused(torchcomms.InvalidArgument, "PREMUL_SUM of a number"):
        functional.all_reduce(comm, odd, torchcomms.ReduceOp.PREMUL_SUM(torch.tensor(0.5)))
    for op in ("median", "premul_sum:", "premul_sum:x"):
        with refused(torchcomms.InvalidArgument, op):
            functional.all_reduce(comm, odd, op)
    with refused(TypeError, "TorchComm"):
        functional.all_reduce("comm", odd)
    with refused(torchcomms.Unsupported, "max", "gradient"):
        functional.all_reduce(comm, odd, "max").sum().backward()
    assert_alive(comm)


@pytest.mark.worlds(sizes=(2,), backends=("gloo",))
def test_wrong_calls_are_refused(world):
    world.run(refuses_wrong_calls)


def knows_shapes_without_running(comm):
    from torch._subclasses.fake_tensor import FakeTensorMode

    size, before = comm.get_size(), []
    handle = comm.register_pre_hook(lambda name, op_id, args: before.append(name))
    with FakeTensorMode():
        x = torch.empty(6, 2)
        assert functional.all_reduce(comm, x).shape == (6, 2)
        assert functional.all_gather(comm, x).shape == (6 * size, 2)
        assert functional.reduce_scatter(comm, x).shape == (6 // size, 2)
        assert functional.all_to_all(comm, x).shape == (6, 2)
        assert functional.all_to_all(comm, x, [5] * size, [6] + [0] * (size - 1)).shape == (
            5 * size,
            2,
        )
    assert functional.all_gather(comm, torch.empty(6, 2, device="meta")).shape == (6 * size, 2)
    handle.remove()
    assert before == [], "a fake tensor was communicated"


@pytest.mark.worlds(sizes=(2,), backends=("gloo",))
def test_fake_tensors_have_the_right_shapes(world):
    world.run(knows_shapes_without_running)


def test_the_operators_pass_torchs_own_checks(comm):
    """Schema, autograd registration, fake kernels against real ones: on the backend of one rank."""
    from torchcomms.functional import _names, collectives

    x = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    name = _names.name_of(comm)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    for operator, arguments in (
        (collectives._all_reduce, (x, "sum", name)),
        (collectives._all_gather, (x, name)),
        (collectives._reduce_scatter, (x, "avg", name)),
        (collectives._all_to_all, (x, [], [], name)),
    ):
        torch.library.opcheck(operator, arguments, test_utils=checks)


def model(comm, x, weight):
    """All four, with work between them, one result unused."""
    shared = functional.all_reduce(comm, x * weight, "avg")
    functional.all_reduce(comm, shared)  # nobody looks at it, other ranks wait for it
    rows = functional.all_gather(comm, torch.relu(shared))
    part = functional.reduce_scatter(comm, rows * 2)
    return functional.all_to_all(comm, part).sum() + shared.mean()


def compiles_to_the_same(context, backend):
    from torch._dynamo.testing import CompileCounterWithBackend

    comm = context.comm
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(model, backend=counter, fullgraph=True)

    def run(function, group):
        x = torch.cos(ramp(context.rank)).requires_grad_()
        weight = torch.full((2,), 1.5, dtype=torch.float64, requires_grad=True)
        names = []
        handle = group.register_pre_hook(lambda name, op_id, args: names.append(str(name)))
        out = function(group, x, weight)
        out.backward()
        handle.remove()
        return out, x.grad, weight.grad, names

    eager = run(model, comm)
    for _ in range(3):
        got = run(compiled, comm)
        torch.testing.assert_close(got[:3], eager[:3])
        assert got[3] == eager[3], "other operations, or another order, than eagerly"
    assert counter.frame_count == 1, "the same communicator was compiled for again"
    second = context.new_comm()
    torch.testing.assert_close(run(compiled, second)[:3], eager[:3])
    assert counter.frame_count == 2, "another communicator takes a graph of its own"
    second.finalize()


needs_a_new_torch = pytest.mark.skipif(
    not functional.is_torch_compile_supported(), reason="this torch is too old for torch.compile"
)


@needs_a_new_torch
@pytest.mark.worlds(sizes=(2,), backends=("gloo",))
def test_a_compiled_function_is_one_graph_and_agrees_with_eager(world):
    world.run_context(compiles_to_the_same, "aot_eager")


@needs_a_new_torch
@pytest.mark.slow
@pytest.mark.worlds(sizes=(2,), backends=("gloo",))
def test_inductor_agrees_with_eager(world):
    world.run_context(compiles_to_the_same, "inductor")


@needs_a_new_torch
def test_methods_are_traced_when_the_environment_asks_for_it(free_port):
    """One graph of a function that calls methods, equal to eager; and eager methods as ever."""
    for finished in ranks(
        """
        import torch
        import torchcomms
        from torchcomms import ReduceOp

        comm = torchcomms.new_comm("gloo", torch.device("cpu"), "methods")

        def step(x):
            comm.all_reduce(x, ReduceOp.SUM, False)
            work = comm.all_reduce(x, ReduceOp.MAX, async_op=True)
            work.wait()
            rows = torch.empty(comm.get_size(), *x.shape)
            comm.all_gather_single(rows, x, False)
            part = torch.empty(x.shape)
            comm.reduce_scatter_single(part, rows * (comm.get_rank() + 1), ReduceOp.SUM, False)
            out = torch.empty_like(part)
            comm.all_to_all_single(out, part, False)
            return out + x

        def fresh():
            return torch.arange(4.0) + comm.get_rank()

        eager_input, eager = fresh(), None
        eager = step(eager_input)
        compiled_input = fresh()
        compiled = torch.compile(step, backend="aot_eager", fullgraph=True)(compiled_input)
        torch.testing.assert_close(compiled, eager)
        torch.testing.assert_close(compiled_input, eager_input)
        assert isinstance(comm.all_reduce(fresh(), ReduceOp.SUM, False), torchcomms.TorchWork)
        assert "Raises" in comm.all_reduce.__doc__
        try:
            comm.all_reduce(torch.ones(2, 2).T[:1], ReduceOp.SUM, False)
            raise SystemExit("accepted")
        except torchcomms.InvalidArgument:
            pass
        comm.finalize()
        """,
        2,
        free_port,
        TORCHCOMMS_PATCH_FOR_COMPILE="1",
    ):
        finished.expect_success()


def test_a_graph_says_that_its_communicator_is_gone(comm):
    from torchcomms.functional import _names

    with pytest.raises(torchcomms.CommFinalized, match="deleted"):
        _names.comm_of("nobody/1/0")
    name = _names.name_of(comm)
    assert _names.comm_of(name) is comm
    assert _names.name_of(comm) == name


RECONFIGURED = """
    import os
    import torch, torchcomms
    import torch.distributed as dist
    from torchcomms import functional

    rank = int(os.environ["RANK"])
    store = dist.TCPStore("127.0.0.1", {port}, 2, is_master=rank == 0)
    comm = torchcomms.new_comm(
        "{backend}", torch.device("cpu"), "changing", enable_reconfigure=True
    )

    def connect(uuid, members):
        store.set(f"{{uuid}} {{rank}}", comm.get_init_handle())
        handles = [store.get(f"{{uuid}} {{member}}").decode() for member in members]
        comm.reconfigure(uuid, handles).wait()

    def gathered(x):
        return functional.all_gather(comm, x) + 1

    compiled = torch.compile(gathered, backend="eager", fullgraph=True)
    x = torch.ones(2, 3, requires_grad=True)
    connect(1, [0, 1])
    before = compiled(x)
    assert before.shape == (4, 3)
    if rank == 0:
        connect(2, [0])
        assert gathered(x).shape == compiled(x).shape == (2, 3)
        try:
            before.sum().backward()
        except torchcomms.InvalidArgument as error:
            assert "had 2 ranks" in str(error) and "has 1 since a reconfigure()" in str(error)
            print("refused")
    store.set(f"end {{rank}}", "")
    store.wait(["end 0", "end 1"])
"""


@pytest.mark.parametrize("backend", ["gloo", "ctran"])
def test_another_number_of_ranks_takes_another_graph(backend):
    if not torchcomms.is_backend_built(backend):
        pytest.skip(f"needs backend {backend}")
    program = RECONFIGURED.format(port=free_port(), backend=backend)
    outs = [each.expect_success().out for each in ranks(program, 2, free_port())]
    assert outs == ["refused\n", ""]
