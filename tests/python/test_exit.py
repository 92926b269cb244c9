"""How a program ends: quietly and at once, whatever it left undone."""

from __future__ import annotations

import os

import pytest
import torchcomms

from tests.harness.ports import free_port
from tests.harness.programs import python, ranks

SOON_S = 2.0
MOVING = [name for name in ("gloo", "ctran") if torchcomms.is_backend_built(name)] or ["fake"]
every_backend = pytest.mark.parametrize("backend", MOVING)

PROGRAM = """
    import time
    import torch, torchcomms
    from torchcomms import ReduceOp
    {body}
    print("end", time.monotonic())
"""

USED = """
    comm = torchcomms.new_comm("{backend}", torch.device("cpu"), "never_finalized")
    tensor = torch.ones(4)
    comm.all_reduce(tensor, ReduceOp.SUM, False)
    work = comm.all_reduce(tensor, ReduceOp.SUM, True)
    work.wait()
"""

BODIES = {
    "only_imported": "",
    "held_at_module_level": USED,
    "dropped_before_the_end": USED + "    del comm, work\n",
    "held_in_a_cycle": USED + "    box = [comm, work]; box.append(box)\n",
    "several": USED
    + "    others = [torchcomms.new_comm('{backend}', torch.device('cpu'), f'n{{i}}')"
    " for i in range(4)]\n",
    "split": USED + "    child = comm.split([comm.get_rank()], 'child')\n",
    "hooked": USED + "    comm.register_pre_hook(lambda name, op_id, args: None)\n"
    "    comm.register_abort_hook(lambda: None)\n",
    "with_a_batch": USED + "    batch = comm.batch_op_create()\n",
    "finalized": USED + "    comm.finalize()\n",
    "split_and_finalized": USED
    + "    child = comm.split([comm.get_rank()], 'child')\n    comm.finalize()\n",
}


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["forked", "fresh"])
def fresh(request):
    """Whether a program has an interpreter of its own, whose import of torch takes seconds.

    The end of a forked one is that of an interpreter: see test_forked.
    """
    return request.param


@pytest.fixture(scope="module")
def soon_s():
    """The limit. A machine that is slow to end a program without us is given more."""
    bare = python("""
        import time
        import torch, torch.distributed
        print("end", time.monotonic())
    """).expect_success()
    return max(SOON_S, 4 * seconds_to_exit(bare))


def seconds_to_exit(finished):
    return finished.ended - float(finished.out.rsplit("end ", 1)[1])


def ended_well(finished, soon_s):
    assert finished.code == 0, f"exit code {finished.code}\n{finished.err}"
    assert finished.err == ""
    took_s = seconds_to_exit(finished)
    assert took_s < soon_s, f"took {took_s:.1f} s to exit"


@pytest.mark.serial
@every_backend
@pytest.mark.parametrize("body", BODIES)
def test_one_process_exits_at_once_and_in_silence(body, backend, soon_s, fresh):
    source = PROGRAM.format(body=BODIES[body].format(backend=backend))
    for finished in ranks(source, 1, free_port(), fresh=fresh):
        ended_well(finished, soon_s)


@pytest.mark.serial
@pytest.mark.parametrize("backend", [name for name in MOVING if name != "fake"])
@pytest.mark.parametrize(
    "body", ["held_at_module_level", "split", "finalized", "split_and_finalized"]
)
def test_two_processes_exit_at_once_and_in_silence(body, backend, soon_s, fresh):
    source = PROGRAM.format(body=BODIES[body].format(backend=backend))
    for finished in ranks(source, 2, free_port(), fresh=fresh):
        ended_well(finished, soon_s)


LATE_SPLIT = """
    import torch, torchcomms
    from torchcomms import ReduceOp
    comm = torchcomms.new_comm("{backend}", torch.device("cpu"), "parent")
    gates = ["{folder}/1", "{folder}/2"]
    if comm.get_rank() == 0:
        comm.split([0], "own").finalize()
        comm.finalize()
        for gate in gates:
            open(gate, "w").close()
    else:
        open(gates[comm.get_rank() - 1]).close()
        pair = comm.split([1, 2], "pair")
        again = pair.split([1, 0], "again")
        tensor = torch.ones(1)
        again.all_reduce(tensor, ReduceOp.SUM, False)
        print("sum", tensor.item())
        for each in (again, pair, comm):
            each.finalize()
"""


