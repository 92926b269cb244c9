"""`torchcomms.analyze`: the verdict over made-up dumps, and over those of ranks that hung."""

from __future__ import annotations

import dataclasses
import json
import pickle

import pytest
import torch
from torchcomms import ReduceOp
from torchcomms.analyze import AnalyzeError, Process, analyze, read, to_text
from torchcomms.analyze.dump import parse
from torchcomms.hooks import FlightRecorderHook
from torchcomms_cli.app import app
from typer.testing import CliRunner


def entry(operation="all_reduce", seq=1, state="completed", group="world", numel=4, **more):
    sizes = [] if operation == "barrier" else [[numel]]
    return {
        "record_id": seq, "process_group": [group, "fake"], "collective_seq_id": seq,
        "profiling_name": f"fake:{operation}", "operation": operation, "state": state,
        "input_sizes": sizes, "output_sizes": sizes, "input_dtypes": ["Float"] * len(sizes),
        "output_dtypes": ["Float"] * len(sizes), "time_created_ns": seq, "failed": False, **more,
    }  # fmt: skip


def dump(rank, *entries, groups=None, size=4):
    groups = groups or {"world": range(size)}
    config = {
        name: {"name": name, "desc": "fake", "ranks": str(list(ranks))}
        for name, ranks in groups.items()
    }
    return {"version": "2.10", "global_rank": rank, "pg_config": config, "entries": list(entries)}


def verdict_of(*dumps):
    return analyze([parse(raw, f"rank {raw['global_rank']}") for raw in dumps])


def test_nothing_wrong_is_said():
    verdict = verdict_of(*(dump(rank, entry(seq=1), entry("barrier", 2)) for rank in range(4)))
    assert verdict.ok
    assert verdict.culprits == ()
    assert "nothing is wrong" in verdict.summary


def test_a_job_that_moves_has_nobody_behind():
    """Its ranks' records are read one after another, so the later ones are further."""

    def moment(number):
        dumps = [
            dump(0, entry(seq=number), size=2),
            dump(1, entry(seq=number), entry(seq=number + 1, state="started"), size=2),
        ]
        return [parse(raw, f"rank {raw['global_rank']}") for raw in dumps]

    first = analyze(moment(7))
    assert first.culprits == (0,)
    assert analyze(moment(9), first).ok
    assert analyze(moment(7), first) == first  # it hangs


def test_the_rank_that_did_not_come_is_named_with_the_operation():
    waiting = (entry("barrier", 6), entry(seq=7, state="started"))
    verdict = verdict_of(
        dump(0, *waiting), dump(1, *waiting), dump(2, entry("barrier", 6)), dump(3, *waiting)
    )
    assert verdict.culprits == (2,)
    (finding,) = verdict.findings
    assert (finding.kind, finding.operation, finding.sequence) == ("behind", "all_reduce", 7)
    assert finding.waiting == (0, 1, 3)
    text = to_text(verdict)
    assert "rank 2 has not entered all_reduce 7 of 'world' (last: finished barrier 6)" in text
    assert "look at: rank 2" in text


def test_a_rank_that_others_do_not_wait_for_is_no_finding():
    """It is late, but the others are through, as after a broadcast from them."""
    others = (entry("broadcast", 1, root=0), entry("broadcast", 2, root=0))
    verdict = verdict_of(dump(0, *others, size=2), dump(1, others[0], size=2))
    assert verdict.ok


def test_a_rank_that_recorded_nothing_is_behind_too():
    verdict = verdict_of(dump(0, entry(state="started"), size=2), dump(1, size=2))
    assert verdict.culprits == (1,)
    assert "no operation before it is recorded" in verdict.summary


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (entry("broadcast", 1, "started", root=0), "broadcast root 0"),
        (entry(state="started", numel=5), "5 elements"),
        (entry(state="started", reduce_op="max"), "max"),
        (entry(state="started", input_dtypes=["Half"], output_dtypes=["Half"]), "float16"),
    ],
)
def test_the_rank_whose_call_differs_is_named(odd, said):
    usual = entry(state="started")
    verdict = verdict_of(dump(0, usual), dump(1, usual), dump(2, odd), dump(3, usual))
    assert verdict.findings[0].kind == "mismatch"
    assert verdict.culprits == (2,)
    assert "ranks 0-1, 3: all_reduce 4 elements float32" in verdict.summary
    assert said in verdict.summary


