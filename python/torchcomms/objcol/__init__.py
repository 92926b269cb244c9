"""Collectives of Python objects. Received bytes are data: reading them imports and calls nothing.

Objects are written in a format of this package. The format holds plain values and containers,
tensors, numpy arrays, and dataclasses, namedtuples and enums of modules that the reader has
imported. It also holds files that torch.load(weights_only=True) reads. A pickle can run code. It is
read only by a call with ``weights_only=False``, or if TORCHCOMMS_SERIALIZATION=pickle.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from torchcomms._comms import InvalidArgument, TorchComm, UnsafeObject
from torchcomms.objcol import _allowed, _exchange
from torchcomms.objcol._exchange import Call, Message
from torchcomms.objcol._format import Refused

# The default cap of one object, or of a list of objects for one rank: its memory when it is read.
DEFAULT_MAX_BYTES = 64 << 30

__all__ = [
    "DEFAULT_MAX_BYTES",
    "MissingList",
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "register_type",
    "scatter_object_list",
    "send_object_list",
]

_Timeout = timedelta | float | None


class MissingList(InvalidArgument, AssertionError):
    """The root gave no list. It is also an AssertionError, because the API promises one."""


def register_type(
    cls: type,
    *,
    name: str | None = None,
    to_data: Callable[[Any], Any] | None = None,
    from_data: Callable[[Any], Any] | None = None,
) -> None:
    """Allows instances of `cls` in object collectives. Every rank that sends or reads them calls
    this.

    Args:
        cls: a dataclass, namedtuple or enum; or any class, with both functions.
        name: the name of the class in messages, the same on all ranks; None: module and class name.
        to_data: converts an instance to data that can be sent.
        from_data: converts such data to an instance. A peer may have chosen the data.
    Raises:
        InvalidArgument: only one of the functions, or none for a class that is not plain data.
    """
    if not isinstance(cls, type):
        raise TypeError(f"register_type(): argument 'cls' must be a class, not {cls!r}")
    if (to_data is None) != (from_data is None):
        raise InvalidArgument(
            f"register_type({cls.__qualname__}): pass both to_data and from_data, or neither"
        )
    name = name or _allowed.full_name(cls)
    if to_data is not None and from_data is not None:
        row = _allowed.Conversion(name, to_data, from_data)
    else:
        try:
            row = _allowed.of_data_class(cls, name)
        except Refused as refused:
            raise InvalidArgument(f"register_type: {refused}; pass to_data and from_data") from None
    _allowed.register(cls, row)


def _call(
    comm: TorchComm, op: str, max_bytes: int | None, weights_only: bool, timeout: _Timeout
) -> Call:
    limit = DEFAULT_MAX_BYTES if max_bytes is None else max_bytes
    safe = bool(weights_only) and not _exchange.pickles_everything()
    return Call(comm, op, limit, safe, timeout)


def _check_list(call: Call, name: str, value: object, length: int | None) -> None:
    if not isinstance(value, list):
        raise TypeError(f"{call.op}(): argument '{name}' must be list, not {type(value).__name__}")
    if len(value) != length if length is not None else not value:
        due = "at least one element" if length is None else f"{length} elements"
        raise call.error(InvalidArgument, f"{name} has {len(value)} elements, expected {due}")


def all_gather_object(
    comm: TorchComm,
    object_list: list[Any],
    obj: Any,  # noqa: ANN401
    timeout: _Timeout = None,
    weights_only: bool = True,
    *,
    max_bytes: int | None = None,
) -> None:
    """Puts every rank's `obj` into `object_list` on all ranks, in rank order. Blocks.

    Args:
        comm: the communicator; every rank of it makes this call.
        object_list: list of as many elements as there are ranks; its content is replaced.
        obj: the object of this rank.
        timeout: timedelta or float seconds, of each operation inside; None: the communicator's
            default.
        weights_only: False also sends and reads objects that only pickle supports. Any peer can
            then run code in this process.
        max_bytes: cap of one object; None: DEFAULT_MAX_BYTES. The smallest cap of all ranks
            applies.
    Raises:
        InvalidArgument, TypeError: a wrong argument. The peers raise Mismatch, which names this
            rank.
        UnsafeObject: an object is not data (on all ranks), or its bytes are damaged (on ranks that
            read them). `object_list` is unchanged, and the communicator can be used further.
        TooLarge: an object exceeds the cap, on all ranks.
        CommTimeout, PeerFailed, ...: as the operations of the communicator.
    Cost: three operations; receives every rank's bytes.
    """
    call = _call(comm, "all_gather_object", max_bytes, weights_only, timeout)
    size = comm.get_size()
    with _exchange.checked(call, _exchange.send_to_all):
        call.check()
        _check_list(call, "object_list", object_list, size)
    [mine] = _exchange.agree(call, [_exchange.pack(call, obj)])
    wires, states = [_exchange.to_wire(call, mine.raw)], [mine.state]
    if size > 1:
        heads = _exchange.numbers(call, [0] * 2 * size)
        head = _exchange.numbers(call, [mine.state, len(mine.raw)])
        _exchange.run(call, comm.all_gather_single, heads, head)
        states, sizes = heads.reshape(size, 2).T.tolist()
        own = wires[0]
        wires = [_exchange.receive_buffer(call, s, peer) for peer, s in enumerate(sizes)]
        _exchange.run(call, comm.all_gather_v, wires, own)
    found = [_exchange.unpack(call, w, states[peer], peer) for peer, w in enumerate(wires)]
    object_list[:] = found


def gather_object(  # noqa: PLR0917 (the contract's order)
    comm: TorchComm,
    obj: Any,  # noqa: ANN401
    root: int,
    object_gather_list: list[Any] | None = None,
    timeout: _Timeout = None,
    weights_only: bool = True,
    *,
    max_bytes: int | None = None,
) -> None:
    """Puts every rank's `obj` into root's `object_gather_list`, in rank order. Blocks.

    Args:
        comm, obj, timeout, weights_only, max_bytes: see all_gather_object.
        root: the rank that receives the objects.
        object_gather_list: on root a list of as many elements as there are ranks; ignored, and
            unchanged, on other ranks.
    Raises:
        InvalidArgument: root out of range, wrong list; a missing list is an AssertionError too.
        UnsafeObject, TooLarge, ...: see all_gather_object; damaged bytes only on root.
    Cost: three operations; root receives every rank's bytes.
    """
    call = _call(comm, "gather_object", max_bytes, weights_only, timeout)
    size, rank = comm.get_size(), comm.get_rank()
    with _exchange.checked(call, _exchange.send_to_all):
        call.check(root=root)
        if rank == root:
            if object_gather_list is None:
                raise call.error(MissingList, "object_gather_list must be given on root")
            _check_list(call, "object_gather_list", object_gather_list, size)
    [mine] = _exchange.agree(call, [_exchange.pack(call, obj)])
    head = _exchange.numbers(call, [mine.state, len(mine.raw)])
    heads = [_exchange.numbers(call, [0, 0]) for _ in range(size if rank == root else 0)]
    if size > 1:
        _exchange.run(call, comm.gather, heads, head, root)
    else:
        heads = [head]
    received = [h.tolist() for h in heads]  # state and size
    due = {peer: length for peer, (_, length) in enumerate(received)}
    wire = _exchange.to_wire(call, mine.raw)
    wires = _exchange.exchange(call, wire, {root: wire.numel()}, due)
    if object_gather_list is not None and rank == root:
        object_gather_list[:] = [
            _exchange.unpack(call, wires[peer], state, peer)
            for peer, (state, _) in enumerate(received)
        ]


def send_object_list(
    comm: TorchComm,
    object_list: list[Any],
    dst: int,
    timeout: _Timeout = None,
    *,
    max_bytes: int | None = None,
) -> None:
    """Sends the objects to rank `dst`, which calls recv_object_list. Blocks.

    Objects that are not data are sent as a pickle. This runs no code in the sender; the receiver
    decides whether to read it.

    Args:
        comm, timeout, max_bytes: see all_gather_object; the cap is of the whole list.
        object_list: at least one object.
        dst: the rank that receives them.
    Raises:
        InvalidArgument, TypeError: a wrong argument. The receiver raises Mismatch, unless `dst` is
            the wrong argument.
        TooLarge: the list exceeds `max_bytes`; the receiver raises the same.
    Cost: one message, and one for each 16 MiB.
    """
    call = _call(comm, "send_object_list", max_bytes, False, timeout)
    call.check_ranks(dst=dst)
    with _exchange.checked(call, partial(_exchange.send, count=0, dst=dst)):
        call.check()
        _check_list(call, "object_list", object_list, None)
    _exchange.send(call, _exchange.pack_for_any(call, object_list), len(object_list), dst)


def recv_object_list(
    comm: TorchComm,
    object_list: list[Any],
    src: int,
    timeout: _Timeout = None,
    weights_only: bool = True,
    *,
    max_bytes: int | None = None,
) -> None:
    """Receives the objects of rank `src`, which calls send_object_list. Blocks.

    Args:
        comm, timeout, weights_only, max_bytes: see all_gather_object; the cap is of the whole list.
        object_list: list of as many elements as the sender's; its content is replaced.
        src: the rank that sends them.
    Raises:
        InvalidArgument: src out of range, an empty list.
        Mismatch: the sender's list has another length.
        UnsafeObject, TooLarge: the list was refused. Its bytes are received and dropped, so that
            the next message is received correctly.
    Cost: one message, and one for each 16 MiB.
    """
    call = _call(comm, "recv_object_list", max_bytes, weights_only, timeout)
    call.check(src=src)
    _check_list(call, "object_list", object_list, None)
    found = _exchange.receive(call, len(object_list), src)
    _replace(call, object_list, found, src)


def _replace(call: Call, object_list: list[Any], found: object, peer: int) -> None:
    """Replaces the content of the list.

    The received object must be a list of the announced length.
    """
    if not isinstance(found, list) or len(found) != len(object_list):
        why = f"the message does not contain the announced list of {len(object_list)} objects"
        raise call.error(UnsafeObject, why, peer)
    object_list[:] = found


def broadcast_object_list(
    comm: TorchComm,
    object_list: list[Any],
    root: int,
    timeout: _Timeout = None,
    weights_only: bool = True,
    *,
    max_bytes: int | None = None,
) -> None:
    """Puts root's objects into `object_list` on all ranks. Blocks.

    Args:
        comm, timeout, weights_only, max_bytes: see all_gather_object; the cap is of the whole list.
        object_list: list of the same length on all ranks; root's list is unchanged.
        root: the rank whose objects all ranks receive.
    Raises:
        InvalidArgument: root out of range, an empty list.
        Mismatch: lists of different lengths, on all ranks.
        UnsafeObject, TooLarge, ...: see all_gather_object.
    Cost: three operations; receives root's bytes.
    """
    call = _call(comm, "broadcast_object_list", max_bytes, weights_only, timeout)
    with _exchange.checked(call, _exchange.send_to_all):
        call.check(root=root)
        _check_list(call, "object_list", object_list, None)
    at_root = comm.get_rank() == root
    mine = _exchange.pack(call, object_list) if at_root else Message(_exchange.NOTHING)
    [mine] = _exchange.agree(call, [mine], len(object_list))
    if comm.get_size() == 1:
        return
    head = _exchange.numbers(call, [mine.state, len(mine.raw)])
    _exchange.run(call, comm.broadcast, head, root)
    state, size = head.tolist()
    wire = (
        _exchange.to_wire(call, mine.raw) if at_root else _exchange.receive_buffer(call, size, root)
    )
    _exchange.run(call, comm.broadcast, wire, root)
    if not at_root:
        _replace(call, object_list, _exchange.unpack(call, wire, state, root), root)


def scatter_object_list(  # noqa: PLR0917 (the contract's order)
    comm: TorchComm,
    root: int,
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    timeout: _Timeout = None,
    weights_only: bool = True,
    *,
    max_bytes: int | None = None,
) -> None:
    """Puts element `r` of root's list into the first element of rank `r`'s output list. Blocks.

    Args:
        comm, timeout, weights_only, max_bytes: see all_gather_object.
        root: the rank whose input list is used.
        scatter_object_output_list: list of at least one element.
        scatter_object_input_list: on root a list of as many elements as there are ranks; ignored on
            other ranks.
    Raises:
        InvalidArgument: root out of range, a wrong or missing list.
        UnsafeObject, TooLarge, ...: see all_gather_object; damaged bytes only on ranks that read
            them.
    Cost: three operations; each rank receives the bytes of its own object.
    """
    call = _call(comm, "scatter_object_list", max_bytes, weights_only, timeout)
    size, rank = comm.get_size(), comm.get_rank()
    output, values = scatter_object_output_list, scatter_object_input_list
    with _exchange.checked(call, _exchange.send_to_all):
        call.check(root=root)
        if not isinstance(output, list) or not output:
            raise call.error(InvalidArgument, "scatter_object_output_list must be a non-empty list")
        if rank != root:
            values = []
        elif values is None:
            raise call.error(InvalidArgument, "scatter_object_input_list must be given on root")
        else:
            _check_list(call, "scatter_object_input_list", values, size)
    messages = _exchange.agree(call, [_exchange.pack(call, value) for value in values or ()])
    head = _exchange.numbers(call, [0, 0])
    heads = [_exchange.numbers(call, [m.state, len(m.raw)]) for m in messages]
    if size > 1:
        _exchange.run(call, comm.scatter, head, heads, root)
    else:
        [head] = heads
    state, length = head.tolist()
    wire = _exchange.to_wire(call, *(m.raw for m in messages))
    sent = {peer: len(m.raw) for peer, m in enumerate(messages)}
    wires = _exchange.exchange(call, wire, sent, {root: length})
    output[0] = _exchange.unpack(call, wires[root], state, root)
