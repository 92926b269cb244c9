"""Collectives as the oldest feature summary shows them: no names, both modes, overlapped works."""

import torch
from torchcomms import ReduceOp, new_comm

comm = new_comm("gloo", torch.device("cpu"))
rank, size = comm.get_rank(), comm.get_size()

tensor = torch.ones(1024) * rank
comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
print(f"rank {rank} sync {tensor[0].item()}")

tensor = torch.ones(1024) * rank
work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)
work.wait()
print(f"rank {rank} async {tensor[0].item()} {work.is_completed()}")

tensor = torch.ones(1024) * (rank + 1)
tensor_list = [torch.empty_like(tensor) for _ in range(comm.get_size())]
comm.all_gather(tensor_list, tensor, async_op=False)
print(f"rank {rank} list {[t.sum().item() for t in tensor_list]}")

output = torch.empty(comm.get_size() * 1024)
comm.all_gather_single(output, tensor, async_op=False)
print(f"rank {rank} single {output.view(size, -1).sum(1).tolist()}")

tensor1, tensor2, tensor3 = (torch.full((4,), float(rank + i)) for i in range(3))
output_list = [torch.empty_like(tensor3) for _ in range(size)]
work1 = comm.all_reduce(tensor1, ReduceOp.SUM, async_op=True)
work2 = comm.broadcast(tensor2, root=0, async_op=True)
work3 = comm.all_gather(output_list, tensor3, async_op=True)
work1.wait()
work2.wait()
work3.wait()
print(
    f"rank {rank} overlapped {tensor1[0].item()} {tensor2[0].item()} "
    f"{[t[0].item() for t in output_list]}"
)
comm.finalize()
