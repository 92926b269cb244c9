"""What communicators ask of a store: no connections of their own, no look-ups of names."""

from __future__ import annotations

import pytest
import torch
from torch.torch_version import TorchVersion

from tests.harness.ports import free_port
from tests.harness.programs import ranks
from tests.harness.shared_objects import shared_object

SWITCH = {"TORCH_DISTRIBUTED_USE_TORCHCOMMS": "1"}
ROUTES = {"ctran": ("ctran", {}), "switch": ("gloo", SWITCH)}

COUNT = """
    import os, re
    def connections(port):
        own = set()
        for fd in os.listdir("/proc/self/fd"):
            try:
                target = os.readlink(f"/proc/self/fd/{fd}")
            except OSError:
                continue
            own.update(re.findall(r"socket:\\[(\\d+)\\]", target))
        found = 0
        for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
            for line in open(table).read().splitlines()[1:]:
                words = line.split()
                found += int(words[2].rpartition(":")[2], 16) == port and words[9] in own
        return found
"""
GROUPS = """
    import ctypes, sys
    import torch, torch.distributed as dist
    lookups = getattr(ctypes.CDLL(None), "slow_names_count", lambda: 0)
    dist.init_process_group({backend!r})
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.barrier()
    before = lookups()
    x = torch.ones(1)
    for i in range({groups}):
        ranks = [[0, 1], [0], [1], list(range(size))][i % 4]
        group = dist.new_group(ranks)
        if rank in ranks:
            x.fill_(1)
            dist.all_reduce(x, group=group)
            assert x.item() == len(ranks)
    port = int(os.environ["MASTER_PORT"])
    print("sockets", connections(port), "lookups", lookups() - before)
    dist.barrier()
    dist.destroy_process_group()
"""
# What c10d prints of a connection that failed.
COMPLAINTS = ("[E", "[W", "timed out", "frame #")


def _routes() -> list[object]:
    marks = pytest.mark.skipif(
        TorchVersion(torch.__version__) < (2, 15), reason="torch before 2.15 has no such switch"
    )
    return [pytest.param("ctran", id="ctran"), pytest.param("switch", id="switch", marks=marks)]


@pytest.mark.parametrize("route", _routes())
def test_groups_open_no_connection_and_look_no_name_up(route):
    backend, variables = ROUTES[route]
    source = COUNT + GROUPS.format(backend=backend, groups=12)
    for finished in ranks(
        source,
        2,
        free_port(),
        LD_PRELOAD=str(shared_object("slow_names")),
        SLOW_NAMES_MS="0",
        **variables,
    ):
        words = finished.expect_success().out.split()
        # Rank 0 serves the store as well; its own connection is the only one that it opened.
        assert int(words[1]) <= 2, finished.out
        assert int(words[3]) == 0, finished.out


@pytest.mark.parametrize("route", _routes())
def test_groups_work_beside_a_name_server_that_takes_longer_than_a_second(route):
    backend, variables = ROUTES[route]
    source = COUNT + GROUPS.format(backend=backend, groups=8)
    for finished in ranks(
        source,
        2,
        free_port(),
        LD_PRELOAD=str(shared_object("slow_names")),
        SLOW_NAMES_MS="1300",
        **variables,
    ):
        finished.expect_success()
        assert not any(word in finished.err for word in COMPLAINTS), finished.err


SPLITS = """
    import torch
    from torchcomms import ReduceOp, new_comm
    comm = new_comm({backend!r}, torch.device("cpu"), name="whole", timeout=60.0)
    for i in range(3):
        part = comm.split(list(range(comm.get_size())), f"part {{i}}")
        x = torch.ones(1)
        part.all_reduce(x, ReduceOp.SUM, False)
        assert x.item() == comm.get_size()
        part.finalize()
    comm.finalize()
"""


@pytest.mark.parametrize("backend", ["gloo", "ctran"])
def test_start_up_and_split_work_beside_a_slow_name_server(backend):
    library = str(shared_object("slow_names"))
    runs = ranks(SPLITS.format(backend=backend), 2, free_port(), LD_PRELOAD=library,
                 SLOW_NAMES_MS="1300")  # fmt: skip
    for finished in runs:
        finished.expect_success()
        assert not any(word in finished.err for word in COMPLAINTS), finished.err


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["gloo", "ctran"])
@pytest.mark.parametrize("at", range(1, 9))
def test_start_up_and_split_work_whichever_lookup_is_slow(backend, at):
    library = str(shared_object("slow_names"))
    runs = ranks(SPLITS.format(backend=backend), 2, free_port(), LD_PRELOAD=library,
                 SLOW_NAMES_MS="3000", SLOW_NAMES_AT=str(at))  # fmt: skip
    for finished in runs:
        finished.expect_success()
        assert not any(word in finished.err for word in COMPLAINTS), finished.err


TOO_SLOW = """
    import os, sys, torch, torchcomms
    try:
        torchcomms.new_comm("gloo", torch.device("cpu"), name="x", timeout=1.0)
    except torchcomms.CommTimeout as error:
        print(error, flush=True)
        os._exit(7)  # the lookups go on
"""


def test_the_error_names_the_name_server():
    library = str(shared_object("slow_names"))
    runs = ranks(TOO_SLOW, 2, free_port(), LD_PRELOAD=library, SLOW_NAMES_MS="20000")
    told = [finished.out for finished in runs if "name server has not answered" in finished.out]
    assert all(finished.code == 7 for finished in runs), runs
    assert told, runs
