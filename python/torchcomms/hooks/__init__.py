"""Observers of communicators: flight recorder, call log, check for NaNs.

Each is made, then registered with communicators: ``hook.register_with_comm(comm)``. It goes on
until the communicator ends, also when the object is gone.
"""

from torchcomms.hooks.clog import clog
from torchcomms.hooks.fr import FlightRecorderHook
from torchcomms.hooks.nan_check import NanCheckHook

__all__ = ["clog", "FlightRecorderHook", "NanCheckHook"]  # noqa: RUF022 (the contract's order)
