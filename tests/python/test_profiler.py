"""Operations in torch.profiler: eager, compiled, and through torch's process groups."""

from __future__ import annotations

import json

import pytest
import torch
from torch.torch_version import TorchVersion
from torchcomms import ReduceOp, functional
from torchcomms._comms import _BackendWrapper

from tests.harness.programs import ranks


def shown(tmp_path, call, **options):
    """The arguments of every record of an operation while `call` runs."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], **options) as profiler:
        call()
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    return [event["args"] for event in events if event["name"] == "record_param_comms"]


def tensor(*shape):
    return torch.ones(*shape, dtype=torch.float64)


OPERATIONS = {
    "send": (lambda c, x: c.send(x, 0, False), 6, 0, "Double"),
    "recv": (lambda c, x: c.recv(x, 0, False), 0, 6, "Double"),
    "broadcast": (lambda c, x: c.broadcast(x, 0, False), 6, 6, "Double"),
    "all_reduce": (lambda c, x: c.all_reduce(x, ReduceOp.SUM, False), 6, 6, "Double"),
    "reduce": (lambda c, x: c.reduce(x, 0, ReduceOp.SUM, False), 6, 6, "Double"),
    "all_gather": (lambda c, x: c.all_gather([tensor(2, 3)], x, False), 6, 6, "Double"),
    "all_gather_v": (lambda c, x: c.all_gather_v([tensor(2, 3)], x, False), 6, 6, "Double"),
    "all_gather_single": (lambda c, x: c.all_gather_single(tensor(6), x, False), 6, 6, "Double"),
    "reduce_scatter": (
        lambda c, x: c.reduce_scatter(x, [tensor(2, 3)], ReduceOp.SUM, False), 6, 6, "Double",
    ),
    "reduce_scatter_v": (
        lambda c, x: c.reduce_scatter_v(x, [tensor(2, 3)], ReduceOp.SUM, False), 6, 6, "Double",
    ),
    "reduce_scatter_single": (
        lambda c, x: c.reduce_scatter_single(x, tensor(6), ReduceOp.SUM, False), 6, 6, "Double",
    ),
    "all_to_all_single": (lambda c, x: c.all_to_all_single(x, tensor(6), False), 6, 6, "Double"),
    "all_to_all_v_single": (
        lambda c, x: c.all_to_all_v_single(x, tensor(2, 3), [2], [2], False), 6, 6, "Double",
    ),
    "all_to_all": (lambda c, x: c.all_to_all([x], [tensor(2, 3)], False), 6, 6, "Double"),
    "barrier": (lambda c, x: c.barrier(False), 0, 0, "Byte"),
    "scatter": (lambda c, x: c.scatter(x, [tensor(2, 3)], 0, False), 6, 6, "Double"),
    "gather": (lambda c, x: c.gather([tensor(2, 3)], x, 0, False), 6, 6, "Double"),
    "gather_single": (lambda c, x: c.gather_single(tensor(6), x, 0, False), 6, 6, "Double"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation(comm, tmp_path, name):
    call, elements_in, elements_out, dtype = OPERATIONS[name]
    (record,) = shown(tmp_path, lambda: call(comm, tensor(2, 3)))
    assert record["Collective name"] == name
    assert record["Process Group Name"] == comm.get_name()
    assert record["Process Group Description"] == "fake"
    assert record["dtype"] == dtype
    assert (record["In msg nelems"], record["Out msg nelems"]) == (elements_in, elements_out)
    assert record["Group size"] == 1
    assert json.loads(record["Process Group Ranks"]) == [0]
    assert record["Rank"] == 0


def test_a_batch_is_one_record_of_what_it_sends_and_receives(comm, tmp_path):
    batch = comm.batch_op_create()
    batch.send(tensor(2), 0)
    batch.send(tensor(3), 0)
    batch.recv(tensor(4), 0)
    (record,) = shown(tmp_path, lambda: batch.issue(False))
    assert record["Collective name"] == "batch_op_issue"
    assert (record["In msg nelems"], record["Out msg nelems"]) == (5, 4)


def test_operations_on_windows(comm, tmp_path):
    window = comm.new_window()
    window.tensor_register(torch.zeros(8))

    def use():
        window.put(torch.ones(3, dtype=torch.int32), 0, 1, False)
        window.signal(0, False)
        window.wait_signal(0, False)

    put, signal, wait = shown(tmp_path, use)
    assert [one["Collective name"] for one in (put, signal, wait)] == [
        "put", "signal", "wait_signal",
    ]  # fmt: skip
    assert (put["dtype"], put["In msg nelems"], put["Rank"]) == ("Int", 3, 0)
    assert {one["Process Group Name"] for one in (put, signal, wait)} == {comm.get_name()}
    window.tensor_deregister()


def test_shapes_are_shown_where_they_are_asked_for(comm, tmp_path):
    def call():
        comm.all_gather([tensor(2, 3)], tensor(2, 3), False)
        comm.all_to_all_v_single(tensor(2, 3), tensor(2, 3), [2], [2], True).wait()

    first, second = shown(tmp_path, call, record_shapes=True)
    assert first["Input Dims"][0] == [[2, 3]]
    assert first["Input type"][0] == "TensorList"
    assert json.loads(second["In split size"]) == json.loads(second["Out split size"]) == [2]
    asynchronous = [one.get("Is asynchronized op") for one in (first, second)]
    assert asynchronous == [False, True] or TorchVersion(torch.__version__) < "2.15", asynchronous


def group_and_its_half(comm):
    from torch.profiler import ProfilerActivity, profile

    half = [1, 3] if comm.get_rank() % 2 else [0, 2]
    child = comm.split(half, "half")
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        child.all_reduce(torch.ones(2), ReduceOp.SUM, False)
        comm.broadcast(torch.ones(5), 2, False)
    child.finalize()
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    mine, all_ = [one["args"] for one in events if one["name"] == "record_param_comms"]
    assert json.loads(mine["Process Group Ranks"]) == child.get_ranks() == half
    assert mine["Group size"] == 2
    assert mine["Rank"] == comm.get_rank() // 2
    assert json.loads(all_["Process Group Ranks"]) == [0, 1, 2, 3]
    assert (all_["Rank"], all_["Out msg nelems"]) == (2, 5), "the root stands in the rank's place"


@pytest.mark.worlds(sizes=(4,), backends=("gloo",))
def test_ranks_are_those_of_the_communicator(world):
    world.run(group_and_its_half)


def test_nothing_is_made_where_no_profiler_runs(comm):
    """The same call in and out of a profiled region; only the first is seen."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        comm.barrier(False)
    comm.barrier(False)
    assert sum(event.key == "record_param_comms" for event in profiler.events()) == 1


