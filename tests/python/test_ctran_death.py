"""A process of a `ctran` communicator is killed: the others say so at once, naming it."""

from __future__ import annotations

import pytest
import torchcomms

from tests.harness.backends import CTRAN_HOSTS
from tests.harness.ports import free_port
from tests.harness.programs import ranks

pytestmark = pytest.mark.skipif(
    not torchcomms.is_backend_built("ctran"), reason="needs backend ctran"
)
PROGRAM = """
    import os, signal, time
    import torch, torchcomms
    from torchcomms import ReduceOp

    comm = torchcomms.new_comm("ctran", torch.device("cpu"), "mortal", hints={hints})
    rank, tensor = comm.get_rank(), torch.ones({numel})
    window = comm.new_window(torch.ones({numel}))

    def compute():
        end = time.monotonic() + 0.02
        while time.monotonic() < end:
            pass

    comm.all_reduce(tensor, ReduceOp.SUM, False)
"""
# What follows either program: rank 1 dies, and the others are told in `call`.
A_DEATH = """
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    for error in range(2):
        try:
            {call}
            raise AssertionError("it went through")
        except torchcomms.PeerFailed as error:
            assert "rank 1" in str(error), error
    took = time.monotonic() - began
    assert took < 5.0, took  # the limit is 600 s
    assert comm.is_aborted()
    comm.finalize()
    print("told")
"""
CALLS = {
    "all_reduce": "comm.all_reduce(tensor, ReduceOp.SUM, False)",
    "async": "comm.all_reduce(tensor, ReduceOp.SUM, True).wait()",
    "recv": "comm.recv(tensor, 1, False)",
    "wait_signal": "window.wait_signal(1, False)",
    "put": "window.put(tensor, 1, 0, False); window.wait_signal(1, False)",
    # Nothing here waits for anybody, or takes long enough to look around.
    "rare": "[(window.put(tensor[:8], 1, 0, False), compute()) for _ in range(150)]",
}


@pytest.mark.parametrize(
    ("call", "transport"),
    [
        ("all_reduce", "tcp"),
        ("async", "shm"),
        ("recv", "shm"),
        ("wait_signal", "tcp"),
        ("wait_signal", "shm"),
        ("put", "tcp"),
        ("put", "shm"),
        ("rare", "shm"),
    ],
)
def test_survivors_are_told_who_died(call, transport):
    hints = {"ctran::transport": transport}
    source = (PROGRAM + A_DEATH).format(hints=hints, numel=100_000, call=CALLS[call])
    first, killed, last = ranks(source, 3, free_port())
    assert killed.code == -9
    for survivor in (first, last):
        assert survivor.code == 0, survivor.err
        assert survivor.out.strip() == "told"


# Each rank is a host, or shares one with the first; kernels are the stand-in's.
ACROSS_HOSTS = """
    import os, signal, time
    import torch, torchcomms
    from torchcomms import ReduceOp

    hosts = {hosts}
    os.environ["TORCHCOMM_CTRAN_HOST_ID"] = hosts[int(os.environ["RANK"])]
    comm = torchcomms.new_comm("ctran", torch.device("cpu"), "mortal")
    assert "rail" in comm.describe()["notes"]["kernels"], comm.describe()["notes"]
    rank, tensor = comm.get_rank(), torch.ones(100_000)
    comm.all_reduce(tensor, ReduceOp.SUM, False)
"""


@pytest.mark.parametrize("hosts", [("a", "b", "c"), ("a", "b", "a"), ("a", "a", "b")])
def test_survivors_on_other_hosts_are_told_who_died(hosts):
    if why := CTRAN_HOSTS.missing():
        pytest.skip(why)
    source = (ACROSS_HOSTS + A_DEATH).format(hosts=hosts, call=CALLS["all_reduce"])
    first, killed, last = ranks(source, 3, free_port(), **CTRAN_HOSTS.environment)
    assert killed.code == -9
    for survivor in (first, last):
        assert survivor.code == 0, survivor.err
        assert survivor.out.strip() == "told"
