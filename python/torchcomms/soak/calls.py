"""The table of operations: their arguments on each rank, their results, and how they are called.

`arguments` is pure: it names contents and makes no tensors. Only `call` calls the library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchcomms.soak.plan import Message, Operation

if TYPE_CHECKING:
    import torch

    import torchcomms


@dataclass(frozen=True)
class Segment:
    """Consecutive elements with one origin."""

    kind: str  # "given": by `rank`; "reduced": over all ranks; "poison": not written
    numel: int
    part: int = 0  # the number of the part that a rank gives, or of the reduced part
    rank: int = 0


@dataclass(frozen=True)
class Piece:
    """One tensor of a call."""

    before: tuple[Segment, ...]
    after: tuple[Segment, ...] | None  # None: the content is undefined
    shape: tuple[int, ...] | None = None
    # The tensor lies in the only tensor of this argument, from this element on.
    inside: tuple[str, int] | None = None

    @property
    def numel(self) -> int:
        return sum(segment.numel for segment in self.before)


Arguments = dict[str, list[Piece]]


def given(numel: int, part: int, rank: int) -> Segment:
    return Segment("given", numel, part, rank)


def _fixed(*segments: Segment) -> Piece:
    return Piece(segments, segments)


def _filled(*segments: Segment) -> Piece:
    return Piece(tuple(Segment("poison", s.numel) for s in segments), segments)


def arguments(op: Operation, rank: int, size: int) -> Arguments:
    """The arguments that rank `rank` of `size` passes, by name."""
    return _ARGUMENTS[op.name](op, rank, size)


def _barrier(op: Operation, rank: int, size: int) -> Arguments:
    return {}


def _all_reduce(op: Operation, rank: int, size: int) -> Arguments:
    return {"tensor": [Piece((given(op.numel, 0, rank),), (Segment("reduced", op.numel),))]}


def _reduce(op: Operation, rank: int, size: int) -> Arguments:
    after = (Segment("reduced", op.numel),) if rank == op.root_of(size) else None
    return {"tensor": [Piece((given(op.numel, 0, rank),), after)]}


def _reduce_scatter(op: Operation, rank: int, size: int) -> Arguments:
    counts = op.counts[0][:size] if op.counts else (op.numel,) * size
    return {
        "output": [_filled(Segment("reduced", counts[rank], rank))],
        "input_list": [_fixed(given(n, part, rank)) for part, n in enumerate(counts)],
    }


def _reduce_scatter_single(op: Operation, rank: int, size: int) -> Arguments:
    return {
        "output": [_filled(Segment("reduced", op.numel, rank))],
        "input": [_fixed(*(given(op.numel, part, rank) for part in range(size)))],
    }


def _broadcast(op: Operation, rank: int, size: int) -> Arguments:
    segment = given(op.numel, 0, op.root_of(size))
    return {"tensor": [_fixed(segment) if rank == op.root_of(size) else _filled(segment)]}


def _all_gather(op: Operation, rank: int, size: int) -> Arguments:
    counts = op.counts[0][:size] if op.counts else (op.numel,) * size
    return {
        "tensor_list": [_filled(given(n, 0, r)) for r, n in enumerate(counts)],
        "tensor": [_fixed(given(counts[rank], 0, rank))],
    }


def _all_gather_single(op: Operation, rank: int, size: int) -> Arguments:
    own, whole = _fixed(given(op.numel, 0, rank)), [given(op.numel, 0, r) for r in range(size)]
    if not op.in_place:
        return {"output": [_filled(*whole)], "input": [own]}
    before = tuple(s if s.rank == rank else Segment("poison", s.numel) for s in whole)
    inside = Piece(own.before, own.after, inside=("output", rank * op.numel))
    return {"output": [Piece(before, tuple(whole))], "input": [inside]}


def _all_to_all(op: Operation, rank: int, size: int) -> Arguments:
    return {
        "output_tensor_list": [_filled(given(op.numel, rank, r)) for r in range(size)],
        "input_tensor_list": [_fixed(given(op.numel, part, rank)) for part in range(size)],
    }


def _all_to_all_single(op: Operation, rank: int, size: int) -> Arguments:
    return {
        "output": [_filled(*(given(op.numel, rank, r) for r in range(size)))],
        "input": [_fixed(*(given(op.numel, part, rank) for part in range(size)))],
    }


def _all_to_all_v_single(op: Operation, rank: int, size: int) -> Arguments:
    """Adds a row after the last one, which the operation must not touch."""
    width, rows_in, rows_out = op.width, _rows_in(op, rank, size), _rows_out(op, rank, size)
    spare = Segment("poison", width)
    incoming = [given(n * width, rank, r) for r, n in enumerate(rows_out)]
    outgoing = [given(n * width, part, rank) for part, n in enumerate(rows_in)]
    empty = tuple(Segment("poison", s.numel) for s in incoming)
    return {
        "output": [Piece((*empty, spare), (*incoming, spare), (sum(rows_out) + 1, width))],
        "input": [Piece((*outgoing, spare), (*outgoing, spare), (sum(rows_in) + 1, width))],
    }


def _rows_in(op: Operation, rank: int, size: int) -> list[int]:
    return list(op.counts[rank][:size])


def _rows_out(op: Operation, rank: int, size: int) -> list[int]:
    return [op.counts[r][rank] for r in range(size)]


def _scatter(op: Operation, rank: int, size: int) -> Arguments:
    root = op.root_of(size)
    parts = range(size) if rank == root else ()
    return {
        "output_tensor": [_filled(given(op.numel, rank, root))],
        "input_tensor_list": [_fixed(given(op.numel, part, root)) for part in parts],
    }


def _gather(op: Operation, rank: int, size: int) -> Arguments:
    sources = range(size) if rank == op.root_of(size) else ()
    return {
        "output_tensor_list": [_filled(given(op.numel, 0, r)) for r in sources],
        "input_tensor": [_fixed(given(op.numel, 0, rank))],
    }


def _gather_single(op: Operation, rank: int, size: int) -> Arguments:
    whole = [given(op.numel, 0, r) for r in range(size)]
    output = _filled(*whole) if rank == op.root_of(size) else _fixed(Segment("poison", 0))
    return {"output": [output], "input": [_fixed(given(op.numel, 0, rank))]}


def _messages(op: Operation, rank: int, size: int) -> Arguments:
    sent = [(part, m) for part, m in enumerate(messages(op, size)) if m.src == rank]
    got = [(part, m) for part, m in enumerate(messages(op, size)) if m.dst == rank]
    return {
        "sent": [_fixed(given(m.numel, part, rank)) for part, m in sent],
        "received": [_filled(given(m.numel, part, m.src)) for part, m in got],
    }


def messages(op: Operation, size: int) -> list[Message]:
    """The messages of which both ends are in a group of this size."""
    if op.name == "ring":
        ends = [(r, (r + 1) % size) for r in range(size)] if size > 1 else []
        return [Message(src, dst, op.numel) for src, dst in ends]
    return [m for m in op.messages if max(m.src, m.dst) < size]


_ARGUMENTS: dict[str, Callable[[Operation, int, int], Arguments]] = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_v": _reduce_scatter,
    "reduce_scatter_single": _reduce_scatter_single,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "all_gather_v": _all_gather,
    "all_gather_single": _all_gather_single,
    "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all_single,
    "all_to_all_v_single": _all_to_all_v_single,
    "scatter": _scatter,
    "gather": _gather,
    "gather_single": _gather_single,
    "send_recv": _messages,
    "ring": _messages,
    "batch": _messages,
    "barrier": _barrier,
}

# Arguments that are always lists of tensors, also with one tensor or none.
_LISTS = ("tensor_list", "input_list", "input_tensor_list", "output_tensor_list")
Tensors = Mapping[str, Sequence["torch.Tensor"]]


def call(
    comm: torchcomms.TorchComm,
    op: Operation,
    tensors: Tensors,
    reduction: torchcomms.ReduceOp | None,
    free_order: bool,
) -> list[Any]:
    """Calls the operation with the tensors that `arguments` names. Returns the works."""
    rank, size = comm.get_rank(), comm.get_size()
    if op.name in ("send_recv", "ring"):
        return _call_messages(comm, op, tensors, free_order)
    if op.name == "batch":
        return _call_batch(comm, op, tensors)
    values: list[Any] = [
        list(list_) if name in _LISTS else list_[0] for name, list_ in tensors.items()
    ]
    if op.name == "all_to_all_v_single":
        values += [_rows_out(op, rank, size), _rows_in(op, rank, size)]
    if op.name in ("broadcast", "reduce", "scatter", "gather", "gather_single"):
        values.append(op.root_of(size))
    if reduction is not None:
        values.append(reduction)
    return [getattr(comm, op.name)(*values, op.async_op, dict(op.hints))]


def _call_messages(
    comm: torchcomms.TorchComm, op: Operation, tensors: Tensors, free_order: bool
) -> list[Any]:
    rank, size = comm.get_rank(), comm.get_size()
    sends = [m.dst for m in messages(op, size) if m.src == rank]
    receives = [m.src for m in messages(op, size) if m.dst == rank]

    def send() -> list[Any]:
        pairs = zip(tensors["sent"], sends, strict=True)
        return [comm.send(tensor, peer, op.async_op) for tensor, peer in pairs]

    def receive() -> list[Any]:
        pairs = zip(tensors["received"], receives, strict=True)
        return [comm.recv(tensor, peer, op.async_op) for tensor, peer in pairs]

    # If not all ranks may send first, every second one receives first. In an odd ring, rank 0
    # receives first too.
    waits = rank % 2 == 1 or (rank == 0 and size % 2 == 1)
    if op.name == "ring" and waits and not (free_order and op.async_op):
        return receive() + send()
    return send() + receive()


def _call_batch(comm: torchcomms.TorchComm, op: Operation, tensors: Tensors) -> list[Any]:
    """Issues a batch. Every second rank adds its receives first, which must make no difference."""
    rank, size = comm.get_rank(), comm.get_size()
    batch = comm.batch_op_create()
    sends = [m.dst for m in messages(op, size) if m.src == rank]
    receives = [m.src for m in messages(op, size) if m.dst == rank]
    if not sends and not receives:
        return []
    adds = [
        (batch.send, zip(tensors["sent"], sends, strict=True)),
        (batch.recv, zip(tensors["received"], receives, strict=True)),
    ]
    for add, pairs in reversed(adds) if rank % 2 else adds:
        for tensor, peer in pairs:
            add(tensor, peer)
    return [batch.issue(op.async_op)]