def test_through_torchs_process_groups(comm, tmp_path):
    wrapper = _BackendWrapper(comm)

    def use():
        wrapper.allreduce([tensor(4)]).wait()
        wrapper.barrier().wait()

    records = shown(tmp_path, use)
    assert [one["Collective name"] for one in records] == ["all_reduce", "barrier"]
    assert records[0]["In msg nelems"] == 4
    assert {one["Process Group Name"] for one in records} == {comm.get_name()}


def test_of_functional_collectives(comm, tmp_path):
    (record,) = shown(tmp_path, lambda: functional.all_reduce(comm, tensor(4)))
    assert (record["Collective name"], record["In msg nelems"]) == ("all_reduce", 4)


@pytest.mark.skipif(
    not functional.is_torch_compile_supported(),
    reason=f"compile support needs torch {functional.MIN_PYTORCH_VERSION_FOR_COMPILE}, this one is"
    " older",
)
def test_in_compiled_functions(free_port, tmp_path):
    (finished,) = ranks(
        f"""
        import json, torch, torchcomms
        from torch.profiler import ProfilerActivity, profile
        from torchcomms import ReduceOp

        comm = torchcomms.new_comm("fake", torch.device("cpu"), "profiled")

        @torch.compile(backend="aot_eager", fullgraph=True)
        def step(x):
            comm.all_reduce(x, ReduceOp.SUM, False)
            out = torch.empty(6)
            comm.all_gather_single(out, x, True).wait()
            return out

        step(torch.ones(6))
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            step(torch.ones(6))
        profiler.export_chrome_trace({str(tmp_path / "trace.json")!r})
        """,
        1,
        free_port,
        TORCHCOMMS_PATCH_FOR_COMPILE="1",
    )
    finished.expect_success()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    records = [event["args"] for event in events if event["name"] == "record_param_comms"]
    assert [one["Collective name"] for one in records] == ["all_reduce", "all_gather_single"]
    assert {one["Process Group Name"] for one in records} == {"profiled"}
    assert all(one["In msg nelems"] == 6 and one["dtype"] == "Float" for one in records)
    names = {event["name"] for event in events}
    assert "torchcomms::torchcomm_wait_tensors" in names, "the wait is an operator of its own"
