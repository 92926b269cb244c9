"""Asynchronous send and receive of the older reference. Argument: the store's path."""

import sys

import torch
import torchcomms

store = torch.distributed.FileStore(sys.argv[1], 2)
device = torch.device("cpu")
comm = torchcomms.new_comm("gloo", device, store=store)
rank = comm.get_rank()
world_size = comm.get_size()
send_tensor = torch.ones(10, device=device) * (rank + 5)
recv_tensor = torch.zeros(10, device=device)
if rank == 0:
    work = comm.send(send_tensor, dst=1, async_op=True)
else:
    work = comm.recv(recv_tensor, src=0, async_op=True)
work.wait()
print(f"rank {rank} of {world_size} has {recv_tensor.tolist()}")
comm.finalize()
