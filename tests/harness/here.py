"""What a process of a world is a rank of; set when it begins."""

from __future__ import annotations

from .backends import Backend

row: Backend | None = None  # None: no rank
