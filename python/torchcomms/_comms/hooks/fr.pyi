"""
The flight recorder.
"""

from __future__ import annotations
import torchcomms._comms
import typing

__all__: list[str] = ["FlightRecorderHook"]

class FlightRecorderHook:
    """
    Keeps what communicators were asked to do, in a bounded ring.

    With isolated=True the ring is the object's own, of `max_entries`, and the next operation id becomes 0.
    Otherwise all objects share one of TORCHCOMM_FR_BUFFER_SIZE entries. Never fails an operation.
    """
    def __init__(
        self, max_entries: typing.SupportsInt | typing.SupportsIndex = 2048, isolated: bool = False
    ) -> None: ...
    def __len__(self) -> int: ...
    def __repr__(self) -> str: ...
    def dump_file(
        self, rank: typing.SupportsInt | typing.SupportsIndex, include_completed: bool = True
    ) -> None:
        """
        The same as a pickle, in the file of TORCHCOMM_FR_DUMP_TEMP_FILE and `rank`. A file that cannot be written is logged.
        """
    def dump_json(self, include_completed: bool = True) -> str:
        """
        The ring as JSON; without retired entries on demand.
        """
    def is_enabled(self) -> bool:
        """
        Whether a communicator was registered.
        """
    def register_with_comm(self, comm: torchcomms._comms.TorchComm) -> None:
        """
        Observes `comm` from now on, and its splits, also when this object is gone.
        """
    def reset(self) -> None:
        """
        Forgets all entries.
        """
    def size(self) -> int:
        """
        Entries recorded since the creation or the last reset(), overwritten ones included.
        """
    def unregister(self) -> None:
        """
        Ends that for all communicators. Idempotent.
        """
