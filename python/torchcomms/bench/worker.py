"""One measuring process: `python -m torchcomms.bench.worker`, started by `launch`.

Rank, size and store come from torchrun's variables. The plan and the file descriptor for answers
come from the command line. Answers are JSON lines, each written by one write(), so that ranks may
share the pipe.
"""

from __future__ import annotations

import json
import os
import sys

from torchcomms.bench.measure import run_here
from torchcomms.bench.plan import Plan
from torchcomms.bench.world import World


def main(plan: Plan, answers: int) -> int:
    rank = int(os.environ["RANK"])

    def answer(kind: str, content: str) -> None:
        os.write(answers, (json.dumps([kind, content]) + "\n").encode())

    def progress(label: str) -> None:
        if rank == 0:
            answer("progress", label)

    try:
        with World.of_launcher("torchcomms_bench") as world:
            for point in run_here(plan, world, progress, lambda text: answer("note", text)):
                answer("point", point.to_json())
    except BrokenPipeError:
        return 1  # the launcher has exited
    except Exception as error:
        answer("error", f"rank {rank}: {type(error).__name__}: {error}"[:2000])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Plan.from_json(sys.argv[1]), int(sys.argv[2])))
