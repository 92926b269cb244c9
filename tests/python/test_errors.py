"""The error types: what each is besides CommError, and what an error tells."""

from __future__ import annotations

import pickle

import pytest
import torch
import torchcomms
from torch.distributed import DistNetworkError, DistStoreError

from tests.harness.environment import environment
from tests.harness.ports import free_port
from tests.harness.programs import forked

TYPES = {
    "CommError": (RuntimeError,),
    "CommTimeout": (), "PeerFailed": (), "Aborted": (), "Mismatch": (), "CommFinalized": (),
    "StaleGeneration": (), "ForkedProcess": (), "ResourceExhausted": (), "UnsafeObject": (),
    "TooLarge": (),
    "BackendUnavailable": (ModuleNotFoundError,),
    "Unsupported": (NotImplementedError,),
    "InvalidArgument": (ValueError,),
    "OutOfRange": (IndexError, ValueError),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_every_error_is_a_comm_error_and_a_runtime_error(name):
    kind = getattr(torchcomms, name)
    for base in (torchcomms.CommError, RuntimeError, *TYPES[name]):
        assert issubclass(kind, base), f"{name} is no {base.__name__}"
    assert kind.__module__ == "torchcomms"
    assert kind.__doc__


@pytest.mark.parametrize("name", TYPES)
def test_an_error_can_be_raised_caught_and_pickled(name):
    kind = getattr(torchcomms, name)
    with pytest.raises(RuntimeError, match="the reason"):
        raise kind("the reason")
    again = pickle.loads(pickle.dumps(kind("the reason")))
    assert type(again) is kind
    assert "the reason" in str(again)


def test_the_store_errors_of_torch_are_runtime_errors_too():
    assert issubclass(DistStoreError, RuntimeError)
    assert issubclass(DistNetworkError, RuntimeError)


def test_an_error_quotes_a_part_of_a_text_in_whole_characters():
    with environment(TORCHCOMM_RANK="0", TORCHCOMM_SIZE="1"):
        comm = torchcomms.new_comm(
            "ctran", torch.device("cpu"), name="recovers", enable_reconfigure=True
        )
    with pytest.raises(torchcomms.InvalidArgument) as caught:
        comm.reconfigure(1, ["x" + "\u00e9" * 100])
    assert "'x" + "\u00e9" * 39 + "'" in str(caught.value)


def test_an_error_quotes_what_is_no_utf8_as_far_as_it_is():
    source = """
        import os, torch, torchcomms

        os.environb[b"TORCHCOMM_RANK"] = b"\\xff"
        os.environ["TORCHCOMM_SIZE"] = "1"
        try:
            torchcomms.new_comm("gloo", torch.device("cpu"), "x")
        except torchcomms.InvalidArgument as error:
            assert "TORCHCOMM_RANK" in error.why, error
            assert "\ufffd" in str(error), error
        else:
            raise AssertionError("it was taken")
    """
    forked(source).expect_success()


def test_an_error_tells_operation_communicator_and_rank(comm):
    with pytest.raises(torchcomms.CommError) as caught:
        comm.broadcast(torch.zeros(1), 5, False)
    error = caught.value
    assert isinstance(error, (ValueError, torchcomms.InvalidArgument))
    assert (error.op, error.comm, error.rank) == ("broadcast", comm.get_name(), 0)
    assert error.why in str(error)
    for part in ("broadcast", comm.get_name(), "root", "5"):
        assert part in str(error)


def test_an_unknown_backend_is_a_module_not_found_error():
    with pytest.raises(ModuleNotFoundError, match="failed to find backend") as caught:
        torchcomms.new_comm("no_such_backend", torch.device("cpu"), "n")
    assert isinstance(caught.value, torchcomms.BackendUnavailable)


def test_an_error_of_a_callback_keeps_its_type(comm):
    class Own(Exception):
        pass

    def refuse(name, op_id, args):
        raise Own("mine")

    handle = comm.register_pre_hook(refuse)
    with pytest.raises(Own, match="mine"):
        comm.barrier(False)
    handle.remove()


def test_a_number_that_fits_no_int_is_an_error(comm):
    for number in (1 << 31, 1 << 70, -(1 << 70)):
        with pytest.raises(TypeError, match=rf"'root' must be int of 32 bits, not int {number}"):
            comm.broadcast(torch.zeros(1), number, False)


def test_an_error_shows_no_source_line_of_ours(comm):
    """A wrong call is the caller's: internals would only distract."""
    with pytest.raises(RuntimeError) as caught:
        comm.broadcast(torch.zeros(1), 5, False)
    assert ".cpp" not in str(caught.value)


def test_a_start_up_that_fails_is_a_store_error_of_torchs_too(monkeypatch):
    for name, value in (
        ("TORCHCOMM_RANK", "0"),
        ("TORCHCOMM_SIZE", "2"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", str(free_port())),
    ):
        monkeypatch.setenv(name, value)

    def missing_rank():
        torchcomms.new_comm("gloo", torch.device("cpu"), "alone", timeout=0.2)

    def unreachable_store():
        monkeypatch.setenv("TORCHCOMM_RANK", "1")
        monkeypatch.setenv("MASTER_PORT", str(free_port()))
        torchcomms.new_comm("gloo", torch.device("cpu"), "alone", timeout=0.2)

    for fail in (missing_rank, unreachable_store):
        with pytest.raises(DistStoreError) as caught:
            fail()
        error = caught.value
        assert isinstance(error, torchcomms.CommTimeout)
        assert type(error).__name__ == "CommTimeout"
        assert type(error).__module__ == "torchcomms"
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is torchcomms.CommTimeout
        assert (str(copy), copy.op, copy.culprits) == (str(error), "new_comm", error.culprits)


def test_a_timeout_of_an_operation_is_no_store_error():
    assert not issubclass(torchcomms.CommTimeout, DistStoreError)
    assert not issubclass(torchcomms.PeerFailed, DistNetworkError)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without GPUs")
@pytest.mark.skipif(not torchcomms.is_backend_built("ctran"), reason="needs backend ctran")
def test_a_device_that_is_missing_here_names_what_serves_the_cpu(monkeypatch):
    monkeypatch.setenv("TORCHCOMM_RANK", "0")
    monkeypatch.setenv("TORCHCOMM_SIZE", "1")
    with pytest.raises(torchcomms.BackendUnavailable, match="'ctran' with device cpu"):
        torchcomms.new_comm("ctran", torch.device("cuda"), "no_gpu")
