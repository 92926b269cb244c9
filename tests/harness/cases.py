"""Many data cases in one call to a world: each failing one is reported by name."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import here
from .backends import BACKENDS, USUAL_RANKS, Backend
from .values import LARGE, MOVABLE, NUMELS, REDUCE_OPS, REDUCIBLE, is_defined

MODES = ("sync", "async")
SHAPES = ((3,), (2, 3), (4, 1, 5), (2, 3, 2, 2), (0, 3), ())
# Few combinations at the large size: what differs by dtype and op was swept at the small ones.
LARGE_REDUCTIONS = ((torch.float32, "sum"), (torch.bfloat16, "avg"), (torch.int64, "max"))
LARGE_MOVES = (torch.float32, torch.bool, torch.complex128)

# case(comm, op, dtype, numel, async_op) for reductions; case(comm, dtype, shape, async_op) else.
Case = Callable[..., None]


class Failures:
    """The failed cases of one rank, as text."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    @contextlib.contextmanager
    def case(self, *names: object) -> Iterator[None]:
        """Names what runs inside; its exception is recorded and the next case goes on."""
        try:
            yield
        except Exception as error:
            name = " ".join(str(n).removeprefix("torch.") for n in names)
            text = f"{name}: {type(error).__name__}: {error}"
            self.texts.append(text)
            # Ranks that fail alone may hang later: then only the log still says why.
            print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def refused(
    kind: type[BaseException] | tuple[type[BaseException], ...], *fragments: object
) -> Iterator[None]:
    """What runs inside must raise `kind`, with a message that holds every fragment."""
    try:
        yield
    except kind as error:
        message = str(error)
    else:
        raise AssertionError(f"accepted, though {kind} is due")
    missing = [str(f) for f in fragments if str(f).lower() not in message.lower()]
    assert not missing, f"the message says nothing about {missing}: {message}"


def barrier_until_refused(comm: Any, **options: Any) -> None:
    """On a device a call may return before it is known that it cannot work: the next one raises."""
    comm.barrier(False, **options)
    if comm.get_device().type != "cpu":
        import torch

        torch.accelerator.synchronize()
        comm.barrier(False, **options)


def check(world: Any, function: Callable[..., list[str]], *args: Any) -> None:
    """Runs function(comm, *args), which returns its failures, on every rank; fails naming each."""
    _report(world, world.run(function, *args))


def check_context(world: Any, function: Callable[..., list[str]], *args: Any) -> None:
    """As `check`, for a function that takes the rank's Context."""
    _report(world, world.run_context(function, *args))


def _report(world: Any, texts_of_ranks: list[list[str]]) -> None:
    lines = [f"rank {rank}: {text}" for rank, texts in enumerate(texts_of_ranks) for text in texts]
    shown = "\n".join(lines[:20])
    assert not lines, f"{len(lines)} cases failed on {world}:\n{shown}"


def row_of(comm: Any) -> Backend:
    """The row of a communicator's backend on its device: this rank's, else the first."""
    device = comm.get_device().type
    if here.row is not None and (here.row.name, here.row.device) == (comm.get_backend(), device):
        return here.row
    return next(r for r in BACKENDS if (r.name, r.device) == (comm.get_backend(), device))


def every_reduction(comm: Any, case: Case, mode: str) -> list[str]:
    """`case` for every defined (dtype, op) at every small size."""
    failures, row = Failures(), row_of(comm)
    for dtype, op, numel in itertools.product(REDUCIBLE, REDUCE_OPS, NUMELS):
        if is_defined(op, dtype) and row.reduces(op, dtype):
            with failures.case(dtype, op, f"numel={numel}", mode):
                case(comm, op, dtype, numel, mode == "async")
    return failures.texts


def large_count(comm: Any) -> int:
    """A million elements; of many ranks fewer, as some cases have a tensor for each on each."""
    return LARGE * min(USUAL_RANKS, comm.get_size()) // comm.get_size()


def large_reductions(comm: Any, case: Case) -> list[str]:
    """`case` for a million elements."""
    failures, count = Failures(), large_count(comm)
    for dtype, op in LARGE_REDUCTIONS:
        with failures.case(dtype, op, f"numel={count}"):
            case(comm, op, dtype, count, False)
    return failures.texts


def every_move(comm: Any, case: Case, mode: str) -> list[str]:
    """`case` for every dtype at every small size."""
    failures = Failures()
    for dtype, numel in itertools.product(MOVABLE, NUMELS):
        with failures.case(dtype, f"numel={numel}", mode):
            case(comm, dtype, (numel,), mode == "async")
    return failures.texts


def large_moves(comm: Any, case: Case) -> list[str]:
    """`case` for a million elements."""
    failures, count = Failures(), large_count(comm)
    for dtype in LARGE_MOVES:
        with failures.case(dtype, f"numel={count}"):
            case(comm, dtype, (count,), False)
    return failures.texts


def every_shape(comm: Any, case: Case) -> list[str]:
    """`case` for tensors of zero to four dimensions: only element counts may matter."""
    failures = Failures()
    for shape in SHAPES:
        with failures.case(f"shape={shape}"):
            case(comm, torch.float32, shape, False)
    return failures.texts


def assert_alive(comm: Any) -> None:
    """All ranks call this: nothing is left over from before, and the next operation is right."""
    import torchcomms

    total = torch.tensor([float(comm.get_rank() + 1), 1.0])
    comm.all_reduce(total, torchcomms.ReduceOp.SUM, False)
    size = comm.get_size()
    assert total.tolist() == [size * (size + 1) / 2, size]


def on_host() -> bool:
    """Whether calls themselves run the operations; on a device its streams do."""
    return torch.get_default_device().type == "cpu"


def settle_device() -> None:
    """What streams are ordered to do is done; on the host it is anyhow."""
    if not on_host():
        torch.accelerator.synchronize()


def finish(work: Any, async_op: bool) -> None:
    """Waits as the caller of that mode would, and checks what holds for every finished work."""
    from torchcomms import TorchWork

    assert isinstance(work, TorchWork), f"the operation returned {type(work).__name__}"
    if not async_op and on_host():
        assert work.is_completed(), "a synchronous operation returned before it was complete"
    assert work.wait() is None
    settle_device()
    assert work.is_completed(), "is_completed() is False after wait()"
