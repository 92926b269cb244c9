"""A step of DistributedDataParallel on `ctran` and on torch's own gloo, in turns, in one run.

    torchrun --nproc-per-node 2 benchmarks/ddp_step.py [--seconds 10] [--out FILE]

Both sides train the same small transformer from the same weights on the same rows, each over a
process group of its own, in the same processes. Their losses must agree: to the last bit with two
ranks, whose sum has one order, else up to rounding. A time is that of a turn of a few steps on the
slowest rank; the ratio of the sides is the median of the ratios of turns that follow each other.
The exit status is 1 when losses differ.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the ranks share the cores

import torch
import torch.distributed as dist
import torchcomms  # noqa: F401 (with torch before 2.15 it is what makes "ctran" known)
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchcomms.bench.result import machine

VOCABULARY, WIDTH, LAYERS = 256, 128, 5
BUCKET_KIB = 64
SIDES = ("ctran", "gloo")
TURN_S = 0.25  # about, on the slower side
WARM_UP_STEPS = 3


class Config(NamedTuple):
    """What dominates a step is decided by the rows of a rank's batch."""

    name: str
    sequences: int
    tokens: int  # of a sequence


CONFIGS = (Config("communication", 1, 8), Config("compute", 8, 128))


class Transformer(nn.Module):
    """Predicts the next byte; about a million parameters, no dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
            for _ in range(LAYERS)
        )

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(text)
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden @ self.embedding.weight.t()


class Side:
    """One backend's model, optimizer and place in the data."""

    def __init__(self, backend: str, group: dist.ProcessGroup, config: Config) -> None:
        torch.manual_seed(1)
        self.backend = backend
        self.model = DistributedDataParallel(
            Transformer(), process_group=group, bucket_cap_mb=BUCKET_KIB / 1024
        )
        self.losses: list[float] = []
        self.cpu_ms: list[float] = []  # of a step on this rank, all its threads, by turn
        self._config = config
        self._source = torch.Generator().manual_seed(dist.get_rank())
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self) -> None:
        shape = (self._config.sequences, self._config.tokens + 1)
        text = torch.randint(VOCABULARY, shape, generator=self._source)
        guess = self.model(text[:, :-1])
        loss = nn.functional.cross_entropy(guess.flatten(0, 1), text[:, 1:].flatten())
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self.losses.append(loss.item())

    def turn_ms(self, steps: int) -> float:
        """Of one step, in a turn of `steps`, on the slowest rank."""
        dist.barrier()
        begin, begin_cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            self.step()
        self.cpu_ms.append((time.process_time() - begin_cpu) * 1e3 / steps)
        taken = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
        dist.all_reduce(taken, dist.ReduceOp.MAX)
        return taken.item() * 1e3 / steps


def processor_s() -> tuple[float, float]:
    """Processor time so far: of everything on this machine, and of the ranks alone."""
    user, nice, system, _idle, _iowait, irq, softirq, *_ = (
        int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    )
    own = torch.tensor([time.process_time()], dtype=torch.float64)
    dist.all_reduce(own)
    ticks = user + nice + system + irq + softirq
    return ticks / os.sysconf("SC_CLK_TCK"), own.item()


def agree(ours: Side, theirs: Side, ranks: int) -> bool:
    """True if both sides have learnt the same."""
    mine, others = torch.tensor(ours.losses), torch.tensor(theirs.losses)
    same = torch.equal(mine, others) if ranks == 2 else torch.allclose(mine, others, rtol=1e-3)
    everywhere = torch.tensor([same])
    dist.all_reduce(everywhere, dist.ReduceOp.MIN)
    return bool(everywhere)


def measure(config: Config, groups: dict[str, dist.ProcessGroup], seconds: float) -> list[dict]:
    """A line a side; the same on all ranks, but for the processor time, which is this rank's."""
    ranks = dist.get_world_size()
    sides = [Side(backend, groups[backend], config) for backend in SIDES]
    for side in sides:
        side.turn_ms(WARM_UP_STEPS)
    slower = max(side.turn_ms(WARM_UP_STEPS) for side in sides)
    steps = max(1, round(TURN_S * 1e3 / slower))
    turns = max(5, round(seconds * 1e3 / (2 * steps * slower)))
    times: dict[str, list[float]] = {backend: [] for backend in SIDES}
    begin, (all_before, own_before) = time.perf_counter(), processor_s()
    for turn in range(turns):
        for side in sides if turn % 2 else reversed(sides):
            times[side.backend].append(side.turn_ms(steps))
    all_after, own_after = processor_s()
    elsewhere = (all_after - all_before) - (own_after - own_before)
    ratio = statistics.median(
        theirs / ours for ours, theirs in zip(times["ctran"], times["gloo"], strict=True)
    )
    common = {
        "measure": "ddp_step",
        "config": config.name,
        "ranks": ranks,
        "parameters": sum(p.numel() for p in sides[0].model.parameters()),
        "bucket_kib": BUCKET_KIB,
        "tokens_per_rank": config.sequences * config.tokens,
        "steps": steps * turns,
        "cores_used_by_others": round(elsewhere / (time.perf_counter() - begin), 2),
        "losses_agree": agree(*sides, ranks),
        "ratio": round(ratio, 3),
    }
    return [
        {
            **common,
            "backend": side.backend,
            "step_ms_p50": round(statistics.median(times[side.backend]), 3),
            "step_ms_min": round(min(times[side.backend]), 3),
            "step_ms_max": round(max(times[side.backend]), 3),
            "steps_per_s": round(1e3 / statistics.median(times[side.backend]), 2),
            "cpu_ms_p50": round(statistics.median(side.cpu_ms), 3),
        }
        for side in sides
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=10, help="about, for each configuration")
    parser.add_argument("--out", type=Path, help="append one line a side and configuration here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("ctran")
    groups = {"ctran": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    facts = {**machine("cpu"), "date": datetime.now(timezone.utc).isoformat(timespec="seconds")}
    differ = False
    for config in CONFIGS:
        lines = measure(config, groups, arguments.seconds)
        differ |= not lines[0]["losses_agree"]
        if dist.get_rank() != 0:
            continue
        rates = ", ".join(f"{one['backend']} {one['steps_per_s']:.1f} steps/s" for one in lines)
        losses = "losses agree" if lines[0]["losses_agree"] else "LOSSES DIFFER"
        others = f"others used {lines[0]['cores_used_by_others']} cores"
        print(
            f"{config.name:13}  {rates}: {lines[0]['ratio']:.2f}x  ({losses}; {others})", flush=True
        )
        if arguments.out is not None:
            with arguments.out.open("a") as file:
                file.writelines(json.dumps({**one, **facts}) + "\n" for one in lines)
    dist.destroy_process_group()
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
