"""A TCP proxy in front of a store's server, with one fault at a chosen request."""

from __future__ import annotations

import contextlib
import socket
import threading

# What happens at the chosen request, and from there on.
KINDS = {
    "cut": "that connection is closed; later connections work",
    "refuse": "all connections are closed, later ones are refused",
    "slow": "each request of all connections takes 20 ms more",
    "silent": "that connection is open and forwards nothing; later connections work",
    "stopped": "all connections, also later ones, are open and forward nothing",
}
_DELAY_S = 0.02


class StoreProxy:
    """Forwards connections at `port` to the server. A request is what one recv() returns."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._mutex = threading.Lock()
        self._kind = ""
        self._left = 0
        self._begun = False
        self._closed = threading.Event()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._start(self._accept)

    def arm(self, kind: str, request: int) -> None:
        """Lets the fault begin at the `request`th request from now, counted from 1."""
        assert kind in KINDS, kind
        with self._mutex:
            self._kind, self._left = kind, request

    @property
    def begun(self) -> bool:
        """Whether the fault has begun."""
        return self._begun

    def close(self) -> None:
        """Closes all connections, and refuses later ones."""
        self._closed.set()
        with self._mutex:
            # The threads that use them wake up. The sockets are closed with their last reference.
            _shut(self._listener, *self._sockets)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server))
            with self._mutex:
                self._sockets += [client, server]
            self._start(self._forward_requests, client, server)
            self._start(self._forward_answers, server, client)

    def _forward_requests(self, client: socket.socket, server: socket.socket) -> None:
        for data in _received(client):
            fault, is_first = self._fault()
            if fault == "cut" and is_first:
                break
            if fault == "refuse":
                self.close()
                break
            if fault == "stopped" or (fault == "silent" and is_first):
                return
            if fault == "slow":
                self._closed.wait(_DELAY_S)
            with contextlib.suppress(OSError):
                server.sendall(data)
        _shut(client, server)

    def _forward_answers(self, server: socket.socket, client: socket.socket) -> None:
        for data in _received(server):
            with contextlib.suppress(OSError):
                client.sendall(data)
        _shut(client, server)

    def _fault(self) -> tuple[str, bool]:
        """Counts a request. Returns: the fault that it meets, if any; whether it is the first."""
        with self._mutex:
            if not self._kind:
                return "", False
            self._left -= 1
            self._begun = self._left <= 0
            return (self._kind, self._left == 0) if self._begun else ("", False)

    @staticmethod
    def _start(run: object, *arguments: object) -> None:
        threading.Thread(target=run, args=arguments, daemon=True).start()


def _received(source: socket.socket):
    while True:
        try:
            data = source.recv(65536)
        except OSError:
            return
        if not data:
            return
        yield data


def _shut(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
