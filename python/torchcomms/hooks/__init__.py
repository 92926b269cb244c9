"""Observers of communicators: flight recorder, call log, and check for NaNs.

The program makes a hook and registers it with communicators: ``hook.register_with_comm(comm)``. The
hook observes until the communicator ends, even if the Python object is deleted.
"""

from torchcomms.hooks.clog import clog
from torchcomms.hooks.fr import FlightRecorderHook
from torchcomms.hooks.nan_check import NanCheckHook

__all__ = ["clog", "FlightRecorderHook", "NanCheckHook"]  # noqa: RUF022 (the contract's order)
