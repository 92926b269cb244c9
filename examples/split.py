"""Smaller worlds: the even and the odd ranks each get a communicator of their own.

Run it so:

    torchrun --nproc-per-node 4 examples/split.py
"""

import torch
from torchcomms import ReduceOp, new_comm


def main() -> None:
    comm = new_comm("gloo", torch.device("cpu"), name="world")
    rank, size = comm.get_rank(), comm.get_size()

    # Every rank passes its own group's members; the order of the list gives the new ranks.
    mine = list(range(rank % 2, size, 2))
    group = comm.split(mine, name="even" if rank % 2 == 0 else "odd")
    assert group is not None  # only for an empty list

    tensor = torch.tensor([float(rank)])
    group.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    print(
        f"rank {rank} is rank {group.get_rank()} of {group.get_size()} in {mine}: "
        f"sum of ranks {tensor.item():g}",
        flush=True,
    )
    group.finalize()
    comm.finalize()


if __name__ == "__main__":
    main()
