"""The call log, line by line."""

from __future__ import annotations

import re

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp
from torchcomms.hooks import clog

TIME = r"\+\d+\.\d{6}"


def logged(comm, path, events=(), verbose=()):
    log = clog(str(path), list(events), list(verbose))
    log.register_with_comm(comm)
    return log


def lines(path):
    return path.read_text().splitlines()


def signatures(path):
    return [line.split("|sig|", 1)[1] for line in lines(path) if "|sig|" in line]


def test_header_and_communicator_come_first(comm, tmp_path):
    path = tmp_path / "log"
    path.write_text("of an earlier run\n" * 9)
    logged(comm, path)
    header, new_comm = lines(path)
    assert re.fullmatch(r"V\|1\|base_timestamp=\d+\.\d{3}", header)
    assert new_comm == f"new_comm|comm={comm.get_name()}|rank=0|world_size=1"


def test_a_signature_is_written_once_and_each_call_queued(comm, tmp_path):
    path = tmp_path / "log"
    logged(comm, path)
    for _ in range(2):
        comm.all_reduce(torch.ones(2, 3), ReduceOp.SUM, False)
    comm.all_reduce(torch.ones(4), ReduceOp.SUM, False)
    name = comm.get_name()
    first, queued, again, second, other = lines(path)[2:]
    fields = "in_count=6|out_count=6|dtype=f32|red_op=sum|async_op=f"
    assert first == f"C0|sig|all_reduce|{fields}|comm={name}"
    assert re.fullmatch(rf"C0\|Q\|work_id=0\|{TIME}", queued)
    assert re.fullmatch(rf"C0\|Q\|work_id=1\|{TIME}", again)
    assert second.startswith("C1|sig|all_reduce|in_count=4|")
    assert re.fullmatch(rf"C1\|Q\|work_id=2\|{TIME}", other)


def test_the_fields_of_each_operation(comm, tmp_path):
    path = tmp_path / "log"
    logged(comm, path)
    data, half, ints = torch.ones(4), torch.ones(4).bfloat16(), torch.ones(4).long()
    comm.broadcast(half, 0, False)
    comm.reduce(ints, 0, ReduceOp.MAX, True)
    comm.send(data, 0, False)
    comm.recv(data, 0, False)
    comm.all_gather([data], data, False)
    comm.reduce_scatter(data, [data], ReduceOp.AVG, False)
    comm.all_to_all_v_single(data, data, [4], [4], False)
    comm.scatter(data, [data], 0, False)
    comm.gather_single(data, data, 0, False)
    comm.barrier(True)
    batch = comm.batch_op_create()
    batch.send(data, 0)
    batch.issue(False)
    got = [s.rsplit("|comm=", 1)[0] for s in signatures(path)]
    assert got == [
        "broadcast|in_count=4|out_count=4|dtype=bf16|root=0|async_op=f",
        "reduce|in_count=4|out_count=4|dtype=i64|red_op=max|root=0|async_op=t",
        "send|in_count=4|out_count=0|dtype=f32|peer=0|async_op=f",
        "recv|in_count=0|out_count=4|dtype=f32|peer=0|async_op=f",
        "all_gather|in_counts=4|out_counts=4|dtype=f32|async_op=f",
        "reduce_scatter|in_counts=4|out_counts=4|dtype=f32|red_op=avg|async_op=f",
        "all_to_all_v_single|in_splits=4|out_splits=4|dtype=f32|async_op=f",
        "scatter|in_counts=4|out_counts=4|dtype=f32|root=0|async_op=f",
        "gather_single|in_count=4|out_count=4|dtype=f32|root=0|async_op=f",
        "barrier|async_op=t",
        "batch_op_issue|num_ops=1|async_op=f",
    ]


