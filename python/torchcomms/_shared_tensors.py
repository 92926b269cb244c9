"""Places CPU tensors in memory that the other ranks of a host map."""

import os
import warnings

from torchcomms._backends import backend_module
from torchcomms._comms import CommError


def share_cpu_tensors(wanted: bool = True) -> None:
    """Places large CPU tensors in memory that ranks on the same host can read directly.

    After the call, every new CPU tensor of 64 KiB or more, made by any code, lies in one file
    without a name. The ranks of backend ``ctran`` on this host map that file. Collectives and
    messages then copy or reduce directly from the peer's tensor. Calls and results do not change;
    only the system counts the memory as shared memory.

    Call it before tensors and communicators are made: existing ones do not change. The environment
    variable TORCHCOMM_SHARE_CPU_TENSORS does the same on import. Each rank may choose for its own
    tensors, independent of the other ranks.

    A forked child, such as a worker of a DataLoader, may read and write the tensors it inherits; no
    other process sees its writes. Pages that the child has not written to are the parent's. The
    child may see later writes of the parent there, also after the parent has freed the tensor. A
    child that must keep inherited data takes a ``clone()`` first. Core dumps do not contain this
    memory.

    Args:
        wanted: False places new tensors in ordinary memory again.
    Raises:
        ResourceExhausted: the system has no such memory, or no address space for all of it.
        BackendUnavailable: backend ctran is not installed.
    """
    if not isinstance(wanted, bool):
        raise TypeError(f"share_cpu_tensors(): wanted is {wanted!r}, expected a bool")
    backend_module("ctran").share_cpu_tensors(wanted)


def share_when_asked() -> None:
    """Calls share_cpu_tensors() if TORCHCOMM_SHARE_CPU_TENSORS asks for it.

    A failure is only a warning, because torch imports the package and the import must succeed.
    """
    if not os.environ.get("TORCHCOMM_SHARE_CPU_TENSORS", "").strip():
        return
    try:
        backend_module("ctran").share_cpu_tensors_where_asked()
    except CommError as error:
        warnings.warn(f"CPU tensors are not shared: {error}", RuntimeWarning, stacklevel=2)
