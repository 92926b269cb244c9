"""Moves the bytes of objects: first all ranks agree that the call can succeed, then they send.

A rank that cannot send, will not read, or has a wrong argument says so in the first step. So all
ranks raise, no rank waits for a message that never arrives, and the communicator stays in step.
"""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch

from torchcomms import _arguments
from torchcomms._comms import (
    CommError,
    InvalidArgument,
    Mismatch,
    ReduceOp,
    TooLarge,
    TorchComm,
    UnsafeObject,
    Unsupported,
)
from torchcomms.objcol import _decode, _encode, _torch
from torchcomms.objcol._format import Over, Refused

# The states of a message, in the order of severity. From UNSAFE on, a message has no bytes.
NOTHING, DATA, PICKLE, UNSAFE, OVER, ERROR, WRONG = range(7)
_RANK_BITS = 32
_MAX_BYTES_END = 1 << 62
# Pieces of a message between two ranks: a refused message needs no more memory than a piece.
_PIECE_BYTES = 16 << 20
_ADVICE = (
    "register the class with torchcomms.objcol.register_type or, on every rank, with"
    " torch.serialization.add_safe_globals, or pass weights_only=False at this call if every peer"
    " may run code here"
)


@functools.cache
def pickles_everything() -> bool:
    """Returns: whether TORCHCOMMS_SERIALIZATION is "pickle". Read once."""
    return os.environ.get("TORCHCOMMS_SERIALIZATION", "").strip().lower() == "pickle"


@dataclass(frozen=True)
class Call:
    """The arguments of one call of an object collective, on one rank."""

    comm: TorchComm
    op: str
    max_bytes: int
    weights_only: bool
    timeout: timedelta | float | None

    @property
    def device(self) -> torch.device:
        return self.comm.get_device()

    def error(self, kind: type[CommError], why: str, peer: int = -1) -> CommError:
        """Makes an error with the text and the attributes of native errors."""
        name, rank = self.comm.get_name(), self.comm.get_rank()
        who = f"rank {rank}" + (f", peer {peer}" if peer >= 0 else "")
        raised = kind(f"{self.op} on '{name}' ({who}): {why}")
        about = {"op": self.op, "comm": name, "rank": rank, "peer": peer, "seq": 0, "why": why}
        for attribute, value in about.items():
            setattr(raised, attribute, value)
        return raised

    def _limit(self) -> timedelta | float | None:
        """The timeout, if it is valid. Raises InvalidArgument, TypeError."""
        if self.timeout is None:
            return None
        return _arguments.require_limit(self.op, self.timeout, least_seconds=0)

    def check(self, **ranks: int) -> None:
        """Checks the arguments of all calls, and ranks given by name.

        Raises InvalidArgument, TypeError.
        """
        self._limit()
        limit = _arguments.require_int64(self.op, "max_bytes", self.max_bytes)
        if not 0 < limit < _MAX_BYTES_END:
            raise self.error(InvalidArgument, f"max_bytes={limit} must be in (0, 2**62)")
        self.check_ranks(**ranks)

    def check_ranks(self, **ranks: int) -> None:
        """Checks only ranks, given by name. Raises InvalidArgument, TypeError."""
        size = self.comm.get_size()
        for argument, value in ranks.items():
            rank = _arguments.require_int64(self.op, argument, value)
            if not 0 <= rank < size:
                raise self.error(InvalidArgument, f"{argument}={rank} is outside [0, {size})")

    def with_defaults(self) -> Call:
        """A copy whose cap and timeout cannot fail a small operation."""
        try:
            usable = self._limit()
        except (InvalidArgument, TypeError):
            usable = None
        return replace(self, max_bytes=_MAX_BYTES_END - 1, timeout=usable)


@dataclass(frozen=True)
class Message:
    """What a rank sends: bytes, or the error why there are none."""

    state: int
    raw: bytes = b""
    error: BaseException | None = None
    value: object = None  # the object of a PICKLE


@contextmanager
def checked(call: Call, report: Callable[[Call, Message], object]) -> Iterator[None]:
    """Context manager: reports a wrong argument to the peers before the error leaves the block.

    `report` sends the message. It may fail, because the peers may not be in such a call; the error
    of the block is raised in any case.
    """
    wrong: Exception | None = None
    try:
        yield
    except Exception as error:
        wrong = error
    if wrong is None:
        return
    try:
        report(call.with_defaults(), Message(WRONG, error=wrong))
    except CommError as send_error:
        if send_error is not wrong:
            raise wrong from send_error
    raise wrong


