"""Send, receive and batch as the oldest feature summary shows them."""

import torch
from torchcomms import new_comm

comm = new_comm("gloo", torch.device("cpu"))

if comm.get_rank() == 0:
    tensor = torch.ones(1024)
    comm.send(tensor, dst=1, async_op=False)
else:
    tensor = torch.zeros(1024)
    comm.recv(tensor, src=0, async_op=False)
print(f"rank {comm.get_rank()} message {tensor.sum().item()}")

peer = 1 - comm.get_rank()
tensor1 = torch.full((8,), float(comm.get_rank() + 1))
tensor2 = torch.zeros(8)
batch = comm.batch_op_create()
batch.send(tensor1, dst=peer)
batch.recv(tensor2, src=peer)
work = batch.issue(async_op=True)
work.wait()
print(f"rank {comm.get_rank()} batch {tensor2.tolist()}")
comm.finalize()
