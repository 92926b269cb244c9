"""Asynchronous example of the older documentation: start, do something else, wait."""

import torch
from torchcomms import ReduceOp, new_comm

device = torch.device("cpu")
torchcomm = new_comm("gloo", device, name="main_comm")
rank = torchcomm.get_rank()
tensor = torch.full((1024,), float(rank + 1), dtype=torch.float32, device=device)
work = torchcomm.all_reduce(tensor, ReduceOp.SUM, async_op=True)
print(f"rank {rank} does other work")
work.wait()
print(f"rank {rank} completed {work.is_completed()} {tensor.sum().item()}")
torchcomm.finalize()
