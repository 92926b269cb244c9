"""Programs written for the first generation of this API run unchanged.

    torchrun --nproc-per-node 2 examples/old_api.py

Shown here: a communicator without a name, the old positional order, an options object, and groups
of ranks for a split. `quickstart.py` is how one would write it today.
"""

from datetime import timedelta

import torch
from torchcomms import CommOptions, ReduceOp, new_comm

CPU = torch.device("cpu")


def main() -> None:
    unnamed = new_comm("gloo", CPU)
    # backend, device, abort_process_on_timeout_or_error, timeout
    old_order = new_comm("gloo", CPU, False, timedelta(seconds=60))
    options = CommOptions()
    options.timeout = timedelta(seconds=60)
    with_options = new_comm("gloo", CPU, name="with_options", options=options)

    rank, size = unnamed.get_rank(), unnamed.get_size()
    results = []
    for comm in (unnamed, old_order, with_options):
        tensor = torch.tensor([float(rank + 1)])
        comm.all_reduce(tensor, ReduceOp.PREMUL_SUM(2.0), async_op=False)
        results.append(tensor.item())
    print(f"rank {rank}: twice the sum is {results}", flush=True)

    # The group that contains this rank is chosen; ranks of no group get None.
    pairs = [[r, r + 1] for r in range(0, size - 1, 2)]
    group = unnamed.split(rank_groups=pairs, name="pairs")
    if group is not None:
        group.barrier(async_op=False)
        print(f"rank {rank}: {group.get_size()} in its pair", flush=True)
        group.finalize()
    for comm in (unnamed, old_order, with_options):
        comm.finalize()


if __name__ == "__main__":
    main()
