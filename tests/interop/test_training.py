"""DDP on a mesh of ours trains to the weights that torch's own gloo gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torchcomms

from tests.harness.ports import free_port
from tests.harness.programs import ranks

PROGRAMS = Path(__file__).parent / "programs"
PROGRAM = """
    import sys
    sys.path.insert(0, {programs!r})
    import torch, torchcomms
    from as_gloo_trains import expect_the_weights_of_gloo
    from torch.nn.parallel import DistributedDataParallel

    def trained(rank, size, **where):
        torch.manual_seed(7)
        model = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)
        )
        model = DistributedDataParallel(model, bucket_cap_mb=0.0005, **where)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        generator = torch.Generator().manual_seed(3)
        for step in range(8):
            data = torch.randn(4 * size, 6, generator=generator)[rank::size]
            loss = model(data).square().mean()
            if step % 3 == 2:
                with model.no_sync():
                    loss.backward()
            else:
                loss.backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    comm = torchcomms.new_comm("{backend}", torch.device("cpu"), "train")
    expect_the_weights_of_gloo(comm, trained, {port})
"""


@pytest.mark.parametrize(("backend", "size"), [("gloo", 2), ("ctran", 2), ("ctran", 4)])
def test_ddp_trains_to_the_same_weights(backend, size):
    if not torchcomms.is_backend_built(backend):
        pytest.skip(f"needs backend {backend}")
    program = PROGRAM.format(backend=backend, port=free_port(), programs=str(PROGRAMS))
    for finished in ranks(program, size, free_port()):
        assert finished.expect_success().out.strip().endswith("equal")


LOST = """
    import os, torch, torchcomms
    from torchcomms.device_mesh import init_device_mesh

    comm = torchcomms.new_comm("{backend}", torch.device("cpu"), "train", timeout=30.0)
    mesh = init_device_mesh((comm,), ("dp",))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2), device_mesh=mesh)
    loss = model(torch.randn(8, 4)).sum()
    if comm.get_rank() == 1:
        os._exit(0)
    try:
        loss.backward()
    except torchcomms.PeerFailed as error:
        assert (error.op, error.comm, error.rank, error.peer) == ("all_reduce", "train", 0, 1)
        assert error.why in str(error)
        print("typed", flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize("backend", ["gloo", "ctran"])
def test_what_ddps_backward_raises_has_its_type(backend):
    if not torchcomms.is_backend_built(backend):
        pytest.skip(f"needs backend {backend}")
    first, _ = ranks(LOST.format(backend=backend), 2, free_port())
    assert first.expect_success().out.strip().endswith("typed")
