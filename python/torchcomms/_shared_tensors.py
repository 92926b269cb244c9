"""CPU tensors in memory that the other ranks of a host map."""

import os
import warnings

from torchcomms._backends import backend_module
from torchcomms._comms import CommError


def share_cpu_tensors(wanted: bool = True) -> None:
    """Has large CPU tensors lie in memory that ranks on the same host read where they are.

    From here on every CPU tensor of 64 KiB and more that torch makes, by whatever code, lies in one
    file without a name, which the ranks of backend ``ctran`` on this host map. Collectives and
    messages then copy or reduce out of the peer's tensor itself. Nothing else changes: no call, no
    result, no place where memory is counted but that it is shared memory for the system.

    Call it before tensors and communicators are made: those that are there stay as they are. The
    environment variable TORCHCOMM_SHARE_CPU_TENSORS does it on import. Of a job, ranks may do it or
    not, each for its own tensors.

    A forked child, such as a worker of a DataLoader, may read and write the tensors it inherits; no
    other process sees what it writes. Pages that the child has not written to are the parent's: it
    may see what the parent writes there later, also after the parent has freed the tensor. A child
    that is to keep what it inherits takes a ``clone()`` first. Core dumps have none of this memory.

    Args:
        wanted: False has new tensors lie in memory of the process again.
    Raises:
        ResourceExhausted: the system has no such memory, or no address space for all of it.
        BackendUnavailable: backend ctran is not installed.
    """
    if not isinstance(wanted, bool):
        raise TypeError(f"share_cpu_tensors(): wanted is {wanted!r}, expected a bool")
    backend_module("ctran").share_cpu_tensors(wanted)


def share_when_asked() -> None:
    """The same where the environment says so.

    What stands in the way is a warning: torch imports the package by itself, and is to load.
    """
    if not os.environ.get("TORCHCOMM_SHARE_CPU_TENSORS", "").strip():
        return
    try:
        backend_module("ctran").share_cpu_tensors_where_asked()
    except CommError as error:
        warnings.warn(f"CPU tensors are not shared: {error}", RuntimeWarning, stacklevel=2)
