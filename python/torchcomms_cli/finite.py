"""Rules of every command: options take finite numbers, and a failed stdout has its own status."""

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
    """A command whose options refuse NaN and infinity, which Python would parse as numbers.

    The exit status is 2 if stdout cannot be written, whatever the command found: 1 means a finding.
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
        if sys.stdout is None:  # the process was started without a stdout
            return super().invoke(ctx)
        stdout = sys.stdout
        try:
            with contextlib.redirect_stdout(_Stdout(stdout)):
                try:
                    return super().invoke(ctx)
                finally:
                    sys.stdout.flush()
        except _LostError as lost:
            # The interpreter flushes stdout again when it ends. That flush must not fail once more.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stdout.fileno())
            os.close(nowhere)
            if lost.why.errno != errno.EPIPE:  # EPIPE: the reader has closed the pipe on purpose
                wrong = f"stdout cannot be written: {lost.why.strerror}"
                print(f"torchcomms {ctx.info_name}: {wrong}", file=sys.stderr)
            raise typer.Exit(2) from None


class _LostError(Exception):
    def __init__(self, why: OSError) -> None:
        super().__init__(why)
        self.why = why


class _Stdout:
    """A stream whose write errors become _LostError, to tell them from errors of other files."""

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
