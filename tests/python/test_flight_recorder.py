"""The flight recorder: what it keeps, in which form, and that PyTorch's own reader takes it."""

from __future__ import annotations

import copy
import json
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torchcomms
from torch.distributed.flight_recorder.components.builder import build_db
from torch.distributed.flight_recorder.components.config_manager import JobConfig
from torch.torch_version import TorchVersion
from torchcomms import ReduceOp
from torchcomms.hooks import FlightRecorderHook

from tests.harness.operations import COLLECTIVES, arguments, operations_for
from tests.harness.ports import free_port
from tests.harness.programs import forked, ranks
from tests.python.test_python_backend import Minimal

ENTRY_KEYS = {
    "record_id", "pg_id", "process_group", "thread_name", "thread_id", "collective_seq_id",
    "p2p_seq_id", "op_id", "profiling_name", "time_created_ns", "duration_ms", "input_sizes",
    "output_sizes", "input_dtypes", "output_dtypes", "state", "time_discovered_started_ns",
    "time_discovered_completed_ns", "retired", "timeout_ms", "is_p2p",
}  # fmt: skip

reader = pytest.mark.skipif(
    TorchVersion(torch.__version__) < "2.15", reason="this torch's reader takes nccl and xccl alone"
)


def recorder_of(comm, size=64):
    hook = FlightRecorderHook(size, isolated=True)
    hook.register_with_comm(comm)
    return hook


def entries(hook, include_completed=True):
    return json.loads(hook.dump_json(include_completed)).get("entries", [])


def database(dumps):
    """What PyTorch's reader makes of {rank: dump}."""
    args = JobConfig().parse_args(args=[])
    args.allow_incomplete_ranks = False
    details = {
        f"rank{rank}": {"rank": rank, "entries": [], **copy.deepcopy(dump)}
        for rank, dump in dumps.items()
    }
    return build_db(details, args, next(iter(dumps.values()))["version"])


def test_an_entry_says_what_was_called(comm):
    hook = recorder_of(comm)
    assert hook.is_enabled()
    before_ns = time.time_ns()
    comm.all_reduce(torch.ones(2, 3), ReduceOp.SUM, False)
    dump = json.loads(hook.dump_json())
    assert dump["version"] == "2.10"
    assert dump["pg_config"] == {
        comm.get_name(): {"name": comm.get_name(), "desc": "fake", "ranks": "[0]"}
    }
    assert dump["pg_status"]["0"]["last_completed_collective"] == "1"
    (entry,) = dump["entries"]
    assert entry.keys() >= ENTRY_KEYS
    assert entry["process_group"] == [comm.get_name(), "fake"]
    assert entry["profiling_name"] == "fake:all_reduce"
    assert (entry["record_id"], entry["pg_id"], entry["op_id"]) == (0, 0, 0)
    assert entry["input_sizes"] == entry["output_sizes"] == [[2, 3]]
    assert entry["input_dtypes"] == entry["output_dtypes"] == ["Float"]
    assert (entry["state"], entry["retired"], entry["is_p2p"]) == ("completed", True, False)
    assert entry["timeout_ms"] == 600000
    assert entry["duration_ms"] > 0
    assert before_ns <= entry["time_created_ns"] <= time.time_ns()
    assert entry["time_created_ns"] <= entry["time_discovered_completed_ns"]


def test_lists_dtypes_and_own_limits_are_shown(comm):
    hook = recorder_of(comm)
    data = torch.ones(4, dtype=torch.int64)
    comm.all_gather([torch.zeros_like(data)], data, False, timeout=1.5)
    comm.barrier(False)
    gathered, barrier = entries(hook)
    assert gathered["input_sizes"] == gathered["output_sizes"] == [[4]]
    assert gathered["input_dtypes"] == ["Long"]
    assert gathered["timeout_ms"] == 1500
    assert barrier["input_sizes"] == barrier["output_sizes"] == barrier["input_dtypes"] == []


