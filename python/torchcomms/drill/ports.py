"""A port for a rendezvous at a fixed address."""

from __future__ import annotations

import random
import socket

# Below the range from which the kernel takes outgoing ports: nobody gets one of these by chance.
_FIRST, _COUNT = 10000, 20000


def free_port(numbers: random.Random) -> int:
    """A random port of 127.0.0.1 that nobody listens on."""
    for _ in range(_COUNT):
        port = _FIRST + numbers.randrange(_COUNT)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no port is free")
