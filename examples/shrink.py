"""A rank is lost, and the others go on without it.

Run it so:

    torchrun --nproc-per-node 3 examples/shrink.py
"""

import os

import torch
from torch.distributed import TCPStore
from torchcomms import PeerFailed, ReduceOp, new_comm


def main() -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(*address, is_master=False)

    # Nothing is connected yet: reconfigure() is told who takes part.
    comm = new_comm(
        "ctran", torch.device("cpu"), name="world", store=store, enable_reconfigure=True
    )
    store.set(f"handle of {rank}", comm.get_init_handle())
    handles = [store.get(f"handle of {other}").decode() for other in range(size)]
    comm.reconfigure(uuid=1, init_handles=handles).wait()

    if rank == 1:
        os._exit(0)  # no farewell: as if the process had been killed

    tensor = torch.ones(4)
    try:
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    except PeerFailed as error:
        lost = error.peer  # this rank's own view; programs with many ranks agree on it first
        del handles[lost]
        comm.reconfigure(uuid=2, init_handles=handles).wait()

    tensor = torch.ones(4)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    print(f"rank {rank} is now rank {comm.get_rank()} of {comm.get_size()}: {tensor.tolist()}")
    comm.finalize()


if __name__ == "__main__":
    main()
