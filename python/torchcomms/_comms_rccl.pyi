"""
Registers the backend on import.
"""

from __future__ import annotations
import torchcomms._comms

__all__: list[str] = ["TorchCommRCCL"]

class TorchCommRCCL(torchcomms._comms.TorchCommBackend):
    """
    The backend behind a communicator; from TorchComm.get_backend_impl().
    """
