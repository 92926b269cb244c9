"""
Registers the backend on import.
"""

from __future__ import annotations
import torchcomms._comms

__all__: list[str] = ["TorchCommXCCL"]

class TorchCommXCCL(torchcomms._comms.TorchCommBackend):
    """
    The backend behind a communicator; from TorchComm.get_backend_impl().
    """
