"""The flight recorder: what communicators were asked to do, for PyTorch's tools and ours."""

from torchcomms import _comms

FlightRecorderHook = _comms.hooks.fr.FlightRecorderHook

__all__ = ["FlightRecorderHook"]
