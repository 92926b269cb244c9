"""Every operation of a communicator as a row: its parameters by name, in order, for a good call.

Tests that say something about all operations walk this table, so a new operation is tested by
adding its row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# make(slot, shape): the tensor for parameter `slot` ("tensor", "tensor_list[1]", ...).
Make = Callable[[str, tuple[int, ...]], torch.Tensor]
ROOT = 0
ONE = (2, 3)  # the shape of one rank's part


def zeros(_slot: str, shape: tuple[int, ...]) -> torch.Tensor:
    """The plain tensor of a good call."""
    return torch.zeros(shape)


def arguments(name: str, rank: int, size: int, make: Make = zeros) -> dict[str, Any]:
    """What rank `rank` passes before async_op, by parameter name and in positional order."""
    return _ROWS[name](_Maker(rank, size, make))


class _Maker:
    def __init__(self, rank: int, size: int, make: Make) -> None:
        from torchcomms import ReduceOp

        self.right, self.left = (rank + 1) % size, (rank - 1) % size
        self.sum = ReduceOp.SUM
        self.rows = [ONE[0]] * size
        self._size, self._make = size, make

    def one(self, slot: str) -> torch.Tensor:
        return self._make(slot, ONE)

    def all(self, slot: str) -> torch.Tensor:
        return self._make(slot, (self._size * ONE[0], *ONE[1:]))

    def list(self, slot: str) -> list[torch.Tensor]:
        return [self._make(f"{slot}[{i}]", ONE) for i in range(self._size)]


_ROWS: dict[str, Callable[[_Maker], dict[str, Any]]] = {
    "send": lambda m: {"tensor": m.one("tensor"), "dst": m.right},
    "recv": lambda m: {"tensor": m.one("tensor"), "src": m.left},
    "broadcast": lambda m: {"tensor": m.one("tensor"), "root": ROOT},
    "all_reduce": lambda m: {"tensor": m.one("tensor"), "op": m.sum},
    "reduce": lambda m: {"tensor": m.one("tensor"), "root": ROOT, "op": m.sum},
    "all_gather": lambda m: {"tensor_list": m.list("tensor_list"), "tensor": m.one("tensor")},
    "all_gather_v": lambda m: {"tensor_list": m.list("tensor_list"), "tensor": m.one("tensor")},
    "all_gather_single": lambda m: {"output": m.all("output"), "input": m.one("input")},
    "reduce_scatter": lambda m: {
        "output": m.one("output"), "input_list": m.list("input_list"), "op": m.sum},
    "reduce_scatter_v": lambda m: {
        "output": m.one("output"), "input_list": m.list("input_list"), "op": m.sum},
    "reduce_scatter_single": lambda m: {
        "output": m.one("output"), "input": m.all("input"), "op": m.sum},
    "all_to_all_single": lambda m: {"output": m.all("output"), "input": m.all("input")},
    "all_to_all_v_single": lambda m: {
        "output": m.all("output"), "input": m.all("input"),
        "output_split_sizes": list(m.rows), "input_split_sizes": list(m.rows)},
    "all_to_all": lambda m: {
        "output_tensor_list": m.list("output_tensor_list"),
        "input_tensor_list": m.list("input_tensor_list")},
    "barrier": lambda m: {},
    "scatter": lambda m: {
        "output_tensor": m.one("output_tensor"),
        "input_tensor_list": m.list("input_tensor_list"), "root": ROOT},
    "gather": lambda m: {
        "output_tensor_list": m.list("output_tensor_list"),
        "input_tensor": m.one("input_tensor"), "root": ROOT},
    "gather_single": lambda m: {
        "output": m.all("output"), "input": m.one("input"), "root": ROOT},
}  # fmt: skip

OPERATIONS = tuple(_ROWS)
MESSAGES = ("send", "recv")
COLLECTIVES = tuple(name for name in OPERATIONS if name not in MESSAGES)
REDUCING = tuple(name for name in OPERATIONS if "reduce" in name)


def operations_for(context: Any) -> tuple[str, ...]:
    """Those that all ranks of a world can start, in this order, with `arguments`."""
    alone = context.size == 1 and not context.row.self_messages
    return COLLECTIVES if alone or "early_sends" in context.row.lacks else OPERATIONS


def stated_by(row: Any) -> tuple[str, ...]:
    """Those that a backend has."""
    return COLLECTIVES if "messages" in row.lacks else OPERATIONS


def tensor_slots(name: str, size: int) -> list[str]:
    """The slots that `arguments` asks `make` for."""
    slots: list[str] = []

    def note(slot: str, shape: tuple[int, ...]) -> torch.Tensor:
        slots.append(slot)
        return zeros(slot, shape)

    arguments(name, 0, size, note)
    return slots


def call(comm: Any, name: str, async_op: Any, make: Make = zeros, **more: Any) -> Any:
    """Calls operation `name` with positional arguments, as this rank of `comm`; its work."""
    given = arguments(name, comm.get_rank(), comm.get_size(), make)
    replaced = {key: more.pop(key) for key in list(more) if key in given}
    return getattr(comm, name)(*{**given, **replaced}.values(), async_op, **more)
