"""The check for NaNs before anything is sent."""

from torchcomms import _comms

NanCheckHook = _comms.hooks.nan_check.NanCheckHook

__all__ = ["NanCheckHook"]