def test_split_and_batch_are_recorded_and_finalize_is_not():
    comm = torchcomms.new_comm("fake", torch.device("cpu"), "whole")
    hook = recorder_of(comm)
    batch = comm.batch_op_create()
    batch.send(torch.zeros(1), 0)
    batch.issue(True).wait()
    child = comm.split([0], "part")
    grandchild = child.split([0], "part_of_part")
    grandchild.barrier(False)
    for each in (grandchild, child, comm):
        each.finalize()
    seen = [(e["process_group"][0], e["operation"], e["pg_id"]) for e in entries(hook)]
    assert seen == [
        ("whole", "batch_op_issue", 0), ("whole", "split", 0), ("part", "split", 1),
        ("part_of_part", "barrier", 2),
    ]  # fmt: skip
    for status in json.loads(hook.dump_json())["pg_status"].values():
        assert set(status.values()) <= {"0", "1"}, "a batch is none of the group's collectives"


def test_the_ring_keeps_the_last_and_counts_all(comm):
    hook = recorder_of(comm, size=4)
    for _ in range(10):
        comm.barrier(False)
    assert hook.size() == len(hook) == 10
    assert [e["record_id"] for e in entries(hook)] == [6, 7, 8, 9]


def test_reset_forgets_and_the_ring_goes_on(comm):
    hook = recorder_of(comm, size=4)
    for first_lap in (2, 7, 5, 0, 4):
        for _ in range(first_lap):
            comm.barrier(False)
        hook.reset()
        assert (hook.size(), entries(hook)) == (0, [])
        assert "entries" not in json.loads(hook.dump_json())
        comm.all_reduce(torch.ones(1), ReduceOp.SUM, False)
        comm.barrier(False)
        assert hook.size() == 2
        names = [e["operation"] for e in entries(hook)]
        assert names == ["all_reduce", "barrier"]
        assert [e["record_id"] for e in entries(hook)] == [0, 1]


def test_completed_entries_can_be_left_out(comm):
    hook = recorder_of(comm)
    comm.barrier(False)
    comm.all_reduce(torch.ones(1), ReduceOp.SUM, True).wait()
    assert entries(hook, include_completed=False) == []
    assert len(entries(hook)) == 2


def test_registered_twice_records_twice(comm):
    hook = recorder_of(comm)
    hook.register_with_comm(comm)
    comm.barrier(False)
    assert [e["pg_id"] for e in entries(hook)] == [0, 1]


def test_the_hook_outlives_its_object_and_can_be_taken_back(comm):
    shared = FlightRecorderHook()
    before = shared.size()
    FlightRecorderHook(max_entries=0).register_with_comm(comm)
    comm.barrier(False)
    assert shared.size() == before + 1
    own = recorder_of(comm)
    comm.barrier(False)
    own.unregister()
    own.unregister()
    comm.barrier(False)
    assert (own.size(), own.is_enabled()) == (1, False)
    assert shared.size() == before + 3


def test_an_isolated_one_restarts_the_operation_ids(comm):
    comm.barrier(False)
    hook = FlightRecorderHook(isolated=True)
    ids = []
    comm.register_pre_hook(lambda name, op_id, args: ids.append(op_id))
    hook.register_with_comm(comm)
    comm.barrier(False)
    assert ids == [0]


def test_earlier_operations_elsewhere_do_no_harm():
    """The numbers that operations share over the process have gaps for a recorder, and may."""
    aside = torchcomms.new_comm("fake", torch.device("cpu"), "aside")
    comm = torchcomms.new_comm("fake", torch.device("cpu"), "registered_late")
    FlightRecorderHook().register_with_comm(comm)
    for _ in range(3):
        aside.barrier(False)
        comm.barrier(False)
    for each in (aside, comm):
        each.finalize()


@pytest.mark.parametrize("wrong", [-1, 1.5, "many"])
def test_a_size_that_is_none_is_a_type_error(wrong):
    with pytest.raises(TypeError):
        FlightRecorderHook(wrong)