@pytest.mark.parametrize("backend", [name for name in MOVING if name != "fake"])
def test_others_may_still_split_when_rank_0_has_finalized_and_ends(backend, tmp_path):
    for gate in (1, 2):
        os.mkfifo(tmp_path / str(gate))
    first, *others = ranks(LATE_SPLIT.format(backend=backend, folder=tmp_path), 3, free_port())
    first.expect_success()
    assert [other.expect_success().out for other in others] == ["sum 2.0\n"] * 2


@pytest.mark.parametrize("backend", [name for name in MOVING if name != "fake"])
@pytest.mark.parametrize("waits", ["comm.recv(tensor, 1, False)", "work.wait()"])
def test_a_daemon_thread_that_waits_ends_with_its_process(waits, backend, fresh):
    body = f"""
    import threading
    comm = torchcomms.new_comm("{backend}", torch.device("cpu"), "waits")
    tensor = torch.ones(4)
    if comm.get_rank() == 0:
        work = comm.recv(tensor, 1, True) if "work" in "{waits}" else None
        begun = threading.Event()
        threading.Thread(target=lambda: (begun.set(), {waits}), daemon=True).start()
        begun.wait()
    else:
        try:
            comm.recv(tensor, 0, False)
        except torchcomms.PeerFailed:
            pass
"""
    for finished in ranks(PROGRAM.format(body=body), 2, free_port(), fresh=fresh):
        assert finished.code == 0, finished.err


@pytest.mark.parametrize("how", ["", "hook", "async"])
@pytest.mark.parametrize("backend", sorted({*MOVING, "fake"}))
def test_a_daemon_thread_that_calls_stays_where_it_is(backend, how, fresh):
    # It waits for Python's lock when Python ends, which then ends it, or is about to.
    body = f"""
    import select, threading
    comm = torchcomms.new_comm("{backend}", torch.device("cpu"), "calls")
    if "{how}" == "hook":
        comm.register_pre_hook(lambda *_: select.select([], [], [], 0))
        comm.register_post_hook(lambda *_: select.select([], [], [], 0))
    begun = threading.Event()

    def call():
        tensor = torch.ones(4)
        while True:
            comm.all_reduce(tensor, ReduceOp.SUM, "{how}" == "async")
            begun.set()

    threading.Thread(target=call, daemon=True).start()
    begun.wait()
"""
    for finished in ranks(PROGRAM.format(body=body), 1, free_port(), fresh=fresh):
        assert finished.code == 0, finished.err


@every_backend
def test_hooks_run_in_a_finalize_while_python_ends(backend, fresh):
    body = f"""
    import os
    class Trainer:
        def __init__(self):
            self.comm = torchcomms.new_comm("{backend}", torch.device("cpu"), "hooked")
            # Hooks that do not hold this module, so that its objects go while Python ends.
            for when, on in (("pre", "register_pre_hook"), ("post", "register_post_hook")):
                hook = eval(f"lambda *_: write(1, b'{{when}} ')", {{"write": os.write}})
                getattr(self.comm, on)(hook)
        def __del__(self):
            self.comm.finalize()
    trainer = Trainer()
"""
    for finished in ranks(PROGRAM.format(body=body), 1, free_port(), fresh=fresh):
        assert finished.code == 0, finished.err
        assert "pre post " in finished.out


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("backend", [name for name in MOVING if name != "fake"])
def test_callbacks_of_futures_outlive_no_python(backend, waits, fresh):
    body = f"""
    import torch.distributed as dist
    dist.init_process_group("{backend}")
    tensors = [torch.ones(3) for _ in range(50)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.get_future().then(lambda future: future.value()[0].mul_(2))
    if {waits}:
        for work in works:
            work.wait()
        assert all(tensor[0] == 4 for tensor in tensors)
    dist.destroy_process_group()
"""
    for finished in ranks(PROGRAM.format(body=body), 2, free_port(), fresh=fresh):
        assert finished.code == 0, finished.err


