"""Names of communicators and reduce operations, because operators of graphs take only text.

The name of a communicator contains its number of ranks, so that a graph made for another number
does not fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import torchcomms
from torchcomms._reconfigure import after_change

_Function = TypeVar("_Function", bound=Callable[..., Any])

_names: WeakKeyDictionary[torchcomms.TorchComm, str] = WeakKeyDictionary()
_comms: WeakValueDictionary[str, torchcomms.TorchComm] = WeakValueDictionary()
_numbers = itertools.count()

# Changes with each reconfigure(). Traced functions read it, so that their graphs are guarded by it.
memberships = "0"

_PREMUL = "premul_sum:"
_OPS = {
    name.lower(): getattr(torchcomms.ReduceOp, name)
    for name in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG")
}


def constant(function: _Function) -> _Function:
    """Marks a function as torch.compiler.assume_constant_result does.

    That function would import the compiler.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def name_of(comm: torchcomms.TorchComm) -> str:
    """The communicator's name in graphs. It changes when the number of ranks changes.

    Graphs are guarded by the communicator object itself.
    """
    if not isinstance(comm, torchcomms.TorchComm):
        raise TypeError(f"argument 'comm' must be TorchComm, not {type(comm).__name__}")
    name = _names.get(comm)
    if name is None or _size_in(name) != comm.get_size():
        name = f"{comm.get_name()}/{comm.get_size()}/{next(_numbers)}"
        _names[comm] = name
        _comms[name] = comm
    return name


def comm_of(name: str) -> torchcomms.TorchComm:
    """The communicator of a name.

    Raises: CommFinalized if it was deleted, InvalidArgument if its number of ranks has changed.
    """
    comm = _comms.get(name)
    if comm is None:
        raise torchcomms.CommFinalized(f"the communicator {name!r} of this graph was deleted")
    traced_size, size = _size_in(name), comm.get_size()
    if size not in {traced_size, -1}:  # -1: not connected; the operation raises that error
        raise torchcomms.InvalidArgument(
            f"communicator '{comm.get_name()}' had {traced_size} ranks when the function was traced"
            f" or run forward, and has {size} since a reconfigure(): trace or run the function"
            " again"
        )
    return comm


def _size_in(name: str) -> int:
    return int(name.rsplit("/", 2)[1])


def _change(comm: torchcomms.TorchComm) -> None:
    global memberships  # noqa: PLW0603
    memberships = str(int(memberships) + 1)


after_change.append(_change)


@constant
def op_name(op: torchcomms.ReduceOp | str) -> str:
    """Converts ReduceOp.SUM to "sum" and PREMUL_SUM(0.5) to "premul_sum:0.5"; accepts such names.

    Raises: InvalidArgument for another op.
    """
    if isinstance(op, str):
        reduce_op(op)
        return op
    for name, known in _OPS.items():
        if op == known:
            return name
    if isinstance(op._factor, float):
        return f"{_PREMUL}{op._factor!r}"
    raise torchcomms.InvalidArgument(
        f"reduce op {op!r}: allowed are {', '.join(_OPS)}, and PREMUL_SUM of a number"
    )


def premul_factor(op: str) -> float | None:
    """Returns 0.5 for "premul_sum:0.5", and None for another op."""
    return float(op.removeprefix(_PREMUL)) if op.startswith(_PREMUL) else None


def reduce_op(op: str) -> torchcomms.ReduceOp:
    """Converts a name to the reduce op. Raises InvalidArgument for an unknown name."""
    try:
        factor = premul_factor(op)
    except ValueError:
        factor = None
    if factor is not None:
        return torchcomms.ReduceOp.PREMUL_SUM(factor)
    if op not in _OPS:
        allowed = f"{', '.join(_OPS)}, {_PREMUL}<factor>"
        raise torchcomms.InvalidArgument(f"reduce op {op!r}: allowed are {allowed}")
    known: torchcomms.ReduceOp = _OPS[op]
    return known
