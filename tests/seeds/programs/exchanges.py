"""All-to-all as the oldest feature summary shows it, on four ranks with sizes that agree."""

import torch
from torchcomms import new_comm

comm = new_comm("gloo", torch.device("cpu"))
rank, size = comm.get_rank(), comm.get_size()

input_tensor = torch.arange(1024 * comm.get_size()) + 10000 * rank
output_tensor = torch.empty_like(input_tensor)
comm.all_to_all_single(output_tensor, input_tensor, async_op=False)
print(f"rank {rank} equal {output_tensor[::1024].tolist()}")

input_split_sizes = [100 * (peer + 1) + rank for peer in range(size)]
output_split_sizes = [100 * (rank + 1) + peer for peer in range(size)]
input_tensor = torch.full((sum(input_split_sizes),), float(rank))
output_tensor = torch.empty(sum(output_split_sizes))
comm.all_to_all_v_single(
    output_tensor, input_tensor, output_split_sizes, input_split_sizes, async_op=False
)
received = [
    (part.numel(), part.min().item(), part.max().item())
    for part in output_tensor.split(output_split_sizes)
]
print(f"rank {rank} uneven {received}")
comm.finalize()
