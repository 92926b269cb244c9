"""`python -m torchcomms.drill.fresh DESCRIPTOR`: a rank that is an interpreter of its own."""

from __future__ import annotations

import os
import pickle
import sys
from multiprocessing.connection import Connection

from torchcomms.drill.process import run


def main() -> None:
    """The connection to the runner is open at the descriptor; the role is the first message."""
    connection = Connection(int(sys.argv[1]))
    os.set_inheritable(connection.fileno(), False)
    run(connection, pickle.loads(connection.recv_bytes()))


if __name__ == "__main__":
    main()
