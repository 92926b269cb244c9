"""Split by groups and the properties, as the oldest feature summary shows them; four ranks."""

import torch
from torchcomms import ReduceOp, new_comm

comm = new_comm("gloo", torch.device("cpu"), name="parent")
ranks = [0, 1] if comm.get_rank() < 2 else [2, 3]
sub_comm = comm.split(rank_groups=[ranks], name="sub_group", hints=None, timeout=None)

tensor = torch.tensor([float(comm.get_rank())])
sub_comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
print(
    f"rank {comm.get_rank()} sub {sub_comm.get_rank()} of {sub_comm.get_size()} sum {tensor.item()}"
)

rank = comm.get_rank()
size = comm.get_size()
name = comm.get_name()
backend = comm.get_backend()
device = comm.get_device()
options = comm.get_options()
print(f"rank {rank} of {size} {name} {backend} {device} {type(options).__name__}")
sub_comm.finalize()
comm.finalize()