def test_two_halves_accuse_each_other():
    verdict = verdict_of(
        dump(0, entry(state="started", numel=1), size=2),
        dump(1, entry(state="started", numel=2), size=2),
    )
    assert verdict.culprits == (0, 1)


def test_what_may_differ_is_no_mismatch():
    root = entry("gather", 1, root=0, output_sizes=[[4], [4]], output_dtypes=["Float"] * 2)
    leaf = entry("gather", 1, root=0, output_sizes=[], output_dtypes=[])
    uneven = [entry("all_to_all_v_single", 2, numel=n) for n in (4, 7)]
    verdict = verdict_of(dump(0, root, uneven[0], size=2), dump(1, leaf, uneven[1], size=2))
    assert verdict.ok, verdict.summary


def test_the_first_mismatch_counts_not_what_follows_from_it():
    verdict = verdict_of(
        dump(0, entry("barrier", 1), entry(seq=2, state="started"), size=3),
        dump(1, entry("barrier", 1), entry(seq=2, state="started"), size=3),
        dump(2, entry(seq=1), entry("barrier", 2, "started"), size=3),
    )
    assert [f.sequence for f in verdict.findings] == [1]
    assert verdict.culprits == (2,)


def test_a_rank_that_waits_elsewhere_is_not_the_culprit():
    """0 waits for 1 in 'row', 1 waits for 2 in 'column', 2 is in nothing: it is the one."""
    groups = {"row": (0, 1), "column": (1, 2)}
    verdict = verdict_of(
        dump(0, entry(group="row", state="started"), groups=groups),
        dump(1, entry(group="column", state="started"), groups=groups),
        dump(2, groups=groups),
    )
    assert verdict.culprits == (2,)
    assert len(verdict.findings) == 2
    assert "'column'" in verdict.summary


def test_ranks_that_wait_for_each_other_are_all_named():
    groups = {"first": (0, 1), "second": (0, 1)}
    verdict = verdict_of(
        dump(0, entry(group="first", state="started"), groups=groups),
        dump(1, entry(group="second", state="started"), groups=groups),
    )
    assert verdict.culprits == (0, 1)


def test_a_message_without_its_partner():
    number = 1 << 60
    send = {"operation": "send", "seq": number, "peer": 1, "state": "started"}
    waiting = dump(0, entry(**send, profiling_name="fake:send 0->1"), size=2)
    verdict = verdict_of(waiting, dump(1, size=2))
    assert verdict.culprits == (1,)
    assert "rank 1 has posted no recv" in verdict.summary
    answer = entry("recv", number, "started", peer=0, profiling_name="fake:recv 1<-0")
    assert not [
        f for f in verdict_of(waiting, dump(1, answer, size=2)).findings if f.kind == "message"
    ]


def job_of(*states, **failed):
    """Ranks that finished the same, and how their processes ended."""
    dumps = []
    for rank, state in enumerate(states):
        raw = dump(rank, entry(), entry("barrier", 2, failed=rank in failed.get("failed", ())))
        process = Process(100 + rank, "node1", "job", "python train.py", 1, state)
        dumps.append(dataclasses.replace(parse(raw, f"rank {rank}"), process=process))
    return analyze(dumps)


