"""What can go wrong when measuring."""

from __future__ import annotations


class BenchError(Exception):
    """The request makes no sense (unknown operation, bad size, ...) or a measuring process failed.

    The text names the value seen and what is allowed.
    """
