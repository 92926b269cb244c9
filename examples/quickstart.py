"""The smallest program: every rank contributes a tensor, every rank gets the sum.

Run it so:

    torchrun --nproc-per-node 2 examples/quickstart.py
"""

import torch
from torchcomms import ReduceOp, new_comm


def main() -> None:
    comm = new_comm("gloo", torch.device("cpu"), name="main_comm")
    rank, size = comm.get_rank(), comm.get_size()

    tensor = torch.full((1024,), float(rank + 1))
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)

    print(f"rank {rank} of {size}: every element is {tensor[0].item():g}", flush=True)
    comm.finalize()


if __name__ == "__main__":
    main()
