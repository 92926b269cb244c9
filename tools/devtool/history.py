"""What git knows of this checkout."""

from __future__ import annotations

import subprocess

from .paths import ROOT

BASE = "origin/main"


def git(*words: str) -> str | None:
    """What git prints; None if it fails."""
    argv = ["git", "-C", str(ROOT), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def branch_point() -> str | None:
    """The commit where this branch left origin/main; None if there is no origin/main."""
    found = git("merge-base", "HEAD", BASE)
    return found and found.strip()
