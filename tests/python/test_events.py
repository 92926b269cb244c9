"""The event ring: every operation leaves a begin and an end, always, in bounded memory."""

from __future__ import annotations

import io
import time

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp, events

from tests.harness.cases import Failures, check_context
from tests.harness.operations import OPERATIONS, call, operations_for
from tests.harness.programs import forked

KEYS = {"seq", "op", "comm", "comm_seq", "op_id", "phase", "ok", "async_op", "dtype", "reduce_op",
        "root_or_peer", "bytes", "time_ns", "thread"}  # fmt: skip


def of(comm):
    return [e for e in events.read() if e["comm"] == comm.get_name()]


def test_every_operation_leaves_begin_and_end(comm):
    for name in OPERATIONS:
        call(comm, name, False)
    records = of(comm)
    assert [(e["op"], e["phase"]) for e in records] == [
        (name, phase) for name in OPERATIONS for phase in ("begin", "end")
    ]
    assert all(set(e) >= KEYS for e in records)
    assert all(e["ok"] for e in records)


def test_a_record_tells_what_was_done(comm):
    ids = []
    comm.register_pre_hook(lambda name, op_id, args: ids.append(op_id))
    before = time.monotonic_ns()
    comm.reduce(torch.zeros(10, dtype=torch.float64), 0, ReduceOp.MAX, True)
    after = time.monotonic_ns()
    begin, end = of(comm)
    for record in (begin, end):
        assert record["op"] == "reduce"
        assert record["op_id"] == ids[0]
        assert record["async_op"] is True
        assert record["reduce_op"] == "MAX"
        assert record["root_or_peer"] == 0
        assert record["bytes"] == 80
        assert record["comm_seq"] == 1
        assert before <= record["time_ns"] <= after
    assert begin["dtype"] == "float64"
    assert begin["time_ns"] <= end["time_ns"]
    assert end["seq"] == begin["seq"] + 1


def test_numbers_of_a_communicator_count_its_operations(comm):
    other = torchcomms.new_comm("fake", torch.device("cpu"), "counted_apart")
    for each in (comm, other, comm):
        each.barrier(False)
    assert [e["comm_seq"] for e in of(comm)] == [1, 1, 2, 2]
    assert [e["comm_seq"] for e in of(other)] == [1, 1]


def test_a_long_name_is_cut_between_characters():
    """The recorder has 167 bytes of it."""
    comm = torchcomms.new_comm("fake", torch.device("cpu"), "\u00e9" * 100)
    comm.barrier(False)
    assert events.read()[-1]["comm"] == "\u00e9" * 83
    out = io.StringIO()
    events.print_table(out)
    assert "\u00e9" * 83 in out.getvalue()
    comm.finalize()


def test_a_name_makes_no_line_of_the_table():
    comm = torchcomms.new_comm("fake", torch.device("cpu"), "two\nlines\x1b[2J")
    comm.barrier(False)
    assert events.read()[-1]["comm"] == "two\nlines\x1b[2J"
    out = io.StringIO()
    events.print_table(out)
    assert r"two\nlines\x1b[2J" in out.getvalue()
    comm.finalize()


def test_batches_are_recorded(comm):
    batch = comm.batch_op_create()
    batch.send(torch.zeros(4), 0)
    batch.recv(torch.zeros(4), 0)
    batch.issue(False)
    assert [e["phase"] for e in of(comm)] == ["begin", "end"]
    assert "batch" in of(comm)[0]["op"]


def test_reading_takes_nothing_away(comm):
    comm.barrier(False)
    assert of(comm) == of(comm) != []


def test_a_refused_call_leaves_nothing(comm):
    with pytest.raises(RuntimeError):
        comm.broadcast(torch.zeros(1), 7, False)
    assert of(comm) == []


