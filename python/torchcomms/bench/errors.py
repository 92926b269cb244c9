"""The errors of a measurement."""

from __future__ import annotations


class BenchError(Exception):
    """The request is not valid (unknown operation, bad size, ...), or a measuring process failed.

    The text names the value seen and the allowed ones.
    """


class NotMeasured(BenchError):
    """A backend cannot measure this point on any rank. The other backends are measured."""
