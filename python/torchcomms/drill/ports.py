"""A free port for a rendezvous at a fixed address."""

from __future__ import annotations

import random
import socket

# Below the range of ephemeral ports, so that the kernel gives none of these to a connection.
_FIRST, _COUNT = 10000, 20000


def free_port(numbers: random.Random) -> int:
    """A random port of 127.0.0.1 on which no process listens."""
    for _ in range(_COUNT):
        port = _FIRST + numbers.randrange(_COUNT)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no port is free")
