"""Stacks on demand, which `torchcomms trace --stacks` reads from a living process.

After its first new_comm(), a process writes the Python stacks of all its threads when it receives a
real-time signal. The stacks go to memory that the reading process can map. No thread waits for the
signal and none has to be free: faulthandler's signal handler needs no lock. If the program has a
handler for the signal, the handler stays.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from dataclasses import dataclass

from torchcomms import _comms

NAME = "torchcomms_stacks"
_OFFSET = 9  # from SIGRTMIN; the first signals are left to C libraries


@dataclass
class _Offer:
    pid: int = 0  # a forked child registers again
    descriptor: int = -1


_offer = _Offer()


def offer() -> None:
    """Registers the signal handler and notes it in the event ring. Called before each communicator.

    Does nothing if the event ring of this process has no file.
    """
    if _offer.pid == os.getpid() or not _comms._record_process():
        return
    number = signal.SIGRTMIN + _OFFSET
    if _offer.pid == 0 and signal.getsignal(number) is not signal.SIG_DFL:
        return
    _offer.pid = os.getpid()
    try:
        _offer.descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC)
    except OSError:  # no file descriptor is left; the program needs them more
        return
    faulthandler.register(number, file=_offer.descriptor, all_threads=True, chain=False)
    _comms._offer_stacks(number, _offer.descriptor)
