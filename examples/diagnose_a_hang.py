"""A job that hangs, and says why: the ranks wait for rank 1, which looks at what they recorded.

Run it so:

    torchrun --nproc-per-node 3 examples/diagnose_a_hang.py

Of a job that does not look at itself, `torchcomms trace` says the same, while it hangs and after it
was killed. Nothing has to be set before.
"""

import time
from pathlib import Path

import torch
import torchcomms
from torchcomms import ReduceOp, analyze, events

LIMIT_S = 30.0


def explain(job: Path, waiting: int) -> str:
    """The verdict over the records of the job, as soon as so many ranks wait."""
    limit = time.monotonic() + LIMIT_S
    while True:
        verdict = analyze.analyze(analyze.read([job]))
        found = verdict.decisive
        if (found and len(found.waiting) == waiting) or time.monotonic() > limit:
            return verdict.summary
        time.sleep(0.01)


def main() -> None:
    comm = torchcomms.new_comm("gloo", torch.device("cpu"), name="training")
    rank = comm.get_rank()
    losses = torch.ones(4)
    for _ in range(2):
        comm.all_reduce(losses, ReduceOp.SUM, False)

    if rank == 1:  # it has forgotten the step that comes now
        record = events.file()
        assert record is not None, "TORCHCOMM_RECORDER_DIR is off"
        print(f"rank {rank}: {explain(Path(record).parent, comm.get_size() - 1)}")
    comm.all_reduce(losses, ReduceOp.SUM, False)
    print(f"rank {rank}: the sums are {losses[0]:g}")
    comm.finalize()


if __name__ == "__main__":
    main()
