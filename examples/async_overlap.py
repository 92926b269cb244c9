"""Computing while communicating: start an all_reduce, work on something else, then wait.

Run it so:

    torchrun --nproc-per-node 2 examples/async_overlap.py
"""

import torch
from torchcomms import ReduceOp, new_comm

PIECES = 4


def main() -> None:
    comm = new_comm("gloo", torch.device("cpu"), name="overlap")
    rank = comm.get_rank()

    # While piece i is on its way, piece i + 1 is computed. The work object keeps its tensor alive.
    source = torch.ones(256, 256)
    pieces, works = [], []
    for i in range(PIECES):
        piece = source @ source * (i + 1) / 256
        pieces.append(piece)
        works.append(comm.all_reduce(piece, ReduceOp.AVG, async_op=True))

    for work in works:
        work.wait()  # raises here if the operation failed
    assert all(work.is_completed() for work in works)
    means = [f"{piece.mean().item():g}" for piece in pieces]
    print(f"rank {rank}: averages of the {PIECES} pieces are {', '.join(means)}", flush=True)
    comm.finalize()


if __name__ == "__main__":
    main()
