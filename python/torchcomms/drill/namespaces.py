"""Namespaces of Linux through libc: os.unshare() and os.setns() need Python 3.12."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from torchcomms.drill.cell import Skip

MOUNTS, USER, NETWORK = 0x00020000, 0x10000000, 0x40000000
_NAMES = {USER: "user", NETWORK: "net"}
libc = ctypes.CDLL(None, use_errno=True)


def must(result: int, what: str) -> None:
    """Checks the result of a libc call. Raises Skip with `what` and the reason."""
    if result != 0:
        raise Skip(f"{what}: {os.strerror(ctypes.get_errno())}")


def leave(kind: int, what: str) -> None:
    """Moves this process to a new namespace of `kind`, in a new user namespace unless it is root.

    Raises Skip. A process that is not root must have a single thread.
    """
    if os.geteuid() == 0:
        must(libc.unshare(kind), what)
        return
    user, group = os.geteuid(), os.getegid()
    must(libc.unshare(kind | USER), what)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def join(process: int, kind: int, what: str) -> None:
    """Moves this process to the namespace of `kind` of another process. Raises Skip."""
    with open(f"/proc/{process}/ns/{_NAMES[kind]}") as namespace:
        must(libc.setns(namespace.fileno(), kind), what)
