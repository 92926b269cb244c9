"""What a training gives on a communicator, and on torch's own gloo."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
import torchcomms
from torchcomms.device_mesh import init_device_mesh


def expect_the_weights_of_gloo(
    comm: torchcomms.TorchComm, trained: Callable[..., torch.Tensor], port: int
) -> None:
    """`trained(rank, size, **where)`: the weights, of DistributedDataParallel(model, **where). The
    communicator ends here; gloo's ranks meet at `port`."""
    rank, size = comm.get_rank(), comm.get_size()
    ours = trained(rank, size, device_mesh=init_device_mesh((comm,), ("dp",)))
    everyones = [torch.empty_like(ours) for _ in range(size)]
    dist.all_gather(everyones, ours)
    assert all(torch.equal(other, ours) for other in everyones), "the ranks differ"
    dist.destroy_process_group()

    store = dist.TCPStore("127.0.0.1", port, size, is_master=rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    theirs = trained(rank, size)
    dist.destroy_process_group()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert not torch.equal(ours, torch.zeros_like(ours))
    print("equal")
