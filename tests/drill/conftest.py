"""How cells run here: short limits, and bounds for machines that do other things, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torchcomms
from torchcomms.drill import Cell, Plan, Result, drill

from tests.harness.backends import NCCL, NCCLX

_ROWS = {row.name: row for row in (NCCL, NCCLX)}
_AS_LIBRARIES_DO = {"TORCHCOMMS_STAND_IN": "blind=1"}  # ranks that disagree wait for ever
LIMIT_S = 1.0
SLACK = 4.0


@pytest.fixture
def verdict(monkeypatch) -> Callable[[Cell, str], Result]:
    """Runs one cell on one backend; those over vendors' libraries with ones for host memory."""

    def run(cell: Cell, backend: str, slack: float = SLACK) -> Result:
        if backend not in torchcomms.built_backends():
            pytest.skip(f"backend {backend} is not part of this build")
        if backend in _ROWS:
            if why_not := _ROWS[backend].missing():
                pytest.skip(why_not)
            for name, value in {**_ROWS[backend].environment, **_AS_LIBRARIES_DO}.items():
                monkeypatch.setenv(name, value)
        plan = Plan([cell], [backend], limit_s=LIMIT_S, slack=slack, rounds=20)
        (result,) = drill(plan)
        return result

    return run
