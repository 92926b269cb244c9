"""Where the hook classes are found."""

from __future__ import annotations

import importlib

from tests.harness.programs import python


def test_both_forms_of_import_work():
    from torchcomms import hooks
    from torchcomms.hooks import clog, fr
    from torchcomms.hooks.clog import clog as same_clog
    from torchcomms.hooks.fr import FlightRecorderHook
    from torchcomms.hooks.nan_check import NanCheckHook

    assert hooks.__all__ == ["clog", "FlightRecorderHook", "NanCheckHook"]
    assert isinstance(clog, type)
    assert clog is same_clog is hooks.clog
    assert fr is importlib.import_module("torchcomms.hooks.fr")
    assert fr.FlightRecorderHook is FlightRecorderHook is hooks.FlightRecorderHook
    assert hooks.NanCheckHook is NanCheckHook


def test_hooks_come_with_the_top_level():
    python("""
        import torchcomms
        from torchcomms import _comms
        hooks = torchcomms.hooks
        assert hooks.__file__.endswith("hooks/__init__.py"), hooks
        assert hooks.FlightRecorderHook is _comms.hooks.fr.FlightRecorderHook
        assert hooks.clog is _comms.hooks.clog.clog
        from torchcomms._comms.hooks.fr import FlightRecorderHook
    """).expect_success()