def pack(call: Call, value: object) -> Message:
    """Converts the value to bytes.

    Never raises: peers must learn of a failure first, see `agree`.
    """
    if call.weights_only:
        return _data(call, value)
    # Some objects cannot be pickled but are data, such as those of registered types.
    message = _pickled(call, value)
    return message if message.state == PICKLE else _first_of(_data(call, value), message)


def pack_for_any(call: Call, value: object) -> Message:
    """Converts the value to bytes, if the reader alone decides whether it accepts a pickle."""
    if pickles_everything():
        return _pickled(call, value)
    message = _data(call, value)
    return message if message.state == DATA else _first_of(_pickled(call, value), message)


def _first_of(wanted: Message, instead: Message) -> Message:
    return wanted if wanted.error is None else instead


def _data(call: Call, value: object, what_for: str = "") -> Message:
    try:
        return Message(DATA, _encode.encode(value, call.max_bytes))
    except Over as over:
        return Message(OVER, error=call.error(TooLarge, str(over)))
    except Refused as refused:
        why = f"the object is not data{what_for}: {refused}; {_ADVICE}"
        return Message(UNSAFE, error=call.error(UnsafeObject, why))
    except Exception as error:
        return Message(ERROR, error=error)


def _pickled(call: Call, value: object) -> Message:
    try:
        raw = pickle.dumps(value) if pickles_everything() else _torch.save(value)
    except Exception as error:
        return Message(ERROR, error=error)
    if len(raw) > call.max_bytes:
        why = f"the pickle has {len(raw)} bytes, max_bytes={call.max_bytes}"
        return Message(OVER, error=call.error(TooLarge, why))
    return Message(PICKLE, raw, value=value)


def unpack(call: Call, raw: torch.Tensor, state: int, peer: int) -> Any:  # noqa: ANN401
    """Returns the object in the bytes that `peer` sent. Raises UnsafeObject, TooLarge."""
    array: Any = raw.cpu().numpy()
    content = memoryview(array) if raw.numel() else memoryview(b"")
    if state == PICKLE:
        if call.weights_only:  # although the peer announced no pickle in agree()
            raise _unwanted_pickle(call, peer)
        if _torch.is_file(content):
            return _torch.load_unsafe(content, call.device)
        return pickle.loads(content)
    try:
        return _decode.decode(content, call.max_bytes, call.device)
    except Over as over:
        raise call.error(TooLarge, str(over), peer) from None
    except Refused as refused:
        raise call.error(UnsafeObject, f"the object was refused: {refused}", peer) from refused


def run(call: Call, operation: Callable[..., Any], *arguments: object) -> None:
    """Runs an operation and returns when its outputs may be read. Raises its error."""
    work = operation(*arguments, False, timeout=call.timeout)
    if call.device.type == "cpu":
        return
    # On a GPU a synchronous call returns before it is done.
    try:
        work.wait_blocking()
    except Unsupported:  # works of a backend in Python do not support it
        work.wait()


def send_to_all(call: Call, message: Message) -> None:
    """Sends `message` to all ranks that call `agree`."""
    agree(call, [message])


def agree(call: Call, messages: Iterable[Message], count: int = 0) -> list[Message]:
    """Agrees by one all-reduce whether the call goes on. If not, all ranks raise.

    If some rank reads no pickle, ranks that have one convert it to data and agree again.

    Args:
        count: a number that must be equal on all ranks; 0: this rank has none.

    Returns: the messages to send.
    """
    messages = list(messages)
    own = max(messages, key=lambda m: m.state, default=Message(NOTHING))
    largest = max((len(m.raw) for m in messages), default=0)
    numbers = [
        own.state << _RANK_BITS | call.comm.get_rank(),
        largest,
        -call.max_bytes,
        count,
        -(count or 1 << 62),
        int(call.weights_only),
    ]
    if call.comm.get_size() > 1:
        seen = torch.tensor(numbers, dtype=torch.int64, device=call.device)
        run(call, call.comm.all_reduce, seen, ReduceOp.MAX)
        numbers = seen.tolist()
    worst, peer = divmod(numbers[0], 1 << _RANK_BITS)
    if own.error is not None:
        raise own.error
    if worst == WRONG:
        _raise_if_failed(call, worst, peer)
    if worst == OVER or numbers[1] > -numbers[2]:
        why = f"an object exceeds the smallest max_bytes of all ranks, which is {-numbers[2]}"
        raise call.error(TooLarge, why)
    _raise_if_failed(call, worst, peer)
    if worst == PICKLE and numbers[5]:
        what_for = ", and another rank's call has weights_only=True"
        converted = [_data(call, m.value, what_for) if m.state == PICKLE else m for m in messages]
        return agree(call, converted, count)
    if numbers[3] and numbers[3] != -numbers[4]:
        why = f"the ranks' lists have {-numbers[4]} to {numbers[3]} elements, this rank's {count}"
        raise call.error(Mismatch, why)
    return messages