class Watched(Minimal):
    """Keeps what a recorder shows of an operation inside of it."""

    seen: object = None

    def barrier(self, *_):
        (self.seen,) = entries(self.hook, include_completed=False)


def test_a_synchronous_call_is_under_way_from_its_beginning():
    torchcomms.register_backend("flight_recorder_watched", Watched)
    comm = torchcomms.new_comm("flight_recorder_watched", torch.device("cpu"), "watched")
    hook = comm.get_backend_impl().hook = recorder_of(comm)
    comm.barrier(False)
    inside = comm.get_backend_impl().seen
    assert inside["state"] == "started"
    (entry,) = entries(hook)
    began_ns, ended_ns = (entry[f"time_discovered_{what}_ns"] for what in ("started", "completed"))
    assert inside["time_discovered_started_ns"] == began_ns
    assert entry["time_created_ns"] <= began_ns < ended_ns
    assert entry["duration_ms"] == pytest.approx((ended_ns - began_ns) / 1e6)
    comm.barrier(True).wait()
    assert comm.get_backend_impl().seen["state"] == "scheduled"
    comm.finalize()


def test_a_call_that_raises_is_shown_as_failed(comm):
    def refuse(*_):
        raise KeyError("no")

    hook = recorder_of(comm)
    handle = comm.register_pre_hook(refuse)
    with pytest.raises(KeyError):
        comm.all_reduce(torch.ones(1), ReduceOp.SUM, False)
    (raised,) = entries(hook)  # at once, not when another one comes
    assert (raised["state"], raised["retired"], raised["failed"]) == ("scheduled", False, True)
    assert raised["refused"] is True
    assert "duration_ms" not in raised
    handle.remove()
    comm.barrier(False)
    _, good = entries(hook)
    assert (good["state"], good["failed"], "refused" in good) == ("completed", False, False)
    # Nobody else has met what was refused.
    assert good["collective_seq_id"] == raised["collective_seq_id"]


def test_what_a_hook_refused_that_was_there_before_is_shown_too(comm):
    def refuse(*_):
        raise KeyError("no")

    handle = comm.register_pre_hook(refuse)
    hook = recorder_of(comm)
    with pytest.raises(KeyError):
        comm.barrier(False)
    handle.remove()
    (refused,) = entries(hook)
    assert (refused["operation"], refused["refused"]) == ("barrier", True)


def test_one_that_is_registered_late_numbers_as_the_communicator_does(comm):
    comm.barrier(False)
    hook = recorder_of(comm)
    comm.barrier(False)
    (second,) = entries(hook)
    assert second["collective_seq_id"] == 2
    (status,) = json.loads(hook.dump_json())["pg_status"].values()
    assert set(status.values()) == {"2"}


def test_messages_and_batches_that_are_refused_give_their_numbers_back(comm):
    def refuse(*_):
        raise KeyError("no")

    def batch():
        made = comm.batch_op_create()
        made.send(torch.ones(1), 0)
        return made.issue(False)

    hook = recorder_of(comm)
    for call in (lambda: comm.send(torch.ones(1), 0, False), batch):
        call()
        handle = comm.register_pre_hook(refuse)
        with pytest.raises(KeyError):
            call()
        handle.remove()
        call()
        before, refused, after = (entry["collective_seq_id"] for entry in entries(hook))
        assert (refused, after) == (before + 1, before + 1)
        hook.reset()


