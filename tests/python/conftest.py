"""Fixtures of the Python suites: communicators of the backend that needs no other process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
import torchcomms

_numbers = itertools.count()


@pytest.fixture
def comm() -> Iterator[torchcomms.TorchComm]:
    """A `fake` communicator: rank 0 of 1, every operation completes and moves nothing."""
    made = torchcomms.new_comm("fake", torch.device("cpu"), f"fake_{next(_numbers)}")
    yield made
    made.finalize()
