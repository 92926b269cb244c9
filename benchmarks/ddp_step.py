"""A step of DistributedDataParallel on `ctran` and on torch's own gloo, in turns, in one run.

    torchrun --nproc-per-node 2 benchmarks/ddp_step.py [--seconds 10] [--beside 2] [--out FILE]

Both sides train the same small transformer from the same weights on the same rows, each over a
process group of its own, in the same processes. Their losses must agree: to the last bit with two
ranks, whose sum has one order, else up to rounding. A time is that of a turn of a few steps on the
slowest rank; the ratio of the sides is the median of the ratios of turns that follow each other.
`--beside N` measures beside N processes that do nothing but compute, one bound to each core.
The exit status is 1 when losses differ.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
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


class BusyProcesses:
    """Processes that do nothing but compute, each bound to one core. They end with this one."""

    _PROGRAM = (
        "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n for _ in range(10**5): pass"
    )

    def __init__(self, count: int) -> None:
        cores = sorted(os.sched_getaffinity(0))
        command = [sys.executable, "-S", "-c", self._PROGRAM, str(os.getpid())]
        # In sessions of their own, as the ranks are: the system may share cores among sessions.
        self._processes = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
        for number, process in enumerate(self._processes):
            os.sched_setaffinity(process.pid, {cores[number % len(cores)]})

    def processor_s(self) -> float:
        """Processor time that they have had so far."""
        ticks = 0
        for process in self._processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])  # utime and stime: proc(5)
        return ticks / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def agree(ours: Side, theirs: Side, ranks: int) -> bool:
    """True if both sides have learnt the same."""
    first, second = torch.tensor(ours.losses), torch.tensor(theirs.losses)
    same = torch.equal(first, second) if ranks == 2 else torch.allclose(first, second, rtol=1e-3)
    everywhere = torch.tensor([same])
    dist.all_reduce(everywhere, dist.ReduceOp.MIN)
    return bool(everywhere)


def measure(
    config: Config, groups: dict[str, dist.ProcessGroup], seconds: float, busy: BusyProcesses
) -> list[dict]:
    """A line a side; the same on all ranks, but for the processor times, which are this rank's."""
    ranks = dist.get_world_size()
    sides = [Side(backend, groups[backend], config) for backend in SIDES]
    for side in sides:
        side.turn_ms(WARM_UP_STEPS)
    slower = max(side.turn_ms(WARM_UP_STEPS) for side in sides)
    steps = max(1, round(TURN_S * 1e3 / slower))
    turns = max(5, round(seconds * 1e3 / (2 * steps * slower)))
    times: dict[str, list[float]] = {backend: [] for backend in SIDES}
    busy_before = busy.processor_s()
    begin, (all_before, own_before) = time.perf_counter(), processor_s()
    for turn in range(turns):
        for side in sides if turn % 2 else reversed(sides):
            times[side.backend].append(side.turn_ms(steps))
    all_after, own_after = processor_s()
    taken = time.perf_counter() - begin
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
        "cores_used_by_others": round(elsewhere / taken, 2),
        "cores_used_by_busy_processes": round((busy.processor_s() - busy_before) / taken, 2),
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
    parser.add_argument(
        "--beside",
        type=int,
        default=0,
        metavar="N",
        help="processes that compute meanwhile, one bound to each core",
    )
    parser.add_argument(
        "--config",
        action="append",
        type=lambda name: {config.name: config for config in CONFIGS}[name],
        metavar="NAME",
        help=f"{' or '.join(config.name for config in CONFIGS)}; all without it",
    )
    parser.add_argument("--out", type=Path, help="append one line a side and configuration here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("ctran")
    groups = {"ctran": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    busy = BusyProcesses(arguments.beside if dist.get_rank() == 0 else 0)
    try:
        differ = compare(groups, arguments, busy)
    finally:
        busy.end()
    dist.destroy_process_group()
    return 1 if differ else 0


def compare(
    groups: dict[str, dist.ProcessGroup], arguments: argparse.Namespace, busy: BusyProcesses
) -> bool:
    """Measures, and rank 0 reports. True where the losses of some configuration differ."""
    facts = {
        **machine("cpu"),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "busy_processes": arguments.beside,
    }
    differ = False
    for config in arguments.config or CONFIGS:
        lines = measure(config, groups, arguments.seconds, busy)
        differ |= not lines[0]["losses_agree"]
        if dist.get_rank() != 0:
            continue
        rates = ", ".join(f"{one['backend']} {one['steps_per_s']:.1f} steps/s" for one in lines)
        losses = "losses agree" if lines[0]["losses_agree"] else "LOSSES DIFFER"
        load = f"others used {lines[0]['cores_used_by_others']} cores"
        if arguments.beside > 0:
            load += f", the busy processes {lines[0]['cores_used_by_busy_processes']} of them"
        print(
            f"{config.name:13}  {rates}: {lines[0]['ratio']:.2f}x  ({losses}; {load})", flush=True
        )
        if arguments.out is not None:
            with arguments.out.open("a") as file:
                file.writelines(json.dumps({**one, **facts}) + "\n" for one in lines)
    return differ


if __name__ == "__main__":
    sys.exit(main())