@pytest.mark.parametrize(
    ("states", "told", "culprits"),
    [
        (("running", "killed", "running", "running"), "rank 1 was killed or has crashed", (1,)),
        (("killed", "killed", "running", "ended"), "ranks 0-1 were killed or have crashed", (0, 1)),
        (("running", "running", "ended", "running"), "rank 2 has ended", (2,)),
    ],
)
def test_who_is_gone_and_was_in_nothing_is_a_finding(states, told, culprits):
    verdict = job_of(*states)
    assert verdict.summary == f"{told} without finalize()"
    assert verdict.decisive.kind == "gone"
    assert set(culprits) <= set(verdict.culprits)
    assert f"look at: rank {culprits[0]} (process" in to_text(verdict)


@pytest.mark.parametrize("state", ["running", "ended", "finalized", "unknown"])
def test_who_runs_or_has_ended_with_the_others_is_no_finding(state):
    assert job_of(state, state, state, state).ok


def test_who_was_killed_is_why_others_failed_and_not_the_other_way():
    verdict = job_of("running", "killed", "ended", "killed", failed=(0, 2, 3))
    assert [(f.kind, f.ranks) for f in verdict.findings if f.kind == "gone"] == [("gone", (1,))]
    assert verdict.culprits == (1,)
    assert {f.kind for f in verdict.findings} == {"gone", "failed"}


def hanging(states, *raws):
    return analyze(
        [
            dataclasses.replace(
                parse(raw, f"rank {rank}"),
                process=Process(100 + rank, "node1", "job", "python train.py", 1, state),
            )
            for rank, (state, raw) in enumerate(zip(states, raws, strict=True))
        ]
    )


def test_who_was_killed_in_the_operation_that_all_hang_in_is_the_one_to_look_at():
    waiting = [dump(rank, entry(state="started"), size=3) for rank in range(3)]
    verdict = hanging(("running", "killed", "running"), *waiting)
    assert verdict.summary == "rank 1 was killed or has crashed without finalize()"
    assert verdict.culprits == (1,)
    assert [finding.kind for finding in verdict.findings] == ["gone", "stuck"]
    for state in ("running", "killed", "ended"):  # the job as a whole
        verdict = hanging((state,) * 3, *waiting)
        assert [finding.kind for finding in verdict.findings] == ["stuck"]
        assert verdict.culprits == ()


def test_who_is_gone_comes_out_of_nothing_any_more():
    """Ranks 1 and 2 have not come; the first of them was killed in something else."""
    groups = {"world": range(3), "pair": (1, 2)}
    verdict = hanging(
        ("running", "killed", "running"),
        dump(0, entry(state="started"), groups=groups),
        dump(1, entry(group="pair", state="started"), groups=groups),
        dump(2, groups=groups),
    )
    assert verdict.culprits == (1, 2)


def test_what_failed_long_ago_is_not_where_a_rank_is():
    failed = entry(seq=1, state="scheduled", failed=True)
    verdict = verdict_of(dump(0, failed, entry("barrier", 2), entry("barrier", 3), size=1))
    assert verdict.last[0] == "finished barrier 3 of 'world'"
    verdict = verdict_of(dump(0, failed, entry("barrier", 2, "started"), size=1))
    assert verdict.last[0] == "in barrier 2 of 'world'"
    assert verdict_of(dump(0, failed, size=1)).last[0] == "failed in all_reduce 1 of 'world'"


def test_what_failed_on_several_ranks_is_one_finding():
    dumps = [
        dump(rank, entry(seq=1, state="scheduled", failed=True, time_created_ns=9 + rank), size=3)
        for rank in range(3)
    ]
    failed = [f for f in verdict_of(*dumps).findings if f.kind == "failed"]
    assert [(f.ranks, f.text) for f in failed] == [
        ((0, 1, 2), "all_reduce 1 of 'world' failed on ranks 0-2")
    ]


