"""Stacks on demand: what `torchcomms trace --stacks` asks a living process for.

From its first new_comm() on, a process writes the Python stacks of all of its threads at a
real-time signal, into memory that the asker reads. No thread waits for that, and none has to be
free: the handler is faulthandler's, which needs no lock. A signal that the program uses itself is
left alone.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from dataclasses import dataclass

from torchcomms import _comms

NAME = "torchcomms_stacks"
_OFFSET = 9  # from the first real-time signal; C libraries keep the first two for themselves


@dataclass
class _Offer:
    pid: int = 0  # a forked child makes its own
    descriptor: int = -1


_offer = _Offer()


def offer() -> None:
    """Called before every communicator. Does nothing where the ring of this process has no file."""
    if _offer.pid == os.getpid() or not _comms._record_process():
        return
    number = signal.SIGRTMIN + _OFFSET
    if _offer.pid == 0 and signal.getsignal(number) is not signal.SIG_DFL:
        return
    _offer.pid = os.getpid()
    try:
        _offer.descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC)
    except OSError:  # no descriptor is left: the program needs them more
        return
    faulthandler.register(number, file=_offer.descriptor, all_threads=True, chain=False)
    _comms._offer_stacks(number, _offer.descriptor)