def test_a_file_holds_a_pickle_that_names_no_class(comm, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", str(tmp_path / "deep" / "trace_"))
    hook = recorder_of(comm)
    comm.all_reduce(torch.ones(2), ReduceOp.SUM, False)
    assert hook.dump_file(3) is None
    data = (tmp_path / "deep" / "trace_3").read_bytes()
    dump = pickle.loads(data)
    (entry,) = dump["entries"]
    assert entry["process_group"] == (comm.get_name(), "fake")
    assert entry["duration_ms"] > 0
    want = json.loads(hook.dump_json())
    want["entries"][0]["process_group"] = tuple(want["entries"][0]["process_group"])
    assert dump == want
    assert list((tmp_path / "deep").iterdir()) == [tmp_path / "deep" / "trace_3"]


def test_a_thread_whose_name_ends_within_a_character_leaves_a_readable_dump(
    comm, tmp_path, monkeypatch
):
    """The system keeps 15 bytes of a name."""
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", str(tmp_path / "trace_"))
    hook = recorder_of(comm)
    cut = "a name of manyü".encode()[:15]

    def record():
        Path("/proc/thread-self/comm").write_bytes(cut)
        comm.barrier(False)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(record).result()
    hook.dump_file(0)
    (in_pickle,) = pickle.loads((tmp_path / "trace_0").read_bytes())["entries"]
    for entry in (in_pickle, *entries(hook)):
        assert entry["thread_name"] == "a name of many\N{REPLACEMENT CHARACTER}"


def test_an_unknown_time_is_none_in_a_pickle(comm, tmp_path, monkeypatch):
    def refuse(*_):
        raise KeyError("no")

    monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", str(tmp_path / "trace_"))
    hook = recorder_of(comm)
    handle = comm.register_pre_hook(refuse)
    with pytest.raises(KeyError):
        comm.barrier(False)
    handle.remove()
    hook.dump_file(0)
    (entry,) = pickle.loads((tmp_path / "trace_0").read_bytes())["entries"]
    assert entry["time_discovered_started_ns"] is None
    assert entries(hook)[0]["time_discovered_started_ns"] == 0


def test_the_name_can_change_between_dumps(comm, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME", "true")
    hook = recorder_of(comm)
    for name in ("first", "second"):
        monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", str(tmp_path / name))
        hook.dump_file(0)
        assert pickle.loads((tmp_path / name).read_bytes())["version"] == "2.10"


def test_a_file_that_cannot_be_written_is_only_logged(comm, tmp_path, monkeypatch, capfd):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", str(tmp_path / "file" / "trace_"))
    assert recorder_of(comm).dump_file(0) is None
    assert "trace_0" in capfd.readouterr().err


def test_the_shared_ring_has_the_size_of_the_environment():
    program = """
        import json, torch, torchcomms
        from torchcomms.hooks import FlightRecorderHook
        comm = torchcomms.new_comm("fake", torch.device("cpu"), "sized")
        hook = FlightRecorderHook(max_entries=1)
        hook.register_with_comm(comm)
        for _ in range(5):
            comm.barrier(False)
        print(hook.size(), len(json.loads(hook.dump_json()).get("entries", [])))
    """
    for size, printed in (("3", "5 3"), ("0", "0 0")):
        finished = forked(program, TORCHCOMM_FR_BUFFER_SIZE=size).expect_success()
        assert finished.out.split("\n")[0] == printed
    refused = forked(program, TORCHCOMM_FR_BUFFER_SIZE="-1")
    assert refused.code != 0
    assert "TORCHCOMM_FR_BUFFER_SIZE='-1'" in refused.err


# What several ranks record, and what PyTorch's reader makes of it.


def every_collective(context):
    comm = context.new_comm()
    hook = FlightRecorderHook(256, isolated=True)
    hook.register_with_comm(comm)
    names = [name for name in operations_for(context) if name in COLLECTIVES]
    for name in names:
        given = arguments(name, context.rank, context.size, lambda _s, shape: torch.ones(shape))
        getattr(comm, name)(*given.values(), False)
    if context.size > 1:
        batch = comm.batch_op_create()
        batch.send(torch.ones(3), (context.rank + 1) % context.size)
        batch.recv(torch.ones(3), (context.rank - 1) % context.size)
        batch.issue(True).wait()
    if context.size == 2:
        if context.rank == 0:
            comm.send(torch.ones(2), 1, False)
        else:
            comm.recv(torch.ones(2), 0, False)
    child = comm.split([context.rank], f"{comm.get_name()}_own_{context.rank}")
    child.finalize()
    context.meet(f"recorded/{comm.get_name()}")
    dump = hook.dump_json()
    comm.finalize()
    return names, dump


@reader
@pytest.mark.worlds(sizes=(2, 3))
def test_pytorchs_reader_finds_every_collective_whole(world):
    results = world.run_context(every_collective)
    names = results[0][0]
    dumps = {rank: json.loads(dump) for rank, (_, dump) in enumerate(results)}
    for rank, dump in dumps.items():
        assert dump["global_rank"] == rank
        assert all(e["state"] == "completed" for e in dump["entries"])
    if world.size == 2:
        messages = [d["entries"][-2] for d in dumps.values()]
        words = [m["profiling_name"].partition(":")[2] for m in messages]
        assert words == ["send 0->1", "recv 1<-0"]
        assert messages[0]["collective_seq_id"] == messages[1]["collective_seq_id"]
    db = database(dumps)
    assert all(c.pass_check for c in db.collectives)
    found = [c.collective_name.partition(":")[2] for c in db.collectives]
    readers = {"gather_single": "gather"}
    assert found[: len(names)] == [readers.get(name, name) for name in names]
    assert found[len(names)] == "coalesced"
    assert found[-1] == "split"


def some_leave(context):
    comm = context.new_comm()
    hook = FlightRecorderHook(16, isolated=True)
    hook.register_with_comm(comm)
    child = comm.split([0] if context.rank == 0 else [], f"{comm.get_name()}_of_0")
    assert (child is None) == (context.rank != 0)
    comm.barrier(False)
    dump = hook.dump_json()
    for each in filter(None, (child, comm)):
        each.finalize()
    return dump


@pytest.mark.worlds(sizes=(2,))
def test_a_split_without_this_rank_is_no_failure(world):
    for dump in world.run_context(some_leave):
        states = [(e["operation"], e["state"], e["failed"]) for e in json.loads(dump)["entries"]]
        assert states == [("split", "completed", False), ("barrier", "completed", False)]


def asynchronous(context):
    comm = context.new_comm()
    hook = FlightRecorderHook(16, isolated=True)
    hook.register_with_comm(comm)
    context.meet(f"registered/{comm.get_name()}")
    seen = None
    if context.rank == 0:
        work = comm.all_reduce(torch.ones(4), ReduceOp.SUM, True)
        seen = json.loads(hook.dump_json(False))["entries"]
        context.meet(f"looked/{comm.get_name()}")
    else:
        context.meet(f"looked/{comm.get_name()}")
        work = comm.all_reduce(torch.ones(4), ReduceOp.SUM, True)
    work.wait()
    left = json.loads(hook.dump_json(False)).get("entries", [])
    comm.finalize()
    return seen, left


@pytest.mark.worlds(sizes=(2,))
def test_what_is_in_flight_is_active_until_it_ends(world):
    (seen, left_0), (_, left_1) = world.run_context(asynchronous)
    (entry,) = seen
    assert entry["state"] in ("scheduled", "started")
    assert entry["retired"] is False
    assert left_0 == left_1 == []


def one_is_missing(context):
    comm = context.new_comm()
    hook = FlightRecorderHook(16, isolated=True)
    hook.register_with_comm(comm)
    comm.barrier(False)
    if context.rank != 1:
        with pytest.raises(RuntimeError):
            comm.all_reduce(torch.ones(4), ReduceOp.SUM, False, timeout=0.3)
    dump = hook.dump_json()
    context.meet(f"ended/{comm.get_name()}")
    return dump


@reader
@pytest.mark.worlds(sizes=(3,))
def test_a_rank_that_is_missing_is_missing_in_pytorchs_reader_too(world):
    dumps = {rank: json.loads(d) for rank, d in enumerate(world.run_context(one_is_missing))}
    last = dumps[0]["entries"][-1]
    assert (last["operation"], last["retired"]) == ("all_reduce", False)
    missing = [c.missing_ranks for c in database(dumps).collectives if c.missing_ranks]
    assert missing == [{1}]


# The control plane.

HANDLERS = ("torchcomms_health_check", "torchcomms_fr_trace_json", "torchcomms_fr_dump_file")


def test_the_handlers_are_registered():
    from torch._C._distributed_c10d import _get_handler_names

    assert set(HANDLERS) <= set(_get_handler_names())


def served(*paths):
    """What a worker's control plane answers to each path, in a process of its own."""
    return f"""
        import json, torch, torchcomms, urllib.request, urllib.error, threading
        from torch._C._distributed_c10d import _WorkerServer
        from torchcomms.hooks import FlightRecorderHook

        server = _WorkerServer("127.0.0.1", 0)

        def ask(path):
            request = urllib.request.Request(
                f"http://127.0.0.1:{{server.port}}/handler/{{path}}", method="POST")
            try:
                with urllib.request.urlopen(request, timeout=30) as reply:
                    return reply.status, reply.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        answers = [ask("torchcomms_health_check"), ask("torchcomms_fr_dump_file")]
        comm = torchcomms.new_comm("fake", torch.device("cpu"), "asked")
        FlightRecorderHook().register_with_comm(comm)
        comm.barrier(False)
        answers += [ask(path) for path in {list(paths)!r}]
        print(json.dumps(answers))
        server.shutdown()
    """


def test_the_control_plane_answers(tmp_path):
    trace = "torchcomms_fr_trace_json"
    program = served(
        trace, f"{trace}?onlyactive=true", f"{trace}?includecollectives=false",
        f"{trace}?onlyactive=yes", f"{trace}?unknown=true", "torchcomms_fr_dump_file",
    )  # fmt: skip
    program += f"""
        import os, time
        for _ in range(3000):
            if os.path.exists({str(tmp_path / "trace_0")!r}):
                break
            threading.Event().wait(0.01)
    """
    variables = {"TORCHCOMM_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_")}
    finished = forked(program, **variables).expect_success()
    line = next(line for line in finished.out.splitlines() if line.startswith("["))
    health, early, full, active, bare, wrong, unknown, dump = json.loads(line)
    assert health == [200, '{"healthy": true}']
    assert early[0] == 503
    assert full[0] == active[0] == bare[0] == 200
    assert [e["operation"] for e in json.loads(full[1])["entries"]] == ["barrier"]
    assert "entries" not in json.loads(active[1])
    assert "entries" not in json.loads(bare[1])
    assert "asked" in json.loads(bare[1])["pg_config"]
    assert wrong[0] == unknown[0] == 400
    assert dump[0] == 200
    assert pickle.loads((tmp_path / "trace_0").read_bytes())["entries"]


DEBUG_PAGES = """
    import os, sys, types, urllib.request
    import torch, torchcomms
    import torch.distributed as dist
    from torch._C._distributed_c10d import _WorkerServer
    from torchcomms.hooks import FlightRecorderHook

    # Two modules that PyTorch's pages need and torch does not bring along: as little as they ask.
    def tabulate(rows, headers=(), tablefmt=""):
        return "\\n".join(" ".join(map(str, row)) for row in rows)

    def post(url, timeout):
        with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=30) as got:
            return types.SimpleNamespace(status_code=got.status, text=got.read().decode())

    errors = types.SimpleNamespace(Timeout=TimeoutError, ConnectionError=ConnectionError)
    sys.modules["tabulate"] = types.SimpleNamespace(tabulate=tabulate)
    sys.modules["requests"] = types.SimpleNamespace(post=post, exceptions=errors)
    sys.modules["aiohttp"] = None
    from torch.distributed.debug._debug_handlers import (
        TorchCommsFlightRecorderHandler,
        TorchCommsHealthCheckHandler,
    )
    from torch.distributed.debug._frontend import FrontendServer

    rank = int(os.environ["RANK"])
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(*address, is_master=rank == 0, wait_for_workers=False)
    comm = torchcomms.new_comm(
        "gloo", torch.device("cpu"), "paged", store=dist.PrefixStore("comm", store)
    )
    FlightRecorderHook(max_entries=0).register_with_comm(comm)
    comm.barrier(False)
    server = _WorkerServer("127.0.0.1", 0)
    store.set(f"debug_server/rank{rank}", f"http://127.0.0.1:{server.port}")
    if rank == 0:
        work = comm.all_reduce(torch.ones(4), torchcomms.ReduceOp.SUM, True)
        store.wait(["debug_server/rank1"])
        handlers = [TorchCommsFlightRecorderHandler(), TorchCommsHealthCheckHandler()]
        for handler in handlers:
            handler.fetch_timeout = 30.0
        pages = FrontendServer(0, handlers)
        port = pages._server.server_address[1]
        for page in ("torchcomms_fr_trace", "torchcomms_fr_trace_json", "torchcomms_health_check"):
            with urllib.request.urlopen(f"http://localhost:{port}/{page}", timeout=30) as got:
                print(page, got.status, got.read().decode().replace("\\n", " "))
        store.set("looked", "yes")
    else:
        store.wait(["looked"])
        work = comm.all_reduce(torch.ones(4), torchcomms.ReduceOp.SUM, True)
    work.wait()
    comm.barrier(False)
    comm.finalize()
    server.shutdown()
"""


@reader
def test_the_pages_of_pytorchs_debug_server_show_our_communicators():
    if not torchcomms.is_backend_built("gloo"):
        pytest.skip("backend gloo is not part of this build")
    first, second = (done.expect_success() for done in ranks(DEBUG_PAGES, 2, free_port()))
    del second
    trace, as_json, health = (
        line for line in first.out.splitlines() if line.startswith("torchcomms_")
    )
    assert trace.startswith("torchcomms_fr_trace 200")
    assert "paged" in trace  # the group, and its members
    assert "gloo:all_reduce" in trace
    assert "gloo:barrier" not in trace, "only what is active is asked for"
    assert as_json.startswith("torchcomms_fr_trace_json 200")
    assert "gloo:all_reduce" in as_json
    assert health.count("healthy") >= 2
    assert "triggered" not in health


def test_a_dump_without_entries_is_a_whole_one(comm, tmp_path, monkeypatch):
    """PyTorch's reader of files asks for the key."""
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", str(tmp_path / "trace_"))
    recorder_of(comm).dump_file(0)
    assert pickle.loads((tmp_path / "trace_0").read_bytes())["entries"] == []


def timed_out(context):
    comm = context.new_comm()
    hook = FlightRecorderHook(16, isolated=True)
    hook.register_with_comm(comm)
    comm.barrier(False)
    began = time.monotonic()
    if context.rank == 0:
        with pytest.raises(RuntimeError):
            comm.all_reduce(torch.ones(1), ReduceOp.SUM, False, timeout=0.3)
    took_s = time.monotonic() - began
    context.meet(f"ended/{comm.get_name()}")
    return took_s


@pytest.mark.worlds(sizes=(2,))
def test_a_registered_recorder_does_not_hold_up_an_error(world):
    """The wait for collectors is for a process that the library ends, not for one that goes on."""
    assert "TORCHCOMM_HEALTH_CHECK_WAIT_MS" not in os.environ
    assert max(world.run_context(timed_out)) < 10.0


# The profiler.


def test_the_profiler_shows_every_operation(comm, tmp_path):
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        comm.all_reduce(torch.ones(8, dtype=torch.float64), ReduceOp.SUM, False)
        comm.broadcast(torch.ones(2), 0, False)
        comm.barrier(False)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    shown = [e["args"] for e in events if e["name"] == "record_param_comms"]
    assert [a["Collective name"] for a in shown] == ["all_reduce", "broadcast", "barrier"]
    assert {a["Process Group Name"] for a in shown} == {comm.get_name()}
    assert shown[0]["dtype"] == "Double"
    assert shown[0]["In msg nelems"] == shown[0]["Out msg nelems"] == 8
    assert shown[2]["dtype"] == "Byte"
    assert all(a["Group size"] == 1 and a["Process Group Ranks"] for a in shown)