@pytest.mark.parametrize("backend", [name for name in MOVING if name != "fake"])
def test_a_finalize_while_python_ends_does_not_wait_for_a_thread_that_stays(backend, fresh):
    body = f"""
    import os, threading
    from torchcomms import events
    class Trainer:
        def __init__(self):
            self.comm = torchcomms.new_comm("{backend}", torch.device("cpu"), "stays")
        def __del__(self):
            self.comm.finalize()
            os.write(1, b"finalized")
    trainer = Trainer()
    tensor = torch.ones(4)
    if trainer.comm.get_rank() == 0:
        receive = trainer.comm.recv
        threading.Thread(target=receive, args=(tensor, 1, False), daemon=True).start()
        while not any(event["op"] == "recv" for event in events.read()):
            pass
    else:
        try:
            trainer.comm.recv(tensor, 0, False)
        except torchcomms.PeerFailed:
            pass
"""
    for finished in ranks(PROGRAM.format(body=body), 2, free_port(), fresh=fresh):
        assert finished.code == 0, finished.err
        assert finished.out.endswith("finalized")


def test_the_exit_code_of_the_program_is_its_own():
    source = PROGRAM.format(body=USED.format(backend="fake")) + "    raise SystemExit(7)\n"
    finished = python(source)
    assert (finished.code, finished.err) == (7, "")


def test_an_exception_ends_the_program_as_without_us():
    source = PROGRAM.format(body=USED.format(backend="fake")) + "    raise KeyError('mine')\n"
    finished = python(source)
    assert finished.code == 1
    assert finished.err.strip().endswith("KeyError: 'mine'")


@every_backend
def test_dropping_without_finalize_leaves_the_process_usable(backend):
    python(
        """
        import gc, pathlib, torch, torchcomms
        from torch.distributed import HashStore
        import os
        os.environ.update(TORCHCOMM_RANK="0", TORCHCOMM_SIZE="1", MASTER_ADDR="127.0.0.1")
        backend = "BACKEND"
        for i in range(20):
            comm = torchcomms.new_comm(backend, torch.device("cpu"), f"n{i}", store=HashStore())
            comm.barrier(False)
            del comm
        gc.collect()
        def name(task):
            try:
                return pathlib.Path(f"/proc/self/task/{task}/comm").read_text().strip()
            except OSError:  # it has ended
                return "tc-idle"
        threads = sum(name(task) != "tc-idle" for task in os.listdir("/proc/self/task"))
        comm = torchcomms.new_comm(backend, torch.device("cpu"), "last", store=HashStore())
        tensor = torch.ones(2)
        comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, False)
        assert tensor.tolist() == [1, 1]
        assert threads < 10, f"{threads} threads are left of dropped communicators"
    """.replace("BACKEND", backend)
    ).expect_success()


@every_backend
def test_a_forked_child_is_told_and_the_parent_goes_on(backend):
    finished = python(
        """
        import os, torch, torchcomms
        from torch.distributed import HashStore
        os.environ.update(TORCHCOMM_RANK="0", TORCHCOMM_SIZE="1", MASTER_ADDR="127.0.0.1")
        backend = "BACKEND"
        comm = torchcomms.new_comm(backend, torch.device("cpu"), "forked", store=HashStore())
        tensor = torch.ones(1)
        comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, False)
        child = os.fork()
        if child == 0:
            try:
                comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, False)
            except torchcomms.ForkedProcess as error:
                assert "forked" in str(error)
                comm.abort()  # the parent's goes on
                comm.finalize()
                for call in (
                    lambda: comm.split([0], "child"),
                    lambda: comm.set_timeout(1.0),
                    lambda: comm.tensor_register(tensor),
                    lambda: comm.tensor_deregister(tensor),
                    lambda: comm.get_device_transport(),
                    lambda: comm.get_init_handle(),
                ):
                    try:
                        call()
                    except torchcomms.ForkedProcess:
                        continue
                    os._exit(2)
                del comm
                raise SystemExit(33)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 33, status
        comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, False)
        comm.finalize()
        print("done")
    """.replace("BACKEND", backend),
        # Newer Pythons warn of fork() wherever there are threads.
        flags=("-W", "ignore::DeprecationWarning"),
    )
    finished.expect_success()
    assert finished.out.strip() == "done"
    assert finished.err == ""