def test_addresses_on_demand(comm, tmp_path):
    path = tmp_path / "log"
    logged(comm, path, verbose=["buffers"])
    a, b = torch.ones(2), torch.ones(2)
    comm.all_reduce(a, ReduceOp.SUM, False)
    comm.all_gather_single(a, b, False)
    comm.send(a, 0, False)
    in_place, copied, sent = signatures(path)
    assert f"|buf={a.data_ptr():#x}|" in in_place
    assert f"|in={b.data_ptr():#x}|out={a.data_ptr():#x}|" in copied
    assert f"|in={a.data_ptr():#x}|" in sent
    assert "out=" not in sent


@pytest.mark.parametrize("word", ["ALL", "LIFECYCLE"])
def test_start_and_end_on_demand(comm, tmp_path, word):
    path = tmp_path / "log"
    logged(comm, path, [word])
    comm.barrier(False)
    queued, started, ended = lines(path)[3:]
    assert queued.startswith("C0|Q|")
    assert re.fullmatch(rf"C0\|S\|{TIME}", started)
    assert re.fullmatch(rf"C0\|E\|{TIME}", ended)


def test_waiting_for_what_has_ended_is_a_warning(comm, tmp_path):
    path = tmp_path / "log"
    logged(comm, path, ["ALL"])
    comm.barrier(True).wait()
    assert lines(path)[-1] == "WARN|lifecycle event W for unknown work_id 0"


def test_other_words_add_nothing_and_are_said(comm, tmp_path, capfd):
    path = tmp_path / "log"
    logged(comm, path, ["LIFE"])
    comm.barrier(False)
    assert len(lines(path)) == 4
    assert "'LIFE'" in capfd.readouterr().err


def test_splits_are_logged_and_followed(tmp_path):
    path = tmp_path / "log"
    comm = torchcomms.new_comm("fake", torch.device("cpu"), "whole")
    logged(comm, path)
    child = comm.split([0], "part")
    child.barrier(False)
    assert lines(path)[2:5] == [
        "split|parent=whole|child=part|ranks=0",
        "new_comm|comm=part|rank=0|world_size=1",
        "C0|sig|barrier|async_op=f|comm=part",
    ]
    child.finalize()
    comm.finalize()


def test_a_name_makes_no_field_and_no_line(tmp_path):
    path = tmp_path / "log"
    comm = torchcomms.new_comm("fake", torch.device("cpu"), "a|b\nC0|E|+0.1\\\u00fc")
    logged(comm, path)
    child = comm.split([0], "c\td")
    child.barrier(False)
    shown = r"a\x7cb\x0aC0\x7cE\x7c+0.1\x5c" + "\u00fc"
    assert lines(path)[1:5] == [
        f"new_comm|comm={shown}|rank=0|world_size=1",
        rf"split|parent={shown}|child=c\x09d|ranks=0",
        r"new_comm|comm=c\x09d|rank=0|world_size=1",
        r"C0|sig|barrier|async_op=f|comm=c\x09d",
    ]
    child.finalize()
    comm.finalize()


def test_one_communicator_cannot_register_twice(comm, tmp_path):
    path = tmp_path / "log"
    log = logged(comm, path)
    with pytest.raises(RuntimeError, match=comm.get_name()):
        log.register_with_comm(comm)
    assert [line.split("|")[0] for line in lines(path)] == ["V", "new_comm", "new_comm"]
    comm.barrier(False)
    assert sum("|Q|" in line for line in lines(path)) == 1


def test_it_goes_on_without_its_object_and_can_be_taken_back(comm, tmp_path):
    logged(comm, tmp_path / "kept")
    comm.barrier(False)
    assert any("|Q|" in line for line in lines(tmp_path / "kept"))
    log = logged(comm, tmp_path / "ended")
    log.unregister()
    comm.barrier(False)
    assert len(lines(tmp_path / "ended")) == 2


def test_the_folder_of_a_log_is_made(tmp_path):
    clog(str(tmp_path / "not" / "there" / "log"), [])
    assert len(lines(tmp_path / "not" / "there" / "log")) == 1


def test_a_file_that_cannot_be_opened_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        torchcomms.CommError, match=r"parent folders of .*/file/log: Not a directory"
    ):
        clog(str(tmp_path / "file" / "log"), [])
