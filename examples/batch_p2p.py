"""Point-to-point in one go: every rank passes a token to its right neighbour, around the ring.

    torchrun --nproc-per-node 3 examples/batch_p2p.py

A batch has no order between its sends and receives, so nobody has to be the first to receive.
"""

import torch
from torchcomms import new_comm


def main() -> None:
    comm = new_comm("gloo", torch.device("cpu"), name="ring")
    rank, size = comm.get_rank(), comm.get_size()
    right, left = (rank + 1) % size, (rank - 1) % size

    token = torch.tensor([float(rank)])
    visited = [rank]
    for _ in range(size - 1):
        incoming = torch.empty_like(token)
        batch = comm.batch_op_create()
        batch.send(token, right)
        batch.recv(incoming, left)
        batch.issue(async_op=True).wait()
        token = incoming
        visited.append(int(token.item()))

    print(f"rank {rank} has seen the tokens {visited}", flush=True)
    comm.finalize()


if __name__ == "__main__":
    main()
