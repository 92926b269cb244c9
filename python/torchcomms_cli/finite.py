"""Numbers of the command line."""

from __future__ import annotations

import math
import sys
from typing import Any

import typer
from typer.core import TyperCommand


class FiniteCommand(TyperCommand):
    """A command whose options take no NaN and no infinity, which Python reads as numbers."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        rest = super().parse_args(ctx, args)
        for option in self.params:
            value = ctx.params.get(option.name)
            if isinstance(value, float) and not math.isfinite(value):
                wrong = f"{option.opts[0]}: {value} is not a finite number"
                print(f"torchcomms {ctx.info_name}: {wrong}", file=sys.stderr)
                raise typer.Exit(2)
        return rest