def test_what_a_hook_refused_was_not_met_by_the_others():
    """Rank 1's third was refused; once it is called again it has the same number."""
    refused = entry(seq=3, state="scheduled", failed=True, refused=True)
    before = (entry(seq=1), entry(seq=2))
    verdict = verdict_of(
        dump(0, *before, entry(seq=3, state="started"), size=2), dump(1, *before, refused, size=2)
    )
    assert "rank 1 has not entered all_reduce 3" in verdict.summary
    again = entry(seq=3, state="started")
    verdict = verdict_of(dump(0, *before, again, size=2), dump(1, *before, refused, again, size=2))
    assert verdict.findings[0].kind == "stuck"
    assert verdict_of(dump(0, *before, size=2), dump(1, *before, refused, size=2)).summary == (
        "all_reduce 3 of 'world' failed on rank 1"
    )


def test_a_partner_without_a_record_is_who_a_message_waits_for():
    waits = entry("send", seq=(1 << 60) + 5, state="started", peer=1)
    verdict = verdict_of(dump(0, waits, size=2))
    assert (verdict.findings[0].kind, verdict.culprits) == ("message", (1,))
    assert "of rank 1, which left no record" in verdict.summary


def test_who_has_not_come_is_named_where_the_others_wait_in_a_later_operation():
    """Of a broadcast the root is through with its part when it has sent it."""
    first = entry("barrier", 1)
    later = (entry("broadcast", 2), entry(seq=3, state="started"))
    verdict = verdict_of(dump(0, first, *later, size=2), dump(1, first, size=2))
    assert verdict.findings[0].kind == "behind"
    assert verdict.culprits == (1,)
    assert "rank 1 has not entered all_reduce 3 of 'world'" in verdict.summary
    assert "rank 0 waits in it" in verdict.summary


def test_a_rank_without_a_dump_is_named():
    verdict = verdict_of(*(dump(rank, entry(state="started")) for rank in (0, 1, 3)))
    assert verdict.missing == (2,)
    assert verdict.findings[0].ranks == (2,)
    assert "rank 2 left no record" in verdict.summary


def test_thousands_of_ranks_stay_readable():
    waiting = entry(state="started")
    dumps = [dump(rank, waiting, size=2000) for rank in range(2000) if rank != 1234]
    verdict = verdict_of(*dumps, dump(1234, size=2000))
    assert verdict.culprits == (1234,)
    assert "ranks 0-1233, 1235-1999 wait in it" in verdict.summary
    assert len(to_text(verdict)) < 1000


# Files.


def write(path, raw, as_pickle=False):
    path.write_bytes(pickle.dumps(raw) if as_pickle else json.dumps(raw).encode())
    return path


def test_json_and_pickle_files_and_folders_are_read(tmp_path):
    paths = [write(tmp_path / f"trace_{r}", dump(r, entry()), r % 2 == 0) for r in range(4)]
    assert [d.rank for d in read([tmp_path])] == [0, 1, 2, 3]
    assert read(paths) == read([tmp_path])


