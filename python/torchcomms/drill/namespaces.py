"""Namespaces of Linux, by the calls themselves: os.unshare() and os.setns() are of Python 3.12."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from torchcomms.drill.cell import Skip

MOUNTS, USER, NETWORK = 0x00020000, 0x10000000, 0x40000000
_NAMES = {USER: "user", NETWORK: "net"}
libc = ctypes.CDLL(None, use_errno=True)


def must(result: int, what: str) -> None:
    """The result of a call of libc; raises Skip, saying `what` and why."""
    if result != 0:
        raise Skip(f"{what}: {os.strerror(ctypes.get_errno())}")


def leave(kind: int, what: str) -> None:
    """This process has a new namespace of `kind`, in a new user namespace where it must. Skip.

    For those who are not root: in a process with one thread.
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
    """This process has the namespace of `kind` of that one. Raises Skip."""
    with open(f"/proc/{process}/ns/{_NAMES[kind]}") as namespace:
        must(libc.setns(namespace.fileno(), kind), what)
