"""Registers our classes with torch.compile: as inputs of graphs, or as constants.

Communicators, windows and batches are inputs of a graph. Their properties, such as the rank, are
constants with a guard. Reduce operations and timeouts are constants. A call of another method of
these classes breaks the graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torchcomms
from torchcomms._graph_metaclass import is_placed

# The methods and properties whose values become constants when a function is traced.
_ANSWERS: dict[type, tuple[str, ...]] = {
    torchcomms.TorchComm: ("get_rank", "get_size", "get_name", "get_device", "get_backend"),
    torchcomms.TorchCommWindow: ("get_size", "get_device", "dtype", "shape", "device"),
    torchcomms.BatchSendRecv: (),
}


def _answers(obj: Any, names: tuple[str, ...]) -> list[Any]:  # noqa: ANN401
    """The values that a graph was made for; None for each value of a finalized communicator."""
    found: list[Any] = []
    for name in names:
        try:
            answer = getattr(obj, name)
            found.append(answer() if callable(answer) else answer)
        except RuntimeError:
            found.append(None)
    return found


def _reduce_op_text(op: torchcomms.ReduceOp) -> tuple[str, dict[str, type]]:
    """The op as an expression. Raises Unsupported if its factor is a tensor."""
    factor = op._factor
    if factor is None:
        return repr(op), {"ReduceOp": torchcomms.ReduceOp}
    if not isinstance(factor, float):
        raise torchcomms.Unsupported(
            "ReduceOp.PREMUL_SUM(tensor) cannot be traced: pass the factor as a number"
        )
    return f"ReduceOp.PREMUL_SUM({factor!r})", {"ReduceOp": torchcomms.ReduceOp}


def _timeout_text(limit: torchcomms.Timeout) -> tuple[str, dict[str, type]]:
    text = f"Timeout({limit.days}, {limit.seconds}, {limit.microseconds})"
    return text, {"Timeout": torchcomms.Timeout}


def _premul_sum(native: Callable[[Any], torchcomms.ReduceOp]) -> Callable[[Any], Any]:
    def PREMUL_SUM(factor: Any) -> Any:  # noqa: ANN401
        return native(factor)

    PREMUL_SUM.__doc__ = native.__doc__
    # Dynamo calls a marked function while it traces, and takes its result as a constant.
    PREMUL_SUM._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return PREMUL_SUM


def other_members(cls: type, traced: tuple[str, ...]) -> list[str]:
    """The public methods of a class that are neither traced operations nor constants."""
    known = {*_ANSWERS[cls], *traced}
    public = (name for name in dir(cls) if not name.startswith("_") and name not in known)
    return [name for name in public if inspect.isroutine(inspect.getattr_static(cls, name))]


def register(traced: dict[type, tuple[str, ...]]) -> bool:
    """Registers the classes with torch; `traced` are the methods that torch traces into.

    Returns: False if the classes lack the metaclass; torch.compile cannot use them then.
    """
    if not is_placed():
        return False
    from torch._library import opaque_object

    known: Any = opaque_object
    member_type = known.MemberType
    # Older torch versions have other names for the same functions.
    newer = hasattr(known, "register_custom_class")
    register_class = known.register_custom_class if newer else known.register_opaque_type
    is_registered = known.is_custom_class if newer else known.is_opaque_type
    input_type, constant_type = ("symbolic", "constant") if newer else ("reference", "value")
    if is_registered(torchcomms.TorchComm):
        return True
    for cls, names in _ANSWERS.items():
        members = dict.fromkeys(other_members(cls, traced.get(cls, ())), member_type.INLINED)
        members |= dict.fromkeys(names, member_type.USE_REAL)
        members |= dict.fromkeys(traced.get(cls, ()), member_type.INLINED)
        members |= dict.fromkeys(("__eq__", "__ne__"), member_type.USE_REAL)

        def guarded(obj: Any, names: tuple[str, ...] = names) -> list[Any]:  # noqa: ANN401
            return _answers(obj, names)

        register_class(cls, typ=input_type, guard_fn=guarded, members=members)
    reduce_op: Any = torchcomms.ReduceOp
    reduce_op.__fx_repr__ = _reduce_op_text
    reduce_op.PREMUL_SUM = staticmethod(_premul_sum(reduce_op.PREMUL_SUM))
    timeout: Any = torchcomms.Timeout
    timeout.__fx_repr__ = _timeout_text
    register_class(
        reduce_op,
        typ=constant_type,
        members={"type": member_type.USE_REAL, "_factor": member_type.USE_REAL},
    )
    register_class(timeout, typ=constant_type)
    return True