def test_the_rank_comes_from_the_name_where_the_dump_says_nothing(tmp_path):
    raw = dump(0, entry())
    del raw["global_rank"]
    assert read([write(tmp_path / "trace_17.json", raw)])[0].rank == 17
    with pytest.raises(AnalyzeError, match="is unknown"):
        read([write(tmp_path / "trace", raw)])


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cannot be read"),
        (b"{", "flight recorder dump as JSON or pickle"),
        (b"[]", "not a flight recorder dump"),
        (b"[" * 100_000, "cannot be read"),
        (b'{"pg_config": []}', "not a flight recorder dump"),
        (b'{"pg_config": {"a": {"ranks": "os"}}, "global_rank": 0}', "not a flight recorder dump"),
        (pickle.dumps(Evil()), "names builtins.print"),
        (b"\x80\x02}K\x01b.", "cannot be read"),
        (b"\x80\x02]K\x01a}e.", "cannot be read"),
        (b"\x80\x02\x8e" + b"\xff" * 7 + b"\x0f.", "cannot be read: .*MemoryError"),
        (pickle.dumps({"pg_config": {1: {"ranks": "[0]"}}}), "a group's name is 1, allowed is str"),
        (pickle.dumps({"pg_config": {}, "entries": [3]}), "not a flight recorder dump"),
    ],
)
def test_what_is_no_dump_is_refused_by_name(tmp_path, data, why, capsys):
    path = tmp_path / "trace_0"
    path.write_bytes(data)
    with pytest.raises(AnalyzeError, match=why) as caught:
        read([path])
    assert str(path) in str(caught.value)
    assert "executed" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("process_group", [["world"]]),
        ("operation", 3),
        ("profiling_name", None),
        ("collective_seq_id", "1"),
        ("state", ["started"]),
        ("failed", "no"),
        ("input_sizes", [["4"]]),
        ("input_dtypes", [["Float"]]),
        ("input_dtypes", [float("nan"), 3]),
        ("time_created_ns", 1 << 80),
        ("time_discovered_completed_ns", -1),
        ("reduce_op", {}),
        ("root", "0"),
        ("peer", [0]),
        ("time_created_ns", None),
        ("time_discovered_started_ns", "soon"),
        ("record_id", {}),
    ],
)
def test_a_value_of_another_kind_is_refused_with_its_name(tmp_path, key, value):
    path = write(tmp_path / "trace_0", dump(0, entry() | {key: value}, entry(seq=2)))
    refused = run(path)
    assert refused.exit_code == 2
    assert f"{path} is not a flight recorder dump" in refused.stderr
    assert key in refused.stderr or "unhashable" in refused.stderr


def test_a_rank_that_is_no_number_is_refused(tmp_path):
    refused = run(write(tmp_path / "trace_0", dump([0], entry())))
    assert refused.exit_code == 2
    assert "global_rank is [0], allowed is int | None" in refused.stderr


def test_two_dumps_of_one_rank_are_refused(tmp_path):
    paths = [write(tmp_path / name, dump(0)) for name in ("a_0", "b_0")]
    with pytest.raises(AnalyzeError, match="both of rank 0"):
        read(paths)


# The command.


def run(*arguments):
    return CliRunner().invoke(app, ["trace", *map(str, arguments)])


def test_the_command_tells_by_text_status_and_json(tmp_path):
    write(tmp_path / "0", dump(0, entry(state="started"), size=2))
    write(tmp_path / "1", dump(1, size=2))
    told = run(tmp_path)
    assert told.exit_code == 1
    assert told.stdout.startswith("verdict: rank 1 has not entered all_reduce 1 of 'world'")
    report = json.loads(run(tmp_path, "--json").stdout)
    assert report["culprits"] == [1]
    assert report["findings"][0]["kind"] == "behind"
    write(tmp_path / "0", dump(0, entry(), size=2))
    write(tmp_path / "1", dump(1, entry(), size=2))
    assert run(tmp_path).exit_code == 0
    unreadable = run(tmp_path / "absent")
    assert unreadable.exit_code == 2
    assert "absent" in unreadable.stderr


# Ranks that hung.


def hang(context, late):
    comm = context.new_comm()
    hook = FlightRecorderHook(32, isolated=True)
    hook.register_with_comm(comm)
    comm.barrier(False)
    comm.all_reduce(torch.ones(4), ReduceOp.SUM, False)
    if context.rank != late:
        with pytest.raises(RuntimeError):
            comm.all_gather_single(torch.zeros(4 * context.size), torch.ones(4), False, timeout=0.3)
    dump = hook.dump_json()
    context.meet(f"ended/{comm.get_name()}")
    return dump


@pytest.mark.worlds(sizes=(3,))
def test_a_real_hang_is_explained(world):
    dumps = [json.loads(text) for text in world.run_context(hang, 1)]
    verdict = verdict_of(*dumps)
    assert verdict.culprits == (1,)
    assert verdict.findings[0].operation == "all_gather_single"
    assert "finished all_reduce 2" in verdict.summary
