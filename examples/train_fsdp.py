"""FSDP2 on a communicator: every process keeps a share of each parameter and optimizer state.

    torchrun --nproc-per-node 2 examples/train_fsdp.py

A layer's parameters are gathered when it is needed, and its gradients are reduce-scattered. In the
end the weights are gathered, and compared with those of the same training in one process.
"""

import copy

import torch
import torch.distributed as dist
import torchcomms
from torch import nn
from torch.distributed.fsdp import fully_shard
from torchcomms.device_mesh import init_device_mesh

STEPS = 20
ROWS = 32  # of a batch


def train(model: nn.Module, rank: int, size: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    source = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        rows = torch.randn(ROWS, 16, generator=source)[rank::size]
        loss = (model(rows) - rows.sum(dim=1, keepdim=True).tanh()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main() -> None:
    torch.set_num_threads(1)  # the ranks share the cores
    comm = torchcomms.new_comm("ctran", torch.device("cpu"), name="train")
    rank, size = comm.get_rank(), comm.get_size()
    mesh = init_device_mesh((comm,), ("shard",))

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
    )
    alone = copy.deepcopy(model)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)

    kept = sum(p.to_local().numel() for p in model.parameters())
    whole = sum(p.numel() for p in model.parameters())
    train(model, rank, size)
    train(alone, 0, 1)
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.full_tensor(), theirs, rtol=1e-4, atol=1e-5)
    print(
        f"rank {rank} keeps {kept} of {whole} parameters; trained as one process trains",
        flush=True,
    )
    dist.destroy_process_group()  # finalizes the communicator


if __name__ == "__main__":
    main()
