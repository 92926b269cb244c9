"""Calls that differ in one thing from what the other ranks call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchcomms import ReduceOp


def calls(comm: Any, odd: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """What most ranks call, and what one calls instead, which differs in what `odd` names."""
    values = torch.ones(96)
    gathered = torch.ones(96 * comm.get_size())
    usual = {"root": lambda: comm.broadcast(values, 0, False)}.get(
        odd, lambda: comm.all_reduce(values, ReduceOp.SUM, False)
    )
    instead = {
        "count": lambda: comm.all_reduce(values[:64], ReduceOp.SUM, False),
        "dtype": lambda: comm.all_reduce(values.double(), ReduceOp.SUM, False),
        "operation": lambda: comm.all_gather_single(gathered, values, False),
        "barrier": lambda: comm.barrier(False),
        "asynchronous": lambda: comm.barrier(True),
        "root": lambda: comm.broadcast(values, 1, False),
        "reduction": lambda: comm.all_reduce(values, ReduceOp.MAX, False),
        "left out": lambda: None,
    }[odd]
    return usual, instead
