"""Tensor parallelism on a communicator: the matrices of a block are split over the processes.

    torchrun --nproc-per-node 2 examples/train_tensor_parallel.py

The first matrix is split by columns, the second by rows, so that one all_reduce a pass is enough.
All processes see the same rows. The result is compared with the same training of whole matrices.
"""

import copy

import torch
import torch.distributed as dist
import torchcomms
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torchcomms.device_mesh import init_device_mesh

STEPS = 20
WIDTH, INNER = 32, 128


def train(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    source = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        rows = torch.randn(16, WIDTH, generator=source)
        loss = (model(rows) - rows.flip(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main() -> None:
    torch.set_num_threads(1)  # the ranks share the cores
    comm = torchcomms.new_comm("ctran", torch.device("cpu"), name="train")
    rank = comm.get_rank()
    mesh = init_device_mesh((comm,), ("tensor",))

    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(WIDTH, INNER), nn.GELU(), nn.Linear(INNER, WIDTH))
    alone = copy.deepcopy(block)
    split = parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    columns = split.get_submodule("0").weight.to_local().shape[0]

    train(split)
    train(alone)
    for ours, theirs in zip(split.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.full_tensor(), theirs, rtol=1e-4, atol=1e-5)
    print(
        f"rank {rank} has {columns} of {INNER} inner features; trained as one process trains",
        flush=True,
    )
    dist.destroy_process_group()  # finalizes the communicator


if __name__ == "__main__":
    main()
