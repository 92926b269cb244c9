"""Trains a small model in every parallel way of torch.distributed; knows nothing of torchcomms.

    train_every_way.py BACKEND FOLDER DEVICE [WAY,WAY... [MODULE TO IMPORT FIRST]]

Writes what each way gives, or why it gave nothing, as FOLDER/RANK.pt. Without names of ways it
trains in all of them.
"""

import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

SMALL_BUCKETS_MB = 0.0005


def kind() -> str:
    """Of the device that everything is on."""
    return torch.get_default_device().type


def net() -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)
    )


def batches(rank: int, size: int, steps: int = 6) -> Iterator[torch.Tensor]:
    generator = torch.Generator(torch.get_default_device()).manual_seed(3)
    for _ in range(steps):
        yield torch.randn(4 * size, 8, generator=generator)[rank::size]


def trained(model: Any, rank: int, size: int) -> torch.Tensor:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for data in batches(rank, size):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
    return weights(model)


def weights(model: Any) -> torch.Tensor:
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return torch.cat([p.detach().flatten() for p in whole])


def ddp(rank: int, size: int, **options: bool) -> torch.Tensor:
    model = DistributedDataParallel(net(), bucket_cap_mb=SMALL_BUCKETS_MB, **options)
    return trained(model, rank, size)


def ddp_static_graph(rank: int, size: int) -> torch.Tensor:
    return ddp(rank, size, static_graph=True)


def ddp_unused_parameters(rank: int, size: int) -> torch.Tensor:
    return ddp(rank, size, find_unused_parameters=True)


def ddp_bf16_hook(rank: int, size: int) -> torch.Tensor:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    model = DistributedDataParallel(net(), bucket_cap_mb=SMALL_BUCKETS_MB)
    model.register_comm_hook(None, bf16_compress_hook)
    return trained(model, rank, size)


def fsdp(rank: int, size: int) -> torch.Tensor:
    from torch.distributed.fsdp import fully_shard

    model, mesh = net(), init_device_mesh(kind(), (size,))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return trained(model, rank, size)


def tensor_parallel(_rank: int, size: int) -> torch.Tensor:
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return trained(parallelize_module(net(), init_device_mesh(kind(), (size,)), plan), 0, 1)


def two_dimensions(_rank: int, size: int) -> torch.Tensor:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh(kind(), (size // 2, 2), mesh_dim_names=("data", "tensor"))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(net(), mesh["tensor"], plan)
    fully_shard(model, mesh=mesh["data"])
    return trained(model, mesh["data"].get_local_rank(), size // 2)


def pipeline(rank: int, size: int) -> torch.Tensor:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    torch.manual_seed(11 + rank)
    # Each stage has parameters: one without may fail in torch, and the others then wait for it.
    part = nn.Sequential(nn.Linear(8, 4 if rank == size - 1 else 8), nn.Tanh())
    stage = PipelineStage(part, rank, size, torch.get_default_device())
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
    for data in batches(0, 2, steps=4):
        if rank == 0:
            schedule.step(data)
        else:
            schedule.step(target=torch.zeros(len(data), 4))
        optimizer.step()
        optimizer.zero_grad()
    parts: list[Any] = [None] * size
    dist.all_gather_object(parts, weights(part))
    return torch.cat(parts)


def checkpoint(rank: int, size: int) -> torch.Tensor:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import fully_shard

    model = net()
    fully_shard(model, mesh=init_device_mesh(kind(), (size,)))
    before = weights(model)
    state = {"model": model.state_dict()}
    with tempfile.TemporaryDirectory() as own:
        folder = [own]
        dist.broadcast_object_list(folder, 0)
        dcp.save(state, checkpoint_id=folder[0])
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        dcp.load(state, checkpoint_id=folder[0])
        dist.barrier()
    model.load_state_dict(state["model"])
    after = weights(model)
    assert torch.equal(before, after), "what was loaded is not what was saved"
    return after


def context_parallel(_rank: int, size: int) -> torch.Tensor:
    from torch.distributed.tensor import experimental
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.manual_seed(5)
    query, key, value = (torch.randn(1, 2, 16 * size, 8) for _ in range(3))
    mesh = init_device_mesh(kind(), (size,))
    buffers, dims = (query, key, value), (2, 2, 2)
    with (
        experimental.context_parallel(mesh, buffers=buffers, buffer_seq_dims=dims),
        sdpa_kernel(SDPBackend.FLASH_ATTENTION),
    ):
        out = nn.functional.scaled_dot_product_attention(query, key, value)
    return out.detach().flatten()


def objects_and_subgroups(rank: int, size: int) -> torch.Tensor:
    got: list[Any] = [None] * size
    dist.all_gather_object(got, {"rank": rank, "tensor": torch.ones(2) * rank})
    assert [g["rank"] for g in got] == list(range(size)), got
    letters: list[Any] = [None]
    dist.scatter_object_list(letters, [f"to {r}" for r in range(size)] if rank == 0 else None, 0)
    assert letters == [f"to {rank}"], letters
    pair, _ = dist.new_subgroups(2)
    total = torch.ones(1) * rank
    dist.all_reduce(total, group=pair)
    partner = rank ^ 1
    mail = torch.full((3,), float(rank)), torch.empty(3)
    for work in dist.batch_isend_irecv([
        dist.P2POp(dist.isend, mail[0], partner), dist.P2POp(dist.irecv, mail[1], partner),
    ]):  # fmt: skip
        work.wait()
    return torch.cat([total, mail[1]])


WAYS = (
    ddp, ddp_static_graph, ddp_unused_parameters, ddp_bf16_hook, fsdp, tensor_parallel,
    two_dimensions, pipeline, checkpoint, context_parallel, objects_and_subgroups,
)  # fmt: skip


def main(backend: str, folder: str, device: str, names: str = "", *modules: str) -> None:
    for module in modules:
        importlib.import_module(module)
    if device != "cpu":
        torch.accelerator.set_device_index(int(os.environ["RANK"]))
        torch.set_default_device(torch.accelerator.current_accelerator())
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    results: dict[str, torch.Tensor | str] = {}
    chosen = names.split(",") if names else [way.__name__ for way in WAYS]
    for way in (way for way in WAYS if way.__name__ in chosen):
        print(way.__name__, file=sys.stderr, flush=True)  # where a run that hangs is
        try:
            results[way.__name__] = way(rank, size)
        except Exception:  # what one way lacks must not hide the others
            results[way.__name__] = traceback.format_exc()
            print(results[way.__name__], file=sys.stderr, flush=True)
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
