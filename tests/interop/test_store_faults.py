"""A fault of the store's connection at each request of start-up, split, reconfigure and end."""

from __future__ import annotations

import pytest

from tests.harness.ports import free_port
from tests.harness.programs import ranks
from tests.harness.store_proxy import KINDS

# Both ranks make a communicator over a store that a proxy of their own process stands before. The
# proxy of one of them fails at the first request, in the next round STRIDE requests later, and so
# on, until a round ends before the fault. `control` does not pass the proxies.
PROGRAM = """
    import os, sys, time
    from datetime import timedelta
    import torch, torchcomms
    from torch.distributed import TCPStore
    from tests.harness.store_proxy import StoreProxy

    BACKEND, SCENARIO, KIND, STRIDE = {backend!r}, {scenario!r}, {kind!r}, {stride}
    # A rank whose peer has failed waits for its limit.
    LIMIT = 30.0 if KIND == "slow" else 0.3
    # Three seconds to notice that the store is silent and to tell it why, the rest for a busy host.
    SLACK = 8.0
    RANK = int(os.environ["RANK"])
    SERVER = int(os.environ["MASTER_PORT"])
    control = TCPStore("127.0.0.1", SERVER, is_master=RANK == 0, timeout=timedelta(seconds=100))

    def meet(key):
        control.set(f"{{key}}/{{RANK}}", "")
        control.wait([f"{{key}}/{{1 - RANK}}"])

    def works(comm):
        x = torch.ones(3)
        comm.all_reduce(x, torchcomms.ReduceOp.SUM, False)
        assert x.tolist() == [2.0] * 3

    class Steps:
        '''Runs the steps of a communicator's life and measures each.'''
        def __init__(self):
            self.comm = self.slowest = None
            self.took = 0.0
        def run(self, name, call, *arguments, **named):
            begin = time.monotonic()
            try:
                return call(*arguments, **named)
            finally:
                took = time.monotonic() - begin
                if took > self.took:
                    self.took, self.slowest = took, name

    def new_comm(steps, name, store, **options):
        steps.comm = steps.run("new_comm", torchcomms.new_comm, BACKEND, torch.device("cpu"), name,
                               store=store, timeout=timedelta(seconds=LIMIT), **options)
        return steps.comm

    def split(steps, name, store, **options):
        comm = new_comm(steps, name, store, **options)
        part = steps.run("split", comm.split, [0, 1], "part")
        steps.run("all_reduce", works, part)
        steps.run("finalize of the part", part.finalize)
        steps.run("finalize", comm.finalize)

    def persistent(steps, name, store):
        split(steps, name, store, hints={{"persistent_store": "true"}})

    def reconfigure(steps, name, store):
        # All meet at the address in the first handle: the proxy of rank 0.
        comm = new_comm(steps, name, store, enable_reconfigure=True)
        control.set(f"{{name}}/handle/{{RANK}}", comm.get_init_handle())
        handles = [control.get(f"{{name}}/handle/{{rank}}").decode() for rank in range(2)]
        limit = timedelta(seconds=LIMIT)
        work = steps.run("reconfigure", comm.reconfigure, 1, handles, timeout=limit)
        steps.run("its wait", work.wait)
        steps.run("all_reduce", works, comm)
        steps.run("finalize", comm.finalize)

    run = {{"split": split, "persistent": persistent, "reconfigure": reconfigure}}[SCENARIO]

    def round_of(victim, request):
        name = f"{{victim}}.{{request}}"
        proxy = StoreProxy(SERVER)
        store = TCPStore("127.0.0.1", proxy.port, is_master=False)
        meet(f"{{name}}/begin")
        if RANK == victim:
            proxy.arm(KIND, request)
        steps, error = Steps(), None
        try:
            run(steps, name, store)
        except (torchcomms.PeerFailed, torchcomms.CommTimeout) as caught:
            error = caught
            if steps.comm is not None and steps.comm.is_abort_supported():
                steps.comm.abort()
        text = f"{{type(error).__name__ if error else 'works'}}: {{error or ''}}"
        what = f"{{SCENARIO}}, {{KIND}} at request {{request}} of rank {{victim}}: {{text}}"
        print(f"{{steps.took:.2f}} s in {{steps.slowest}}, {{what}}", flush=True)
        assert steps.took < LIMIT + SLACK, what
        assert error is None or "store" in text or "rank" in text, what
        assert KIND != "slow" or error is None, what
        control.set(f"{{name}}/begun/{{RANK}}", str(int(proxy.begun)))
        meet(f"{{name}}/end")
        proxy.close()
        return control.get(f"{{name}}/begun/{{victim}}") == b"1"

    for victim in range(1 if SCENARIO == "reconfigure" else 2):
        request = 1
        while round_of(victim, request):
            request += STRIDE
            assert request < 500, "the fault always begins"
        assert request > 1, "the fault never begins"
"""


def run(backend: str, scenario: str, kind: str, stride: int = 1) -> None:
    source = PROGRAM.format(backend=backend, scenario=scenario, kind=kind, stride=stride)
    # c10d prints a stack for every connection that ends.
    for finished in ranks(source, 2, free_port(), deadline=300.0, TORCH_CPP_LOG_LEVEL="ERROR"):
        finished.expect_success()


@pytest.mark.parametrize("kind", ["cut", "slow"])
def test_a_fault_at_every_third_request_is_survived_or_raised(kind):
    run("ctran", "persistent", kind, stride=3)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["gloo", "ctran"])
@pytest.mark.parametrize("scenario", ["split", "persistent", "reconfigure"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_way_to_meet_survives_or_raises_a_fault_at_any_request(backend, scenario, kind):
    run(backend, scenario, kind)
