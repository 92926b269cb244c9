"""Replicas that torchft restarts: one that was killed comes back and gets the others' parameters.

torchft connects the replicas anew by reconfigure() whenever one comes or goes. Each replica makes
its communicator alone, with size 1 and without a store. Its init handle says where others reach it.

With torchft installed, run a lighthouse, two replicas, and end and start one of them as you like:

    pip install torchft
    torchft_lighthouse --bind '[::]:29510' --min_replicas 2 &
    export TORCHFT_LIGHTHOUSE=http://localhost:29510
    REPLICA=0 python examples/train_torchft.py &
    REPLICA=1 DIES_AT_STEP=3 python examples/train_torchft.py
    REPLICA=1 python examples/train_torchft.py
"""

import hashlib
import os
import signal
from datetime import timedelta

import torch
import torchcomms
from torch.distributed import TCPStore
from torchft import DistributedDataParallel, Manager, Optimizer
from torchft.torchcomms import ProcessGroupTorchComms

STEPS = 8
LIMIT = timedelta(seconds=60)


def main() -> None:
    replica = int(os.environ["REPLICA"])
    dies_at = int(os.environ.get("DIES_AT_STEP", "-1"))

    # Rank and size of this communicator before the first reconfigure(): it is made alone.
    os.environ.update(TORCHCOMM_RANK="0", TORCHCOMM_SIZE="1")
    comm = torchcomms.new_comm(
        "ctran", torch.device("cpu"), name=f"replica {replica}", enable_reconfigure=True
    )

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters())

    def state() -> dict[str, object]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    def load_state(state: dict[str, dict[str, object]]) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    # torchft's own store, for the ranks of one replica: here there is one rank.
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    group = ProcessGroupTorchComms(comm, timeout=LIMIT)
    manager = Manager(
        pg=group,
        min_replica_size=2,
        load_state_dict=load_state,
        state_dict=state,
        replica_id=str(replica),
        rank=0,
        world_size=1,
        store_addr="localhost",
        store_port=store.port,
        hostname="localhost",
        timeout=LIMIT,
    )
    replicated = DistributedDataParallel(manager, model)
    fault_tolerant = Optimizer(manager, optimizer)

    batches = torch.Generator().manual_seed(replica)
    while manager.current_step() < STEPS:
        if manager.current_step() == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        inputs = torch.randn(4, 8, generator=batches)
        fault_tolerant.zero_grad()
        replicated(inputs).square().mean().backward()
        fault_tolerant.step()
        print(f"replica {replica}: step {manager.current_step()} of {STEPS}", flush=True)

    size = comm.get_size()
    manager.shutdown(wait=False)
    group.shutdown()
    parameters = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print(f"replica {replica} of {size}: parameters {hashlib.sha1(parameters).hexdigest()}")


if __name__ == "__main__":
    main()
