"""A proxy in front of a TCP server, which kills its process after a number of messages."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections.abc import Callable


class KillingProxy:
    """Passes bytes between connections to `port` and a server of this host.

    It kills its own process at the given message, counted in both directions after arm().
    """

    def __init__(self, server_port: int, messages: int, before_kill: Callable[[], None]) -> None:
        self._server_port, self._left, self._before_kill = server_port, messages, before_kill
        self._armed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def arm(self) -> None:
        self._armed = True

    def _run(self) -> None:
        other: dict[socket.socket, socket.socket] = {}
        while True:
            readable, _, _ = select.select([self._listener, *other], [], [])
            for source in readable:
                if source is self._listener:
                    client, _ = source.accept()
                    server = socket.create_connection(("127.0.0.1", self._server_port))
                    other[client], other[server] = server, client
                elif source in other:
                    self._pass_on(source, other)

    def _pass_on(self, source: socket.socket, other: dict[socket.socket, socket.socket]) -> None:
        try:
            data = source.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        if not data:
            sink = other.pop(source)
            other.pop(sink, None)
            source.close()
            sink.close()
            return
        if self._armed:
            self._left -= 1
            if self._left == 0:
                self._before_kill()
                os.kill(os.getpid(), signal.SIGKILL)
        other[source].sendall(data)
