"""Puts every rank on a host of its own: network namespaces, connected by a hub.

All packets pass the hub. It is the first helper of a cell, and can cut off a host.
"""

from __future__ import annotations

import collections
import fcntl
import functools
import os
import select
import shutil
import struct
import subprocess
import threading
import time
from pathlib import Path

from torchcomms.drill.cell import Skip
from torchcomms.drill.namespaces import NETWORK, USER, join, leave
from torchcomms.drill.scene import Scene

_INTERFACE = "eth0"  # interface of a rank
_NONE = "no private network namespace"


@functools.cache
def missing() -> str | None:
    """Why hosts cannot be made on this machine, or None: a value of `Cell.missing`."""
    for program in ("unshare", "ip", "tc"):
        if shutil.which(program) is None:
            return f"no program {program!r}"
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    link = ["ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"]
    done = subprocess.run(
        ["unshare", *user, "--net", *link], capture_output=True, text=True, check=False
    )
    return None if done.returncode == 0 else f"{_NONE}: {done.stderr.strip()}"


def own_host(scene: Scene) -> None:
    """Moves this rank to a host of its own: a value of `Cell.enter`. Requires a single thread."""
    all_processes = _all_processes(scene)
    _note_process(scene)
    scene.meet("hub", all_processes)
    if os.geteuid() != 0:
        join(_process(scene, scene.size), USER, _NONE)
    leave(NETWORK, _NONE)
    scene.meet("hosts", all_processes)
    scene.meet("linked", all_processes)
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{address(scene.rank)}/30", "dev", _INTERFACE)
    _run("ip", "link", "set", _INTERFACE, "up")
    _run("ip", "route", "add", "default", "via", _gate(scene.rank))
    os.environ["GLOO_SOCKET_IFNAME"] = _INTERFACE  # read by torch.distributed
    scene.meet("up", all_processes)


def address(rank: int) -> str:
    return f"10.77.{rank}.2"


class Hub:
    """The process that connects the hosts of all ranks, made when all ranks are ready."""

    def __init__(self, scene: Scene) -> None:
        all_processes = _all_processes(scene)
        leave(NETWORK, _NONE)
        _note_process(scene)
        scene.meet("hub", all_processes)
        scene.meet("hosts", all_processes)
        for rank in range(scene.size):
            peer = ("peer", "name", _INTERFACE, "netns", str(_process(scene, rank)))
            _run("ip", "link", "add", _port(rank), "type", "veth", *peer)
            _run("ip", "address", "add", f"{_gate(rank)}/30", "dev", _port(rank))
            _run("ip", "link", "set", _port(rank), "up")
        _system("ip_forward", "1")
        scene.meet("linked", all_processes)
        scene.meet("up", all_processes)

    def cut(self, rank: int, *, sends: bool = True, receives: bool = True) -> None:
        """Silently drops all packets that this host sends, or that are sent to it."""
        for direction, is_cut in (("from", sends), ("to", receives)):
            if is_cut:
                _run("ip", "rule", "add", "pref", "1", direction, address(rank), "blackhole")

    def slow(self, rank: int, rate: str) -> None:
        """Limits the rate towards this host, in the notation of tc: "1mbit"."""
        shape = ("tbf", "rate", rate, "burst", "16kb", "latency", "1s")
        _run("tc", "qdisc", "add", "dev", _port(rank), "root", *shape)

    def delay(self, rank: int, seconds: float) -> None:
        """Delays packets of this host by `seconds`: they pass a thread of this process."""
        tunnel = _Tunnel("late", seconds)
        _system("conf/all/rp_filter", "0")
        _system("conf/late/rp_filter", "0")
        _run("ip", "link", "set", "late", "up")
        _run("ip", "route", "add", "default", "dev", "late", "table", "77")
        _run("ip", "rule", "add", "pref", "1", "dev", _port(rank), "lookup", "77")
        threading.Thread(target=tunnel.run, daemon=True).start()


class _Tunnel:
    """A network interface that returns its packets after a delay."""

    def __init__(self, name: str, seconds: float) -> None:
        self._seconds = seconds
        try:
            self._file = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
            plain = 0x0001 | 0x1000  # IFF_TUN, IFF_NO_PI
            fcntl.ioctl(self._file, 0x400454CA, struct.pack("16sH22x", name.encode(), plain))
        except OSError as error:
            raise Skip(f"no tunnel device to delay packets: {error}") from error

    def run(self) -> None:
        waiting = collections.deque[tuple[float, bytes]]()
        while True:
            left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
            if select.select([self._file], [], [], left)[0]:
                packet = os.read(self._file, 1 << 16)
                waiting.append((time.monotonic() + self._seconds, packet))
            while waiting and waiting[0][0] <= time.monotonic():
                os.write(self._file, waiting.popleft()[1])


def _all_processes(scene: Scene) -> list[int]:
    return [*range(scene.size + 1)]


def _note_process(scene: Scene) -> None:
    (scene.tmp / f"{scene.rank}.pid").write_text(str(os.getpid()))


def _process(scene: Scene, index: int) -> int:
    return int((scene.tmp / f"{index}.pid").read_text())


def _gate(rank: int) -> str:
    return f"10.77.{rank}.1"


def _port(rank: int) -> str:
    return f"rank{rank}"


def _system(name: str, value: str) -> None:
    Path("/proc/sys/net/ipv4", name).write_text(value)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skip(f"{' '.join(command)}: {done.stderr.strip()}")
