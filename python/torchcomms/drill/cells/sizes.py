"""F40: unusual sizes and addresses."""

from __future__ import annotations

import itertools

import torch

from torchcomms import ReduceOp
from torchcomms.drill.buffers import COLLECTIVES, Shape
from torchcomms.drill.cell import OURS, Cell
from torchcomms.drill.ours import Ours
from torchcomms.drill.scene import Scene

_LARGE = 2**31 + 1  # elements, of one byte each
_NEEDED_GIB = 12


def small(scene: Scene) -> None:
    """No data, one byte, and sizes near powers of two."""
    side = scene.comm()
    for op, numel in itertools.product(COLLECTIVES, (0, 1, 3, 63, 65, 4097)):
        pending = side.start(op, Shape(numel, torch.uint8), async_op=False)
        if text := pending.wrong():
            scene.find("wrong result", f"{numel} bytes: {text}")


def places(scene: Scene) -> None:
    """Tensors at odd addresses must be right; views with gaps and overlaps right or refused."""
    side = scene.comm()
    assert isinstance(side, Ours)
    comm, size = side.comm, scene.size
    storage = torch.zeros(4096 + 9, dtype=torch.uint8)
    for offset in range(1, 9):
        tensor = storage[offset : offset + 4096].fill_(scene.rank + 1)
        comm.all_reduce(tensor, ReduceOp.SUM, False)
        good = bool((tensor == size * (size + 1) // 2).all())
        if not good:
            scene.find("wrong result", f"all_reduce at an address with an offset of {offset} bytes")
    holes = torch.ones(8, 8)[:, ::2]
    scene.raises(
        lambda: comm.all_reduce(holes, ReduceOp.SUM, False), "InvalidArgument", within_s=1.0,
        what="a view with gaps",
    )  # fmt: skip
    # The input is this rank's row of the output, which the API allows.
    output = torch.zeros(size, 16)
    output[scene.rank] = scene.rank + 1
    comm.all_gather_single(output, output[scene.rank], False)
    rows = [float(value) for value in output[:, 0]]
    if rows != [float(r + 1) for r in range(size)]:
        scene.find("wrong result", f"all_gather_single in place gave rows {rows}")
    overlapping(scene, side)
    scene.works(side)


def overlapping(scene: Scene, side: Ours) -> None:
    """The input overlaps two rows of the output: right, or refused before anything is sent."""
    size = scene.size
    output = torch.zeros(size * 16)
    lying = output[8:24]
    lying.fill_(scene.rank + 1)
    try:
        side.comm.all_gather_single(output, lying, False)
    except ValueError:
        return
    rows = [float(value) for value in output[::16]]
    if rows != [float(r + 1) for r in range(size)]:
        scene.find("wrong result", f"all_gather_single with an overlapping input gave rows {rows}")


def large(scene: Scene) -> None:
    """More than 2^31 elements."""
    side = scene.comm(limit_s=300.0)
    assert isinstance(side, Ours)
    tensor = torch.full((_LARGE,), scene.rank + 1, dtype=torch.uint8)
    side.comm.all_reduce(tensor, ReduceOp.SUM, False)
    if not bool((tensor == 3).all()):
        scene.find("wrong result", "all_reduce of 2^31 + 1 elements")
    tensor[-1] = 7 + scene.rank
    side.comm.broadcast(tensor, 1, False)
    if int(tensor[-1]) != 8:
        scene.find("wrong result", "broadcast of 2^31 + 1 elements: the last one")


def memory_for_large() -> str | None:
    with open("/proc/meminfo") as file:
        facts = dict(line.split(":", 1) for line in file)
    free_gib = int(facts["MemAvailable"].split()[0]) >> 20
    return None if free_gib >= _NEEDED_GIB else f"needs {_NEEDED_GIB} GiB of memory"


CELLS = (
    Cell("F40/small", "0, 1, 3, 63, 65 and 4097 bytes", "right results", small),
    Cell(
        "F40/places", "odd addresses, views with gaps, overlapping inputs and outputs",
        "right results, or InvalidArgument before anything is sent", places, backends=OURS,
    ),
    Cell(
        "F40/large", "2^31 + 1 elements", "right results", large, ranks=2, backends=OURS, slow=True,
        hang_s=300.0, missing=memory_for_large,
    ),
)  # fmt: skip
