"""A counter of finished pieces that all ranks see, and results that are put where they belong.

Every rank works on its share of the pieces and puts each result into the window of rank 0, which
takes no part in it: it only waits for the signals.

Run it so:

    torchrun --nproc-per-node 3 examples/window.py
"""

import torch
from torchcomms import new_comm

PIECES = 8


def main() -> None:
    comm = new_comm("ctran", torch.device("cpu"), name="world")
    rank, size = comm.get_rank(), comm.get_size()

    # In shared memory the ranks of this host write it directly; any other memory works, too.
    results = torch.zeros(PIECES).share_memory_()
    window = comm.new_window(results)

    for piece in range(rank, PIECES, size):
        result = torch.tensor([float(piece * piece)])
        window.put(result, 0, piece, async_op=False)
    window.signal(0, async_op=False)  # whoever sees it sees all that was put before

    if rank == 0:
        for peer in range(size):
            window.wait_signal(peer, async_op=False)
        print(f"squares: {[int(x) for x in results]}", flush=True)

    window.tensor_deregister()
    comm.finalize()


if __name__ == "__main__":
    main()
