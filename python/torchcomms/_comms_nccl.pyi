"""
Registers the backend on import.
"""

from __future__ import annotations
import torchcomms._comms

__all__: list[str] = ["TorchCommNCCL"]

class TorchCommNCCL(torchcomms._comms.TorchCommBackend):
    """
    The backend behind a communicator; from TorchComm.get_backend_impl().
    """
    def get_nccl_comm_ptr(self) -> int:
        """
        The library's communicator, as a number.
        """