def test_the_table_has_one_line_an_operation(comm):
    comm.all_reduce(torch.zeros(4), ReduceOp.SUM, False)
    comm.broadcast(torch.zeros(4), 0, False)
    out = io.StringIO()
    events.print_table(out)
    lines = [line for line in out.getvalue().splitlines() if comm.get_name() in line]
    assert len(lines) == 2
    assert "all_reduce" in lines[0]
    assert "SUM" in lines[0]
    assert "broadcast" in lines[1]


def test_the_ring_is_bounded_and_keeps_the_newest():
    forked(
        """
        import torch, torchcomms
        from torchcomms import events
        comm = torchcomms.new_comm("fake", torch.device("cpu"), "bounded")
        for _ in range(3000):
            comm.barrier(False)
        records = events.read()
        assert 64 <= len(records) <= 128, len(records)
        assert records[-1]["comm_seq"] == 3000, records[-1]
        assert [r["seq"] for r in records] == list(range(records[0]["seq"], records[-1]["seq"] + 1))
        assert records[0]["seq"] > 0
    """,
        TORCHCOMM_EVENTS_CAPACITY="100",
    ).expect_success()


def test_the_table_can_be_printed_at_exit():
    finished = forked(
        """
        import torch, torchcomms
        comm = torchcomms.new_comm("fake", torch.device("cpu"), "printed")
        comm.all_reduce(torch.zeros(4), torchcomms.ReduceOp.SUM, False)
    """,
        TORCHCOMM_EVENTS_PRINT="1",
    ).expect_success()
    assert "all_reduce" in finished.err
    assert "printed" in finished.err


def moving(context):
    comm, failures = context.new_comm(), Failures()
    works = [(name, call(comm, name, True)) for name in operations_for(context)]
    for _, work in works:
        work.wait()
    records = [e for e in events.read() if e["comm"] == comm.get_name()]
    for name, _ in works:
        mine = [e for e in records if e["op"] == name]
        with failures.case(name):
            assert [e["phase"] for e in mine] == ["begin", "end"]
            assert mine[1]["ok"] is True
            assert mine[1]["time_ns"] >= mine[0]["time_ns"]
    with failures.case("synchronous"):
        comm.barrier(False)
        last = [e for e in events.read() if e["comm"] == comm.get_name()][-2:]
        assert [e["phase"] for e in last] == ["begin", "end"]
    comm.finalize()
    return failures.texts


def test_the_end_of_an_async_operation_is_recorded_when_it_ends(world):
    check_context(world, moving)


def failing(context):
    comm = context.new_comm()
    comm.barrier(False)
    if context.rank == 0:
        with pytest.raises(RuntimeError):
            comm.recv(torch.zeros(1), 1, False, timeout=0.2)
        with pytest.raises(RuntimeError):  # the connection is closed: at the call, or at wait()
            comm.recv(torch.zeros(1), 1, True, timeout=0.2).wait()
        records = [e for e in events.read() if e["comm"] == comm.get_name() and e["op"] == "recv"]
        assert [(e["phase"], e["ok"]) for e in records] == [
            ("begin", True),
            ("end", False),
            ("begin", True),
            ("end", False),
        ]
        assert records[0]["root_or_peer"] == 1
    comm.finalize()
    return []


@pytest.mark.worlds(sizes=(2,))
def test_the_end_of_a_failed_operation_says_so(world):
    check_context(world, failing)


def in_flight(context):
    comm = context.new_comm()
    comm.barrier(False)
    if context.rank == 0:
        work = comm.recv(torch.zeros(1), 1, True)
        records = [e for e in events.read() if e["comm"] == comm.get_name() and e["op"] == "recv"]
        assert [e["phase"] for e in records] == ["begin"]
        out = io.StringIO()
        events.print_table(out)
        assert "in flight" in out.getvalue()
        context.store("in_flight_events").set("looked", "yes")
        work.wait()
    else:
        context.store("in_flight_events").wait(["looked"])
        comm.send(torch.zeros(1), 0, False)
    comm.finalize()
    return []


@pytest.mark.worlds(sizes=(2,))
def test_what_is_in_flight_has_begun_and_not_ended(world):
    check_context(world, in_flight)
