"""DistributedDataParallel on a communicator, of any backend that sums: also one of your own.

    torchrun --nproc-per-node 2 examples/train_ddp.py [--backend ctran]

Every process computes the gradients of its rows of each batch; DDP averages them with all_reduce
while the backward pass still runs. All processes end with the same weights, bit by bit.
"""

import argparse

import torch
import torch.distributed as dist
import torchcomms
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchcomms.device_mesh import init_device_mesh

STEPS = 40
ROWS = 64  # of a batch


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of the plane, and whether they lie inside the unit circle: the same for everyone."""
    points = torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(step))
    return points, (points.norm(dim=1) < 1).long()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--backend", default="ctran", help="of torchcomms, for CPU tensors")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the ranks share the cores

    comm = torchcomms.new_comm(arguments.backend, torch.device("cpu"), name="train")
    rank, size = comm.get_rank(), comm.get_size()
    mesh = init_device_mesh((comm,), ("dp",))

    torch.manual_seed(rank)  # different on purpose: DDP starts with rank 0's weights everywhere
    net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 2))
    model = DistributedDataParallel(net, device_mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for step in range(STEPS):
        points, inside = (part[rank::size] for part in batch(step))
        loss = nn.functional.cross_entropy(model(points), inside)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    mine = torch.cat([p.detach().flatten() for p in net.parameters()])
    everyones = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(everyones, mine)
    same = all(torch.equal(other, mine) for other in everyones)
    loss_is = "lower" if sum(losses[-5:]) < 0.8 * sum(losses[:5]) else "AS HIGH"
    weights_are = "those of every rank" if same else "DIFFERENT"
    print(
        f"rank {rank} of {size} on {comm.get_backend()}: "
        f"the loss is {loss_is}, the weights are {weights_are}",
        flush=True,
    )
    dist.destroy_process_group()  # finalizes the communicator


if __name__ == "__main__":
    main()
