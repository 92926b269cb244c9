"""
Observers of communicators.
"""

from __future__ import annotations
from . import fr
from . import clog
from . import nan_check

__all__: list[str] = ["clog", "fr", "nan_check"]
