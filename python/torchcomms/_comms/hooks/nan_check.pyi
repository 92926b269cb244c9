"""
The check for NaNs.
"""

from __future__ import annotations
import torchcomms._comms

__all__: list[str] = ["NanCheckHook"]

class NanCheckHook:
    """
    Refuses operations on tensors that hold a NaN.

    Raises InvalidArgument naming operation, communicator and input or output, before anything is sent.
    """
    def __init__(self, check_inputs: bool = True, check_outputs: bool = False) -> None: ...
    def is_enabled(self) -> bool:
        """
        Whether a communicator was registered.
        """
    def register_with_comm(self, comm: torchcomms._comms.TorchComm) -> None:
        """
        Checks the operations of `comm` from now on, also when this object is gone.
        """
    def unregister(self) -> None:
        """
        Ends that for all communicators. Idempotent.
        """
