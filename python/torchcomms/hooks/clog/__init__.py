"""The call log: one line of text per call."""

from torchcomms import _comms

clog = _comms.hooks.clog.clog

__all__ = ["clog"]
