"""Basic usage of the older reference: a FileStore, and no name. Argument: the store's path."""

import sys

import torch
import torchcomms

store = torch.distributed.FileStore(sys.argv[1], 2)
device = torch.device("cpu")
comm = torchcomms.new_comm("gloo", device, store=store)
rank = comm.get_rank()
world_size = comm.get_size()
tensor = torch.ones(10, device=device) * rank
comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=False)
print(f"rank {rank} of {world_size} has {tensor.tolist()}")
comm.finalize()
