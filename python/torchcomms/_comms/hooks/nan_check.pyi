"""
The check for NaNs.
"""

from __future__ import annotations
import torchcomms._comms

__all__: list[str] = ["NanCheckHook"]

class NanCheckHook:
    """
    Rejects operations on tensors that contain a NaN.

    Raises InvalidArgument naming operation, communicator and input or output, before anything is sent.
    """
    def __init__(self, check_inputs: bool = True, check_outputs: bool = False) -> None: ...
    def is_enabled(self) -> bool:
        """
        Whether a communicator was registered.
        """
    def register_with_comm(self, comm: torchcomms._comms.TorchComm) -> None:
        """
        Checks the operations of `comm` from now on, also after this object is deleted.
        """
    def unregister(self) -> None:
        """
        Unregisters from all communicators. Idempotent.
        """
