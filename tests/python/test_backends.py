"""How a backend's name becomes a backend: entry points, registrations, and what wins."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest
import torch
import torchcomms
from torchcomms import _comms

from tests.harness.programs import forked

_MINE = """
        import torch, torchcomms
        from torchcomms import _comms

        class Mine(torchcomms.TorchCommBackend):
            def __init__(self): super().__init__()
            def init(self, device, name, options): pass
            def finalize(self): pass
            def get_rank(self): return 0
            def get_size(self): return 1
            def get_backend_name(self): return "mine"
            def get_comm_name(self): return "mine"
"""

needs_gloo = pytest.mark.skipif(
    not torchcomms.is_backend_built("gloo"), reason="backend gloo is not part of this build"
)


def test_built_backends_are_the_entry_points():
    group = sorted({e.name for e in entry_points(group="torchcomms.backends")})
    assert sorted(torchcomms.built_backends()) == group
    assert "fake" in group
    assert all(isinstance(name, str) for name in torchcomms.built_backends())


def test_each_entry_point_names_its_module():
    for entry in entry_points(group="torchcomms.backends"):
        want = (
            "torchcomms._comms"
            if entry.name == "fake"
            else f"torchcomms._comms_{entry.name.removesuffix('-lazy')}"
        )
        assert entry.value == want


def test_is_backend_built_tells_the_same():
    for name in torchcomms.built_backends():
        assert torchcomms.is_backend_built(name) is True
    for name in ("no_such_backend", "", "FAKE", "fake "):
        assert torchcomms.is_backend_built(name) is False


def test_loading_registers():
    for name in torchcomms.built_backends():
        assert torchcomms._load_backend(name) is None
        assert _comms._is_backend_registered(name) is True
        torchcomms._load_backend(name)  # again is harmless


@pytest.mark.parametrize("name", ["no_such_backend", ""])
def test_loading_an_unknown_backend_is_a_module_not_found_error(name):
    with pytest.raises(ModuleNotFoundError, match="failed to find backend"):
        torchcomms._load_backend(name)
    assert _comms._is_backend_registered(name) is False


@pytest.mark.parametrize(
    ("typed", "meant"), [("glo", "gloo"), ("GLOO", "gloo"), ("ctarn", "ctran")]
)
def test_a_name_that_is_nearly_one_is_told_which(typed, meant):
    with pytest.raises(torchcomms.BackendUnavailable, match=f"'{typed}'.*is '{meant}' meant"):
        torchcomms.new_comm(typed, torch.device("cpu"), "x")


def test_a_backend_is_not_loaded_before_it_is_needed():
    forked("""
        import torch, torchcomms
        from torchcomms import _comms
        assert _comms._is_backend_registered("fake")
        assert not _comms._is_backend_registered("gloo")
        torchcomms.new_comm("fake", torch.device("cpu"), "a")
        assert not _comms._is_backend_registered("gloo")
    """).expect_success()


@needs_gloo
def test_importing_a_backend_module_registers_it():
    forked("""
        import torchcomms
        from torchcomms import _comms
        import torchcomms._comms_gloo as module
        assert _comms._is_backend_registered("gloo")
        assert issubclass(module.TorchCommGloo, torchcomms.TorchCommBackend)
    """).expect_success()


def test_the_first_registration_of_a_name_wins_over_the_native_module():
    forked(f"""{_MINE}
        torchcomms.register_backend("gloo", Mine)
        comm = torchcomms.new_comm("gloo", torch.device("cpu"), "shadowed")
        assert type(comm.get_backend_impl()) is Mine, comm.get_backend_impl()
    """).expect_success()


def test_a_registered_name_needs_no_entry_point():
    forked(f"""{_MINE}
        assert not torchcomms.is_backend_built("mine")
        torchcomms.register_backend("mine", Mine)
        assert torchcomms._comms._is_backend_registered("mine")
        assert torchcomms.new_comm("mine", torch.device("cpu"), "n").get_backend() == "mine"
    """).expect_success()


def test_a_registered_name_serves_where_the_installed_module_does_not_load():
    forked(f"""{_MINE}
        import sys
        sys.modules["torchcomms._comms_gloo"] = None  # its import fails
        torchcomms.register_backend("gloo", Mine)
        comm = torchcomms.new_comm("gloo", torch.device("cpu"), "instead")
        assert type(comm.get_backend_impl()) is Mine, comm.get_backend_impl()
    """).expect_success()


@needs_gloo
def test_an_error_that_names_all_backends_leaves_their_names_free():
    """It loads them to ask what they can do."""
    finished = forked(f"""{_MINE}
        fake = torchcomms.new_comm("fake", torch.device("cpu"), "fake")
        try:
            fake.get_init_handle()
        except torchcomms.Unsupported as error:
            assert "gloo" in str(error), error
        assert _comms._is_backend_registered("gloo")
        torchcomms.register_backend("gloo", Mine)
        torchcomms.register_backend("gloo", type("Later", (Mine,), {{}}))
        comm = torchcomms.new_comm("gloo", torch.device("cpu"), "shadowed")
        assert type(comm.get_backend_impl()) is Mine, comm.get_backend_impl()
    """).expect_success()
    assert finished.err.count("backend 'gloo' is registered already") == 1


@needs_gloo
def test_a_backend_that_such_an_error_loaded_keeps_its_name_once_it_was_used():
    finished = forked(
        f"""{_MINE}
        fake = torchcomms.new_comm("fake", torch.device("cpu"), "fake")
        try:
            fake.get_init_handle()
        except torchcomms.Unsupported:
            pass
        store = torch.distributed.HashStore()
        first = torchcomms.new_comm("gloo", torch.device("cpu"), "first", store=store)
        torchcomms.register_backend("gloo", Mine)
        comm = torchcomms.new_comm("gloo", torch.device("cpu"), "second", store=store)
        assert type(comm.get_backend_impl()) is type(first.get_backend_impl())
    """,
        TORCHCOMM_RANK="0",
        TORCHCOMM_SIZE="1",
    ).expect_success()
    assert finished.err.count("backend 'gloo' is registered already") == 1
