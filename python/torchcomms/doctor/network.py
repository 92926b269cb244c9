"""Interfaces, names and routes of this host. Only name lookups leave the host."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from torchcomms.doctor.report import Section

Answer = TypeVar("Answer")
_SIOCGIFADDR = 0x8915  # <linux/sockios.h>
ANYWHERE = "192.0.2.1"  # TEST-NET-1 (RFC 5737), which no host has: its route is the default route
_LOOKUP_LIMIT_S = 3.0  # an unreachable name server would block for much longer


@dataclass
class Interface:
    name: str
    up: bool
    addresses: list[str] = field(default_factory=list)
    default_route: bool = False


def look() -> Section:
    section = Section("network", "Network")
    found = interfaces()
    for each in found:
        section.rows.append(
            {
                "interface": each.name,
                "state": "up" if each.up else "down",
                "addresses": ", ".join(each.addresses) or None,
                "default route": "yes" if each.default_route else None,
            }
        )
    return section


def interfaces() -> list[Interface]:
    """All interfaces of this host, loopback first."""
    found = {name: Interface(name, _is_up(name)) for _, name in socket.if_nameindex()}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for each in found.values():
            request = struct.pack("256s", each.name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # the interface has no IPv4 address
            each.addresses.append(socket.inet_ntoa(answer[20:24]))
    for fields in _lines("/proc/net/if_inet6"):
        if fields[5] in found:
            found[fields[5]].addresses.append(str(ipaddress.IPv6Address(bytes.fromhex(fields[0]))))
    for fields in _lines("/proc/net/route")[1:]:
        if fields[1] == "00000000" and fields[0] in found:
            found[fields[0]].default_route = True
    return sorted(found.values(), key=lambda each: (each.name != "lo", each.name))


def _is_up(name: str) -> bool:
    flags = Path(f"/sys/class/net/{name}/flags")
    return flags.exists() and bool(int(flags.read_text(), 16) & 1)


def _lines(path: str) -> list[list[str]]:
    try:
        return [line.split() for line in Path(path).read_text().splitlines()]
    except OSError:
        return []  # the kernel has no IPv6


def resolve(name: str) -> tuple[str | None, str]:
    """Returns (first address, ""), or (None, reason). Blocks: `_LOOKUP_LIMIT_S` at most."""

    def ask() -> tuple[str | None, str]:
        try:
            return socket.getaddrinfo(name, None)[0][4][0].partition("%")[0], ""  # type: ignore[union-attr]
        except (OSError, UnicodeError) as error:
            return None, getattr(error, "strerror", None) or str(error)

    answer = _within(_LOOKUP_LIMIT_S, ask)
    return answer or (None, f"no answer within {_LOOKUP_LIMIT_S:.0f} s")


def reverse_lookup_s(address: str, limit_s: float) -> float | None:
    """Times the lookup of the name of an IPv4 address, as c10d's sockets make it.

    c10d's sockets see the address as an IPv6 one.

    Returns: seconds, or None if the lookup takes more than `limit_s`.
    """

    def ask() -> float:
        began = time.monotonic()
        with contextlib.suppress(OSError):  # an address without a name is a valid answer, too
            socket.getnameinfo((f"::ffff:{address}", 0, 0, 0), 0)
        return time.monotonic() - began

    return _within(limit_s, ask)


def _within(limit_s: float, ask: Callable[[], Answer]) -> Answer | None:
    """The result of a call that may block for long, or None after `limit_s` seconds."""
    answer: list[Answer] = []
    thread = threading.Thread(target=lambda: answer.append(ask()), daemon=True)
    thread.start()
    thread.join(limit_s)
    return answer[0] if answer else None


def is_local(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def route(address: str) -> str | None:
    """The local address that the kernel would use to reach `address`, or None. Sends nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])
