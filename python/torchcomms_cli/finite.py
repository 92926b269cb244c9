"""What holds for every command: which numbers it takes, and what becomes of its output."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import sys
from typing import Any, TextIO

import typer
from typer.core import TyperCommand


class FiniteCommand(TyperCommand):
    """A command whose options take no NaN and no infinity, which Python reads as numbers.

    Status 2 where stdout cannot be written, whatever it found: 1 is a finding's.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        rest = super().parse_args(ctx, args)
        for option in self.params:
            value = ctx.params.get(option.name)
            if isinstance(value, float) and not math.isfinite(value):
                wrong = f"{option.opts[0]}: {value} is not a finite number"
                print(f"torchcomms {ctx.info_name}: {wrong}", file=sys.stderr)
                raise typer.Exit(2)
        return rest

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        if sys.stdout is None:  # the program began without one
            return super().invoke(ctx)
        stdout = sys.stdout
        try:
            with contextlib.redirect_stdout(_Stdout(stdout)):
                try:
                    return super().invoke(ctx)
                finally:
                    sys.stdout.flush()
        except _LostError as lost:
            # What it still has must not fail once more when the interpreter ends.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stdout.fileno())
            os.close(nowhere)
            if lost.why.errno != errno.EPIPE:  # who read it has seen enough
                wrong = f"stdout cannot be written: {lost.why.strerror}"
                print(f"torchcomms {ctx.info_name}: {wrong}", file=sys.stderr)
            raise typer.Exit(2) from None


class _LostError(Exception):
    def __init__(self, why: OSError) -> None:
        super().__init__(why)
        self.why = why


class _Stdout:
    """The stream, whose failures nobody takes for those of another file."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            raise _LostError(error) from error

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise _LostError(error) from error
