"""The flight recorder: records the calls of communicators for PyTorch's tools and ours."""

from torchcomms import _comms

FlightRecorderHook = _comms.hooks.fr.FlightRecorderHook

__all__ = ["FlightRecorderHook"]
