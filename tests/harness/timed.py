"""What tests of limits share: calls that have to time out, and how their ranks part."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from .environment import environment

SHORT_S = 0.3
SOON_S = 20.0  # far above the limits, and far below the default of minutes


def times_out(action: Callable[[], Any], op: str, limit_s: float = SHORT_S) -> None:
    """`action` raises CommTimeout naming operation and limit, not before it and soon after it."""
    import torchcomms

    began = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        action()
    took = time.monotonic() - began
    assert isinstance(caught.value, torchcomms.CommTimeout), repr(caught.value)
    text = str(caught.value)
    assert op in text, text
    assert re.search(rf"\b{limit_s:g} ?s|\b{limit_s * 1000:g} ?ms", text), text
    assert limit_s * 0.95 <= took < SOON_S, f"took {took:.2f} s"


def own_comm(context: Any, **options: Any) -> Any:
    """A communicator whose limit for operations leaves the start-up its time."""
    with environment(TORCHCOMM_STORE_TIMEOUT_SECONDS="60", TORCHCOMM_INIT_TIMEOUT_SECONDS="60"):
        return context.new_comm(**options)


def end(context: Any, comm: Any) -> None:
    """Leaves together: a rank that goes away early would be a lost peer, not a silent one."""
    context.meet(f"end/{comm.get_name()}")
    comm.finalize()
