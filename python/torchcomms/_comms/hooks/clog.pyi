"""
The call log.
"""

from __future__ import annotations
import collections.abc
import torchcomms._comms

__all__: list[str] = ["clog"]

class clog:
    """
    Writes one line of text per call to a file.

    `events`: "LIFECYCLE" or "ALL" add lines of start, end and wait; `verbose`: "buffers" adds addresses.
    Raises CommError if the file cannot be opened.
    """
    def __init__(
        self,
        output: str,
        events: collections.abc.Sequence[str],
        verbose: collections.abc.Sequence[str] = [],
    ) -> None: ...
    def register_with_comm(self, comm: torchcomms._comms.TorchComm) -> None:
        """
        Observes `comm` and its splits from now on, also after this object is deleted.
        """
    def unregister(self) -> None:
        """
        Unregisters from all communicators. Idempotent.
        """
