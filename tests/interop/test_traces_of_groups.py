"""Who is behind in a group of torch.distributed that is a part of the job, told in its ranks."""

from __future__ import annotations

import pytest
import torchcomms

from tests.harness.ports import free_port
from tests.harness.programs import ranks

PROGRAM = """
    import os, torch, torchcomms, torch.distributed as dist
    from pathlib import Path
    from torchcomms.analyze import analyze, read, to_flight_recorder

    place = {place}
    dist.init_process_group({backend!r}, **place)
    group = dist.new_group([1, 2])
    rank, work = dist.get_rank(), None
    store = dist.distributed_c10d._get_default_store()  # in which nothing is recorded
    if rank == 1:
        dist.send(torch.ones(4), 2, group=group)
        work = dist.all_reduce(torch.ones(4), group=group, async_op=True)
    if rank == 2:
        dist.recv(torch.ones(4), 1, group=group)
    store.set(f"{{rank}} is there", "")
    if rank == 0:
        store.wait(["1 is there", "2 is there"])
        dumps = read([Path({folder!r})])
        verdict = analyze(dumps)
        print(verdict.culprits, verdict.summary)
        for dump in dumps:
            words = [entry["profiling_name"] for entry in to_flight_recorder(dump)["entries"]]
            print(dump.rank, *(word for word in words if "->" in word or "<-" in word))
        store.set("told", "")
    store.wait(["told"])
    if rank == 2:
        dist.all_reduce(torch.ones(4), group=group)
    if work is not None:
        work.wait()
    dist.barrier()
    dist.destroy_process_group()
"""
# As torchrun starts processes, and as torch.multiprocessing does.
LAUNCHED, SPAWNED = "{}", "dict(rank=int(os.environ.pop('RANK')), world_size=3)"


@pytest.mark.parametrize("place", [LAUNCHED, SPAWNED], ids=["launched", "spawned"])
@pytest.mark.parametrize(
    ("backend", "switch"), [("ctran", {}), ("gloo", {"TORCH_DISTRIBUTED_USE_TORCHCOMMS": "1"})]
)
def test_ranks_of_the_job_are_blamed_for_a_part_of_it(backend, switch, place, tmp_path):
    if not torchcomms.is_backend_built(backend):
        pytest.skip(f"needs backend {backend}")
    program = PROGRAM.format(backend=backend, folder=str(tmp_path), place=place)
    first, *_ = ranks(program, 3, free_port(), TORCHCOMM_RECORDER_DIR=str(tmp_path), **switch)
    told, *messages = first.expect_success().out.splitlines()
    assert told.startswith("(2,) rank 2 has not entered all_reduce 1 of ")
    assert messages == ["0", f"1 {backend}:send 0->1", f"2 {backend}:recv 1<-0"]
