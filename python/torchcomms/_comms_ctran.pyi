"""
Registers the backend on import.
"""

from __future__ import annotations
import torchcomms._comms

__all__: list[str] = ["TorchCommCtran", "share_cpu_tensors", "share_cpu_tensors_where_asked"]

class TorchCommCtran(torchcomms._comms.TorchCommBackend):
    """
    The backend behind a communicator; from TorchComm.get_backend_impl().
    """

def share_cpu_tensors(wanted: bool) -> None:
    """
    See torchcomms.share_cpu_tensors.
    """

def share_cpu_tensors_where_asked() -> None:
    """
    Calls share_cpu_tensors() if TORCHCOMM_SHARE_CPU_TENSORS is true.
    """
