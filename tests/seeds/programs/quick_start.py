"""Quick start of the older documentation: one synchronous all_reduce."""

import torch
from torchcomms import ReduceOp, new_comm


def main():
    device = torch.device("cpu")
    torchcomm = new_comm("gloo", device, name="main_comm")
    rank = torchcomm.get_rank()
    world_size = torchcomm.get_size()
    tensor = torch.full((1024,), float(rank + 1), dtype=torch.float32, device=device)
    print(f"rank {rank} of {world_size} before {tensor[0].item()}")
    torchcomm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    print(f"rank {rank} of {world_size} after {tensor[0].item()} {tensor[-1].item()}")
    torchcomm.finalize()


if __name__ == "__main__":
    main()
