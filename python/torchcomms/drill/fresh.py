"""`python -m torchcomms.drill.fresh DESCRIPTOR`: a rank in a new interpreter."""

from __future__ import annotations

import os
import pickle
import sys
from multiprocessing.connection import Connection

from torchcomms.drill.process import run


def main() -> None:
    """Runs the rank.

    The descriptor is the connection to the runner; the role is its first message.
    """
    connection = Connection(int(sys.argv[1]))
    os.set_inheritable(connection.fileno(), False)
    run(connection, pickle.loads(connection.recv_bytes()))


if __name__ == "__main__":
    main()
