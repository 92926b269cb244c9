"""The check for NaNs in tensors before they are sent."""

from torchcomms import _comms

NanCheckHook = _comms.hooks.nan_check.NanCheckHook

__all__ = ["NanCheckHook"]
