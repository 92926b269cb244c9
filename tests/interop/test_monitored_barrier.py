"""Who does not come to a monitored barrier is named, and nobody waits in vain for the rest."""

from __future__ import annotations

import pytest
import torchcomms

from tests.harness.ports import free_port
from tests.harness.programs import ranks

PROGRAM = """
    import torch, torchcomms
    import torch.distributed as dist
    from datetime import timedelta
    from torchcomms._comms import _BackendWrapper

    comm = torchcomms.new_comm("{backend}", torch.device("cpu"), "watched")
    rank, size = comm.get_rank(), comm.get_size()
    store = dist.TCPStore("127.0.0.1", {port}, size, is_master=rank == 0)
    group = dist.ProcessGroup(store, rank, size)
    custom = dist.ProcessGroup.BackendType.CUSTOM
    group._register_backend(torch.device("cpu"), custom, _BackendWrapper(comm))
    group._set_default_backend(custom)
    group.monitored_barrier(timedelta(seconds=60))
    error = "came"
    if rank not in {absent}:
        try:
            group.monitored_barrier(timedelta(milliseconds={limit_ms}), {all})
        except torchcomms.CommError as late:
            error = str(late)
    # Nobody leaves before everybody has seen it.
    store.set(str(rank), "")
    store.wait([str(r) for r in range(size)])
    print(error)
"""


BESIDE = """
    import torch, torchcomms
    import torch.distributed as dist
    from torchcomms._comms import _BackendWrapper

    comm = torchcomms.new_comm("{backend}", torch.device("cpu"), "beside")
    group = dist.ProcessGroup(dist.HashStore(), comm.get_rank(), comm.get_size())
    custom = dist.ProcessGroup.BackendType.CUSTOM
    group._register_backend(torch.device("cpu"), custom, _BackendWrapper(comm))
    group._set_default_backend(custom)
    # Of the size and dtype of what the barrier itself sends.
    sent, got = torch.tensor([42]), torch.tensor([0])
    if comm.get_rank() == 1:
        before = group.send([sent], 0, 0)
        group.monitored_barrier()
        before.wait()
        group.monitored_barrier()
        group.send([sent + 1], 0, 0).wait()
    else:
        group.monitored_barrier()
        group.recv([got], 1, 0).wait()
        print(got.item())
        across = group.recv([got], 1, 0)
        group.monitored_barrier()
        across.wait()
        print(got.item())
    for largest in (2**31 - 2, 2**31 - 1):
        try:
            group.send([sent], 0, largest) if comm.get_rank() else group.recv([got], 1, largest)
        except torchcomms.InvalidArgument as error:
            print("refused" if "allowed is 0 to 2147483646" in str(error) else error)
    group.barrier().wait()
"""


@pytest.mark.parametrize("backend", ["gloo", "ctran"])
def test_messages_of_the_program_are_not_its_own(backend):
    if not torchcomms.is_backend_built(backend):
        pytest.skip(f"needs backend {backend}")
    outs = [
        r.expect_success().out.split()
        for r in ranks(BESIDE.format(backend=backend), 2, free_port())
    ]
    assert outs == [["42", "43", "refused"], ["refused"]]


@pytest.mark.parametrize("backend", ["gloo", "ctran"])
@pytest.mark.parametrize(
    ("absent", "every", "limit_ms", "wanted"),
    [
        ({1}, False, 1000, "Rank 1 failed to pass monitoredBarrier in 1000 ms"),
        ({1, 2}, False, 1000, "Rank 1 failed to pass monitoredBarrier in 1000 ms"),
        ({1, 2}, True, 1000, "Ranks 1, 2 failed to pass monitoredBarrier in 1000 ms"),
        ({1}, True, 1000, "Ranks 1 failed to pass monitoredBarrier in 1000 ms"),
        ({1, 2, 3}, True, 0, "Rank 0 timed out in monitoredBarrier after 0 ms"),
    ],
)
def test_the_absent_are_named(backend, absent, every, limit_ms, wanted):
    if not torchcomms.is_backend_built(backend):
        pytest.skip(f"needs backend {backend}")
    program = PROGRAM.format(
        backend=backend, port=free_port(), absent=absent, all=every, limit_ms=limit_ms
    )
    outs = [finished.expect_success().out for finished in ranks(program, 4, free_port())]
    assert wanted in outs[0]
    for rank in range(1, 4):
        reached = f"Rank {rank} successfully reached monitoredBarrier, but received errors"
        assert (reached in outs[rank]) == (rank not in absent)


OF_TORCH = """
    import torch.distributed as dist
    from datetime import timedelta

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    # The first one connects the ranks, which may take longer than the limit of the second.
    dist.monitored_barrier(timeout=timedelta(seconds=60))
    error = "came"
    if rank not in {absent}:
        try:
            dist.monitored_barrier(
                timeout=timedelta(milliseconds={limit_ms}), wait_all_ranks={all}
            )
        except RuntimeError as late:
            error = str(late)
    store = dist.distributed_c10d._get_default_store()
    store.set(f"done {{rank}}", "")
    store.wait([f"done {{r}}" for r in range(size)])
    print(error)
"""


def through(text: str, end: str) -> str:
    """The text up to and with `end`."""
    assert end in text, text
    return text[: text.index(end) + len(end)]


@pytest.mark.parametrize(("absent", "every"), [({1}, False), ({1}, True), ({1, 2}, True)])
def test_the_words_are_those_of_torchs_own_group(absent, every):
    """Programs that parse the error of torch's Gloo group find the same sentences in ours."""
    outs = []
    for program in (PROGRAM, OF_TORCH):
        program = program.format(
            backend="ctran", port=free_port(), absent=absent, all=every, limit_ms=1000
        )
        outs.append([one.expect_success().out for one in ranks(program, 4, free_port())])
    ours, of_torch = outs
    assert through(of_torch[0], "1000 ms") in ours[0]
    assert through(of_torch[3], "from rank 0.") in ours[3]
