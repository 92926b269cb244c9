"""
The call log.
"""

from __future__ import annotations
import collections.abc
import torchcomms._comms

__all__: list[str] = ["clog"]

class clog:
    """
    A call log: one line of text a call, in a file.

    `events`: "LIFECYCLE" or "ALL" add lines of start, end and wait; `verbose`: "buffers" adds addresses.
    Raises CommError where the file cannot be opened.
    """
    def __init__(
        self,
        output: str,
        events: collections.abc.Sequence[str],
        verbose: collections.abc.Sequence[str] = [],
    ) -> None: ...
    def register_with_comm(self, comm: torchcomms._comms.TorchComm) -> None:
        """
        Observes `comm` from now on, and its splits, also when this object is gone.
        """
    def unregister(self) -> None:
        """
        Ends that for all communicators. Idempotent.
        """
