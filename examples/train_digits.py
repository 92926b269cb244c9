"""Trains a small network on real handwritten digits, and proves that the communication is right.

    torchrun --nproc-per-node 4 examples/train_digits.py [--backend ctran] [--picture digits.png]

Every process computes the gradients of its share of each batch; buckets of them are averaged with
asynchronous all_reduce while the backward pass still runs. Rank 0 then trains the same network
alone on whole batches: both loss curves must agree up to rounding, or the exit status is 1.
Afterwards the processes repeat the averages of a step over another communicator, of backend gloo,
in turns with the first one, and say which was faster; and measure all_reduce beside
torch.distributed. Needs scikit-learn (the data
comes with it) and matplotlib.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
import torchcomms
from torch import nn
from torchcomms import ReduceOp, bench

CPU = torch.device("cpu")
TRAINING_SHARE = 0.8
EPOCHS = 15
TURNS = 100  # of the comparison of backends
BATCH = 128
BUCKET_ELEMENTS = 1 << 14
ROOT = 0


class Averager:
    """Averages gradients over all ranks while they are being computed.

    The gradients live in a few flat buckets. When the backward pass has filled one, its all_reduce
    starts; `wait()` returns when all have ended. `comm=None` leaves the gradients alone.
    """

    def __init__(self, comm: torchcomms.TorchComm | None, model: nn.Module) -> None:
        self._comm = comm
        self._buckets: list[torch.Tensor] = []
        self._missing: list[int] = []
        self._works: list[torchcomms.TorchWork] = []
        group: list[nn.Parameter] = []
        for parameter in reversed(list(model.parameters())):  # the order of the backward pass
            if group and sum(p.numel() for p in [*group, parameter]) > BUCKET_ELEMENTS:
                self._add_bucket(group)
                group = []
            group.append(parameter)
        self._add_bucket(group)
        self._sizes = list(self._missing)

    def _add_bucket(self, group: list[nn.Parameter]) -> None:
        bucket = torch.zeros(sum(p.numel() for p in group))
        index = len(self._buckets)
        for parameter, view in zip(group, bucket.split([p.numel() for p in group]), strict=True):
            parameter.grad = view.view_as(parameter)
            parameter.register_post_accumulate_grad_hook(lambda _, index=index: self._ready(index))
        self._buckets.append(bucket)
        self._missing.append(len(group))

    def _ready(self, index: int) -> None:
        self._missing[index] -= 1
        if self._missing[index] == 0:
            self.average(self._buckets[index])

    @property
    def sizes(self) -> list[int]:
        """Elements of each bucket."""
        return [bucket.numel() for bucket in self._buckets]

    def average(self, tensor: torch.Tensor) -> None:
        """Starts averaging `tensor` in place."""
        if self._comm is not None:
            self._works.append(self._comm.all_reduce(tensor, ReduceOp.AVG, True))

    def clear(self) -> None:
        self._missing = list(self._sizes)
        for bucket in self._buckets:
            bucket.zero_()

    def wait(self) -> None:
        for work in self._works:
            work.wait()
        self._works.clear()


def make_model() -> nn.Module:
    """Smooth on purpose: a ReLU or a maximum may switch sides for a rounding, and then two correct
    runs part for good; with tanh and averages the comparison of the curves is a sharp one."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.Tanh(), nn.Conv2d(16, 32, 3, padding=1), nn.Tanh(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(512, 64), nn.Tanh(), nn.Linear(64, 10),
    )  # fmt: skip


def share_data(comm: torchcomms.TorchComm) -> tuple[torch.Tensor, torch.Tensor]:
    """1797 images of 8 x 8 pixels and their digits; only the root reads them."""
    images, digits = torch.empty(1797, 1, 8, 8), torch.empty(1797, dtype=torch.int64)
    if comm.get_rank() == ROOT:
        from sklearn.datasets import load_digits

        data = load_digits()
        images.copy_(torch.from_numpy(data.images / 16).unsqueeze(1))
        digits.copy_(torch.from_numpy(data.target))
    comm.broadcast(images, ROOT, False)
    comm.broadcast(digits, ROOT, False)
    mixed = torch.randperm(len(digits), generator=torch.Generator().manual_seed(7))
    return images[mixed], digits[mixed]


