"""Ports for rendezvous at a fixed address."""

from __future__ import annotations

import itertools
import os
import socket

# Below the range the kernel takes outgoing ports from, so nobody gets one of ours by chance.
_FIRST, _COUNT = 20000, 12000
_numbers = itertools.count(os.getpid() * 97 % _COUNT)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, a different one at each call."""
    for number in itertools.islice(_numbers, _COUNT):
        port = _FIRST + number % _COUNT
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no port is free")
