"""`torchcomms events`, and how the reader joins begin and end."""

from __future__ import annotations

import json

from torchcomms import events
from torchcomms_cli.app import app
from typer.testing import CliRunner


def test_the_demonstration_shows_each_operation_once():
    done = CliRunner().invoke(app, ["events"])
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stdout.splitlines() if " demonstration " in line]
    assert [line.split()[0] for line in lines][-4:] == [
        "all_reduce",
        "broadcast",
        "all_gather_single",
        "barrier",
    ]
    assert lines[-4].split()[-1] == "ok"


def test_raw_records_are_json_lines():
    done = CliRunner().invoke(app, ["events", "--json"])
    assert done.exit_code == 0, done.output
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert {record["phase"] for record in records} == {"begin", "end"}


def record(op="all_reduce", phase="begin", time_us=0, **changes):
    return {
        "seq": 0, "op": op, "comm": "c", "comm_seq": 1, "op_id": 1, "phase": phase, "ok": True,
        "async_op": False, "dtype": "float32", "reduce_op": None, "root_or_peer": None,
        "numel": 2, "bytes": 8, "time_ns": 10**9 + time_us * 1000, "thread": 1, **changes,
    }  # fmt: skip


def table_of(monkeypatch, capsys, *records) -> list[list[str]]:
    monkeypatch.setattr(events, "read", lambda: list(records))
    events.print_table()
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_times_start_at_the_first_record(monkeypatch, capsys):
    _, _, row = table_of(monkeypatch, capsys, record(), record(phase="end", time_us=25))
    assert row == ["all_reduce", "c", "1", "sync", "-", "float32", "8", "0.000", "25.0", "ok"]


def test_overlapping_operations_are_told_apart(monkeypatch, capsys):
    rows = table_of(
        monkeypatch,
        capsys,
        record(async_op=True),
        record(async_op=True, comm_seq=2, time_us=10),
        record(phase="end", comm_seq=2, time_us=30),
        record(phase="end", time_us=50),
    )[2:]
    assert [(row[2], row[-2]) for row in rows] == [("1", "50.0"), ("2", "20.0")]


def test_a_failed_operation_stands_out(monkeypatch, capsys):
    row = table_of(monkeypatch, capsys, record(), record(phase="end", ok=False))[2]
    assert row[-1] == "FAILED"


def test_an_operation_without_end_is_in_flight(monkeypatch, capsys):
    row = table_of(monkeypatch, capsys, record(op="recv", root_or_peer=3))[2]
    assert row[-3:] == ["-", "in", "flight"]
    assert row[4:6] == ["from", "3"]


def test_an_overwritten_begin_is_no_begin(monkeypatch, capsys):
    lines = table_of(monkeypatch, capsys, record(phase="end", seq=9))
    assert lines[2][-3:] == ["-", "-", "ok"]
    assert lines[3] == ["(9", "older", "records", "were", "overwritten)"]


def test_an_empty_ring_is_said(monkeypatch, capsys):
    assert " ".join(table_of(monkeypatch, capsys)[0]).startswith("no events")
