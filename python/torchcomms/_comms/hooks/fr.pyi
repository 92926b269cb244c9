"""
The flight recorder.
"""

from __future__ import annotations
import torchcomms._comms
import typing

__all__: list[str] = ["FlightRecorderHook"]

class FlightRecorderHook:
    """
    Records the operations of communicators in a ring of bounded size.

    With isolated=True, this object has a ring of its own with `max_entries`, and the next operation id becomes 0.
    Otherwise all objects share one ring of TORCHCOMM_FR_BUFFER_SIZE entries. Never fails an operation.
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
        Writes the ring as a pickle to the file named by TORCHCOMM_FR_DUMP_TEMP_FILE and `rank`. A failure to write is logged.
        """
    def dump_json(self, include_completed: bool = True) -> str:
        """
        The ring as JSON, optionally without retired entries.
        """
    def is_enabled(self) -> bool:
        """
        Whether a communicator was registered.
        """
    def register_with_comm(self, comm: torchcomms._comms.TorchComm) -> None:
        """
        Observes `comm` and its splits from now on, also after this object is deleted.
        """
    def reset(self) -> None:
        """
        Removes all entries.
        """
    def size(self) -> int:
        """
        Entries recorded since the creation or the last reset(), overwritten ones included.
        """
    def unregister(self) -> None:
        """
        Unregisters from all communicators. Idempotent.
        """
