"""How cells run here: short limits, and bounds for machines that do other things, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torchcomms
from torchcomms.drill import Cell, Plan, Result, drill

LIMIT_S = 1.0
SLACK = 4.0


@pytest.fixture
def verdict() -> Callable[[Cell, str], Result]:
    """Runs one cell on one backend."""

    def run(cell: Cell, backend: str, slack: float = SLACK) -> Result:
        if backend not in torchcomms.built_backends():
            pytest.skip(f"backend {backend} is not part of this build")
        plan = Plan([cell], [backend], limit_s=LIMIT_S, slack=slack, rounds=20)
        (result,) = drill(plan)
        return result

    return run
