"""What a communicator says about itself."""

from __future__ import annotations

import warnings
from datetime import timedelta

import pytest
import torch
from torchcomms import CommOptions, TorchComm, TorchCommBackend

from tests.harness.cases import Failures, check_context, refused

pytestmark = pytest.mark.worlds(data=False)


def basic(context):
    comm, failures = context.new_comm("introduced"), Failures()
    with failures.case("class"):
        assert type(comm) is TorchComm
    with failures.case("rank and size"):
        assert (comm.get_rank(), comm.get_size()) == (context.rank, context.size)
    with failures.case("name"):
        assert comm.get_name() == "introduced"
    with failures.case("device"):
        assert comm.get_device() == context.device
        assert isinstance(comm.get_device(), torch.device)
    with failures.case("backend"):
        assert comm.get_backend() == context.backend
    with failures.case("flags"):
        assert comm.is_aborted() is False
        assert comm.is_abort_supported() is context.row.aborts
    with failures.case("constructor"), refused(TypeError):
        TorchComm()
    comm.finalize()
    return failures.texts


def test_rank_size_name_device_and_backend(world):
    check_context(world, basic)


def version(context):
    if "get_backend_version" in context.row.optional:
        assert context.comm.get_backend_version() == context.row.version()
        return []
    with refused(RuntimeError, context.backend):
        context.comm.get_backend_version()
    return []


def test_a_backend_names_its_version_or_says_that_it_has_none(world):
    check_context(world, version)


def options(context):
    failures = Failures()
    comm = context.new_comm(
        abort_process_on_timeout_or_error=False, timeout=timedelta(seconds=77), hints={"k": "v"}
    )
    shown = comm.get_options()
    with failures.case("values"):
        assert isinstance(shown, CommOptions)
        assert shown.timeout == timedelta(seconds=77)
        assert shown.abort_process_on_timeout_or_error is False
        assert shown.enable_reconfigure is False
        assert shown.hints["k"] == "v"
        assert shown.store is None, "the bootstrap is over"
    with failures.case("fresh copy"):
        shown.timeout = timedelta(seconds=1)
        assert comm.get_options().timeout == timedelta(seconds=77)
        assert comm.get_options() is not shown
    comm.finalize()
    persistent = context.new_comm(hints={"persistent_store": "true"})
    with failures.case("persistent store"):
        assert persistent.get_options().store is None
    persistent.finalize()
    return failures.texts


def test_get_options_gives_a_fresh_copy_of_the_effective_options(world):
    check_context(world, options)


def implementation(context):
    comm, failures = context.new_comm(), Failures()
    impl = comm.get_backend_impl()
    with failures.case("concrete class"):
        assert isinstance(impl, TorchCommBackend)
        if context.backend == "gloo":
            from torchcomms._comms_gloo import TorchCommGloo

            assert type(impl) is TorchCommGloo
        if context.backend == "fake":
            assert type(impl) is TorchCommBackend
    with failures.case("same object"):
        assert comm.get_backend_impl() is impl
    with failures.case("deprecated alias"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert comm.unsafe_get_backend() is impl
        assert [w.category for w in caught] == [DeprecationWarning]
    comm.finalize()
    return failures.texts


def test_the_backend_object_has_its_class_and_stays_the_same(world):
    check_context(world, implementation)


def described(context):
    comm, failures = context.new_comm("described", timeout=timedelta(seconds=50)), Failures()
    about = comm.describe()
    with failures.case("identity"):
        assert about["backend"] == context.backend
        assert about["name"] == "described"
        assert (about["rank"], about["size"]) == (context.rank, context.size)
        assert str(about["device"]) == str(context.device)
    with failures.case("options and capabilities"):
        assert isinstance(about["options"], dict)
        assert isinstance(about["capabilities"], dict)
    with failures.case("phases"):
        phases = about["init"]["phases"]
        total = about["init"]["total_ms"]
        assert all(isinstance(p["name"], str) and p["ms"] >= 0 for p in phases)
        assert sum(p["ms"] for p in phases) <= total * 1.01 + 0.1
        if context.row.moves_data:
            assert len(phases) >= 2
            assert 0 < total < 60_000
    with failures.case("plain data"):
        import json

        json.dumps(about)
    comm.finalize()
    return failures.texts


def test_describe_tells_what_is_used_and_how_long_each_phase_took(world):
    check_context(world, described)


def text(context):
    shown = repr(context.comm)
    assert context.backend in shown, shown
    assert context.comm.get_name() in shown, shown
    return []


def test_repr_names_backend_and_communicator(world):
    check_context(world, text)
