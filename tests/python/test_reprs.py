"""repr(): one line of what an object is and how it stands; it raises nothing, whatever happened."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torchcomms
from torchcomms import CommOptions, ReduceOp, TorchCommBackend
from torchcomms._comms import AllReduceOptions, ReconfigureOptions

from tests.harness.programs import python

BACKENDS = [name for name in ("gloo", "ctran") if torchcomms.is_backend_built(name)]


@pytest.fixture(autouse=True)
def one_rank(monkeypatch):
    for name, value in {"TORCHCOMM_RANK": "0", "TORCHCOMM_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                        "MASTER_PORT": "0"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)


@pytest.fixture
def comm(request, one_rank):
    made = torchcomms.new_comm(request.param, torch.device("cpu"), name="shown")
    yield made
    if "finalized" not in repr(made):
        made.finalize()


each = pytest.mark.parametrize("comm", BACKENDS, indirect=True)


@each
def test_a_communicator_says_where_it_is_and_how_it_stands(comm):
    begin = f"<TorchComm 'shown' on {comm.get_backend()}, cpu, "
    assert repr(comm) == begin + "rank 0 of 1>"
    if comm.is_abort_supported():
        comm.abort()
        assert repr(comm) == begin + "rank 0 of 1, ended>"


@each
def test_a_finalized_communicator_and_what_came_of_it(comm):
    work = comm.barrier(True)
    work.wait()
    backend, batch = comm.get_backend_impl(), comm.batch_op_create()
    handle = comm.register_pre_hook(lambda *_: None)
    comm.finalize()
    assert repr(comm).endswith(", finalized>")
    assert repr(work) == "<TorchWork completed>"
    assert repr(backend) == f"<TorchCommBackend {comm.get_backend()} of 'shown'>"
    assert repr(batch) == "<BatchSendRecv of 0 sends and 0 receives>"
    handle.remove()
    assert repr(handle) == "<RemovableHandle of a hook>"


def test_a_window_says_what_it_holds():
    comm = torchcomms.new_comm("fake", torch.device("cpu"), name="windows")
    window = comm.new_window()
    assert repr(window) == "<TorchCommWindow without memory>"
    window.tensor_register(torch.zeros(2, 3))
    shown = "<TorchCommWindow of 24 bytes, float32 [2, 3] on cpu>"
    assert repr(window) == shown
    assert repr(window.get_attr(0)) == "<TorchCommWindowAttr UNIFIED>"
    comm.finalize()
    assert repr(window) == shown


def test_a_communicator_that_is_not_connected_says_so():
    name = "ctran" if "ctran" in BACKENDS else "gloo"
    comm = torchcomms.new_comm(
        name,
        torch.device("cpu"),
        name="later",
        enable_reconfigure=True,
        store=torch.distributed.HashStore(),
    )
    assert repr(comm) == f"<TorchComm 'later' on {name}, cpu, not connected>"
    comm.finalize()


def test_in_a_forked_child_it_says_that_it_is_the_parents():
    finished = python(
        """
        import os, torch, torchcomms
        comm = torchcomms.new_comm("fake", torch.device("cpu"), name="forked")
        child = os.fork()
        if child == 0:
            print(comm, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        comm.finalize()
        """
    )
    assert finished.expect_success().out == (
        "<TorchComm 'forked' on fake, cpu, made before fork()>\n"
    )


class Broken(TorchCommBackend):
    """Fails wherever it is asked, but for what it takes to be made."""

    asked = False

    def init(self, device, name, options):
        pass

    def _answer(self, value):
        if Broken.asked:
            raise RuntimeError("asked")
        return value

    def get_rank(self):
        return self._answer(0)

    def get_size(self):
        return self._answer(1)

    def get_backend_name(self):
        return self._answer("broken")

    def get_comm_name(self):
        return self._answer("name")

    def finalize(self):
        pass

    def barrier(self, async_op):
        class Failing:
            def wait(self):
                raise RuntimeError("it was not to be")

        return Failing()


def test_a_backend_that_fails_when_it_is_asked_leaves_the_type(monkeypatch):
    torchcomms.register_backend("broken_for_repr", Broken)
    comm = torchcomms.new_comm("broken_for_repr", torch.device("cpu"), name="broken")
    work = comm.barrier(True)
    with pytest.raises(RuntimeError, match="not to be"):
        work.wait()
    assert repr(work) == "<TorchWork failed: it was not to be>"
    monkeypatch.setattr(Broken, "asked", True)
    assert repr(comm).startswith("<TorchComm")
    assert repr(comm.get_backend_impl()) == "<TorchCommBackend>"
    monkeypatch.setattr(Broken, "asked", False)
    comm.finalize()


@pytest.mark.parametrize(
    "name",
    [
        "TorchComm", "TorchWork", "BatchSendRecv", "CommOptions", "ReduceOp", "P2POp",
        "TorchCommBackend", "RemovableHandle", "TorchCommWindow", "SendOptions",
        "ReconfigureOptions",
    ],
)  # fmt: skip
def test_what_is_not_made_yet_says_so(name):
    bound = getattr(torchcomms, name)
    assert repr(bound.__new__(bound)) == f"<{name} not made yet>"


def test_a_backend_may_be_shown_before_it_is_made():
    shown = []

    class Early(TorchCommBackend):
        def __init__(self):
            shown.append(repr(self))
            super().__init__()

    Early()
    assert shown == ["<TorchCommBackend not made yet>"]


def test_operations_take_nothing_that_is_not_made():
    comm = torchcomms.new_comm("fake", torch.device("cpu"), name="made")
    with pytest.raises(TypeError, match="ReduceOp"):
        comm.all_reduce(torch.ones(1), ReduceOp.__new__(ReduceOp), False)
    with pytest.raises(TypeError, match="self"):
        torchcomms.TorchComm.__new__(torchcomms.TorchComm).barrier(False)
    comm.finalize()


def test_values():
    assert repr(ReduceOp.SUM) == "ReduceOp.SUM"
    assert repr(ReduceOp.PREMUL_SUM(0.5)) == "ReduceOp.PREMUL_SUM(0.5)"
    scaled = ReduceOp.PREMUL_SUM(torch.ones(1, dtype=torch.bfloat16))
    assert repr(scaled) == "ReduceOp.PREMUL_SUM(bfloat16 [1] on cpu)"
    send = torchcomms.P2POp(torchcomms.P2POpType.SEND, torch.ones(4), 3)
    assert repr(send) == "<P2POp send of float32 [4] on cpu to rank 3>"


def test_options_say_what_is_set():
    options = AllReduceOptions()
    assert repr(options) == "<AllReduceOptions>"
    options.timeout = timedelta(milliseconds=1500)
    options.hints = {"b": "2", "a": "1"}
    assert repr(options) == "<AllReduceOptions timeout 1.5 s, hints {'a': '1', 'b': '2'}>"
    of_comm = CommOptions()
    of_comm.timeout, of_comm.name = timedelta(seconds=20), "main"
    of_comm.abort_process_on_timeout_or_error = False
    assert repr(of_comm) == "<CommOptions timeout 20 s, name 'main', never ends the process>"
    members = ReconfigureOptions(7, ["a", "b"])
    assert repr(members) == "<ReconfigureOptions uuid 7, 2 handles>"