def batches(count: int) -> Iterator[torch.Tensor]:
    """The same for everyone: rows of each batch of one epoch after the other."""
    source = torch.Generator().manual_seed(11)
    for _ in range(EPOCHS):
        yield from torch.randperm(count, generator=source)[: count // BATCH * BATCH].split(BATCH)


def train(
    model: nn.Module,
    averager: Averager,
    data: tuple[torch.Tensor, torch.Tensor],
    share: slice,
    show: Callable[[int, int, float], None],
) -> torch.Tensor:
    """Trains on `share` of every batch's rows. Returns the whole batch's loss at each step."""
    images, digits = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses: list[torch.Tensor] = []
    steps = EPOCHS * (len(digits) // BATCH)
    for rows in batches(len(digits)):
        mine = rows[share]
        averager.clear()
        loss = nn.functional.cross_entropy(model(images[mine]), digits[mine])
        loss.backward()
        losses.append(loss.detach())
        averager.average(losses[-1])
        averager.wait()
        optimizer.step()
        show(len(losses), steps, loss.item())
    return torch.stack(losses)


def tolerance(losses: torch.Tensor, ranks: int) -> torch.Tensor:
    """How far two correct curves may be apart at each step.

    The runs add the same numbers in another order: averages of `ranks` partial averages instead of
    one over BATCH rows. So each step adds at most about ranks + log2(BATCH) roundings, relative to
    the largest loss so far, to what earlier steps have left; the descent does not enlarge those.
    """
    roundings = ranks + torch.tensor(float(BATCH)).log2()
    steps = torch.arange(1, len(losses) + 1)
    return steps * roundings * torch.finfo(torch.float32).eps * losses.cummax(0).values


def show_progress(label: str) -> Callable[[int, int, float], None]:
    """A bar where a person watches, else a line now and then."""
    start = time.monotonic()

    def show(step: int, steps: int, loss: float) -> None:
        took_s = time.monotonic() - start
        line = f"{label:>14}  step {step:3}/{steps}  loss {loss:.4f}  {took_s:.1f} s"
        if sys.stdout.isatty():
            bar = "#" * (30 * step // steps)
            print(f"\r{line}  [{bar:<30}]", end="\n" if step == steps else "", flush=True)
        elif step % (steps // 3) == 0:
            print(line, flush=True)

    return show


def accuracy(model: nn.Module, images: torch.Tensor, digits: torch.Tensor) -> float:
    with torch.no_grad():
        return (model(images).argmax(1) == digits).double().mean().item()


def step_us(comm: torchcomms.TorchComm, buckets: list[torch.Tensor]) -> float:
    """How long one step's averages take here, from all ranks' start."""
    comm.barrier(False)
    start = time.perf_counter()
    works = [comm.all_reduce(bucket, ReduceOp.AVG, True) for bucket in buckets]
    for work in works:
        work.wait()
    return (time.perf_counter() - start) * 1e6


def compare(comm: torchcomms.TorchComm, sizes: list[int]) -> str:
    """The averages of a step as the training asked for them, by `comm` and by gloo, in turns."""
    other = torchcomms.new_comm("gloo", CPU, name="digits_gloo")
    buckets = [torch.ones(size) for size in [*sizes, 1]]  # the loss is averaged, too
    times: dict[str, list[float]] = {"ours": [], "gloo": []}
    for _ in range(TURNS):
        times["ours"].append(step_us(comm, buckets))
        times["gloo"].append(step_us(other, buckets))
    worst = torch.tensor([statistics.median(times["ours"]), statistics.median(times["gloo"])])
    comm.all_reduce(worst, ReduceOp.MAX, False)  # a step is as slow as its slowest rank
    other.finalize()
    ours, theirs = worst.tolist()
    ratio = theirs / ours
    verdict = f"{ratio:.1f} times faster" if ratio >= 1 else f"{1 / ratio:.1f} times slower"
    return (
        f"communication: the {len(buckets)} averages of a step ({sum(sizes) * 4 / 1024:.0f} KiB) "
        f"take {ours:.0f} us on {comm.get_backend()} and {theirs:.0f} us on gloo: {verdict} "
        f"(medians of {TURNS} steps in turns, slowest rank)"
    )


def measure(backend: str) -> list[bench.Point]:
    """all_reduce beside torch.distributed; the points are on the root."""
    plan = bench.Plan(
        ops=["all_reduce"],
        backends=list(dict.fromkeys([backend, "gloo", "c10d:gloo"])),
        sizes=bench.parse_sizes("8,1K:4M:8"),
        seconds=0.15,
    )
    world = bench.World.of_launcher("digits_bench")
    points = list(bench.run_here(plan, world))
    world.barrier()
    return points


def draw(
    path: Path,
    curves: tuple[torch.Tensor, torch.Tensor],
    allowed: torch.Tensor,
    points: Sequence[bench.Point],
    title: str,
) -> None:
    pyplot = bench.require_matplotlib(path)
    figure = pyplot.figure(figsize=(12, 5), layout="constrained")
    grid = figure.add_gridspec(3, 2)
    loss, apart = figure.add_subplot(grid[:2, 0]), figure.add_subplot(grid[2, 0])
    ranks = points[0].ranks
    loss.plot(curves[0], color="#56B4E9", linewidth=4, alpha=0.7, label=f"{ranks} processes")
    loss.plot(curves[1], color="black", linewidth=1, linestyle="--", label="one process")
    loss.set_title("training loss on handwritten digits", fontsize=11)
    loss.set(yscale="log", ylabel="loss")
    loss.legend(frameon=False)
    loss.tick_params(labelbottom=False)
    distance = (curves[0] - curves[1]).abs()
    some = distance.nonzero()  # equal to the last bit is no point on a logarithmic axis
    apart.plot(some, distance[some], ".", color="#D55E00", markersize=4)
    apart.plot(allowed, color="#777777", linestyle=":")
    apart.annotate("what rounding allows", (len(allowed) - 1, allowed[-1]), (0, -11),
                   textcoords="offset points", ha="right", color="#777777", fontsize=9)  # fmt: skip
    apart.set(yscale="log", xlabel="step", ylabel="apart", xlim=loss.get_xlim())
    for axes in (loss, apart):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, color="#dddddd", linewidth=0.7)
        axes.minorticks_off()
    bench.draw(figure.add_subplot(grid[:, 1]), None, points)
    figure.suptitle(title, fontsize=14)
    figure.savefig(path, dpi=130)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--backend", default="ctran", help="of torchcomms, for CPU tensors")
    parser.add_argument("--picture", type=Path, default=Path("train_digits.png"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the ranks share the cores
    comm = torchcomms.new_comm(arguments.backend, CPU, name="digits")
    rank, size = comm.get_rank(), comm.get_size()
    if BATCH % size:
        sys.exit(f"a batch of {BATCH} cannot be shared evenly by {size} processes")
    if rank == ROOT:
        print(f"{size} processes, backend {comm.get_backend()}", flush=True)

    images, digits = share_data(comm)
    count = int(TRAINING_SHARE * len(digits))
    data = images[:count], digits[:count]
    torch.manual_seed(rank)  # different on purpose: the broadcast makes them equal
    model, alone = make_model(), make_model()
    for parameter in model.parameters():
        comm.broadcast(parameter.data, ROOT, False)
    alone.load_state_dict(model.state_dict())

    silent = rank != ROOT
    shown = (lambda *_: None) if silent else show_progress(f"{size} processes")
    share = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    averager = Averager(comm, model)
    together = train(model, averager, data, share, shown)
    verdict = 0
    if rank == ROOT:
        whole = slice(0, BATCH)
        single = train(alone, Averager(None, alone), data, whole, show_progress("one process"))
        allowed = tolerance(single, size)
        apart = (together - single).abs()
        worst = int((apart / allowed).argmax())
        agree = bool((apart <= allowed).all())  # false for NaN too
        verdict = 0 if agree else 1
        print(
            f"loss curves {'agree' if agree else 'DIFFER'}: at step {worst + 1} they are "
            f"{apart[worst]:.1e} apart, rounding allows {allowed[worst]:.1e}"
        )
        right = accuracy(model, images[count:], digits[count:])
        print(f"{right:.1%} of {len(digits) - count} digits it has never seen are read correctly\n")
    comm.barrier(False)
    if arguments.backend != "gloo":
        compared = compare(comm, averager.sizes)
        if rank == ROOT:
            print(f"{compared}\n")
    points = measure(arguments.backend)
    if rank == ROOT:
        print(bench.points_table(points))
        title = f"{size} processes, {arguments.backend}: {right:.1%} of the test digits right"
        draw(arguments.picture, (together, single), allowed, points, title)
        print(f"\npicture: {arguments.picture.resolve()}")
        verdict |= any(point.correct is False for point in points)
    comm.finalize()
    return verdict


if __name__ == "__main__":
    sys.exit(main())