def _raise_if_failed(call: Call, state: int, peer: int) -> None:
    """Raises the error for a state without bytes that another rank reported."""
    if state == UNSAFE:
        why = "the peer's object is not data; its own error names the class"
        raise call.error(UnsafeObject, why, peer)
    if state == OVER:
        raise call.error(TooLarge, "the peer's object exceeds the peer's max_bytes", peer)
    if state == WRONG:
        why = "the peer's call has a wrong argument; its own error names it"
        raise call.error(Mismatch, why, peer)
    if state > OVER or state < NOTHING:
        raise call.error(CommError, "the peer could not convert its object to bytes", peer)


def _unwanted_pickle(call: Call, peer: int) -> CommError:
    why = f"the peer sent a pickle, because its object is not data: {_ADVICE}"
    return call.error(UnsafeObject, why, peer)


def to_wire(call: Call, *parts: bytes) -> torch.Tensor:
    """Returns the joined bytes as a tensor on the communicator's device."""
    raw = bytearray().join(parts)
    if not raw:
        return torch.empty(0, dtype=torch.uint8, device=call.device)
    return torch.frombuffer(raw, dtype=torch.uint8).to(call.device)


def require_room(call: Call, size: int, peer: int) -> None:
    """Raises TooLarge if a peer announced a message that exceeds the cap."""
    if not 0 <= size <= call.max_bytes:
        why = f"the peer announced {size} bytes, max_bytes={call.max_bytes}"
        raise call.error(TooLarge, why, peer)


def receive_buffer(call: Call, size: int, peer: int) -> torch.Tensor:
    """Allocates memory for a message of an announced size. Raises TooLarge."""
    require_room(call, size, peer)
    return torch.empty(size, dtype=torch.uint8, device=call.device)


def exchange(
    call: Call, wire: torch.Tensor, sent: Mapping[int, int], received: Mapping[int, int]
) -> Sequence[torch.Tensor]:
    """Exchanges every rank's bytes in one collective. Messages could match the program's own
    messages.

    Args:
        sent: how many bytes of `wire` go to each rank, in rank order.
        received: how many bytes each rank has announced.

    Raises: TooLarge.
    """
    for peer, size in received.items():
        require_room(call, size, peer)
    ranks = range(call.comm.get_size())
    if len(ranks) == 1:
        return [wire]
    splits = [received.get(peer, 0) for peer in ranks]
    arrived = torch.empty(sum(splits), dtype=torch.uint8, device=call.device)
    given = [sent.get(peer, 0) for peer in ranks]
    run(call, call.comm.all_to_all_v_single, arrived, wire, splits, given)
    return torch.split(arrived, splits)


def numbers(call: Call, values: list[int]) -> torch.Tensor:
    """Makes a small int64 tensor of sizes."""
    return torch.tensor(values, dtype=torch.int64, device=call.device)


def send(call: Call, message: Message, count: int, dst: int) -> None:
    """Sends to `receive` of rank `dst`. The receiver also learns of a failure of this side."""
    head = numbers(call, [message.state, len(message.raw), count])
    run(call, call.comm.send, head, dst)
    if message.error is not None:
        raise message.error
    wire = to_wire(call, message.raw)
    for piece in torch.split(wire, _PIECE_BYTES):
        run(call, call.comm.send, piece, dst)


def receive(call: Call, count: int, src: int) -> Any:  # noqa: ANN401
    """Receives the object of `send`. A refused message is received and dropped, piece by piece."""
    head = numbers(call, [0, 0, 0])
    run(call, call.comm.recv, head, src)
    state, size, theirs = head.tolist()
    if state not in (DATA, PICKLE):
        _raise_if_failed(call, state if state > PICKLE else ERROR, src)
    error: CommError | None = None
    if not 0 <= size <= call.max_bytes:
        error = call.error(
            TooLarge, f"the message has {size} bytes, max_bytes={call.max_bytes}", src
        )
    elif state == PICKLE and call.weights_only:
        error = _unwanted_pickle(call, src)
    elif theirs != count:
        why = f"the peer sent {theirs} objects, object_list has {count}"
        error = call.error(Mismatch, why, src)
    if error is None:
        wire = receive_buffer(call, size, src)
        for piece in torch.split(wire, _PIECE_BYTES):
            run(call, call.comm.recv, piece, src)
        return unpack(call, wire, state, src)
    discarded = torch.empty(min(max(size, 0), _PIECE_BYTES), dtype=torch.uint8, device=call.device)
    while size > 0:
        piece = discarded[:size]
        run(call, call.comm.recv, piece, src)
        size -= piece.numel()
    raise error
