"""What can go wrong when measuring."""

from __future__ import annotations


class BenchError(Exception):
    """The request makes no sense (unknown operation, bad size, ...) or a measuring process failed.

    The text names the value seen and what is allowed.
    """


class NotMeasured(BenchError):
    """One backend lacks this point, on all ranks alike; the others are measured."""
