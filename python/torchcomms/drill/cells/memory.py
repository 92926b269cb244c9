"""F23: /dev/shm is full, or cannot be written."""

from __future__ import annotations

import functools
from pathlib import Path

from torchcomms.drill.buffers import Shape
from torchcomms.drill.cell import OWN, Cell
from torchcomms.drill.namespaces import MOUNTS, leave, libc, must
from torchcomms.drill.scene import Scene

_PRIVATE, _RECURSIVE, _READ_ONLY = 1 << 18, 1 << 14, 1
_SHARED = b"/dev/shm"


def own_shared_memory(read_only: bool) -> None:
    """Gives this process a /dev/shm of its own, of 64 KiB. Raises Skip."""
    leave(MOUNTS, "no private mount namespace")
    must(
        libc.mount(b"none", b"/", None, _PRIVATE | _RECURSIVE, None),
        "mounts cannot be made private",
    )
    options = _READ_ONLY if read_only else 0
    must(libc.mount(b"tmpfs", _SHARED, b"tmpfs", options, b"size=64k"), "no tmpfs")


def scarce(scene: Scene, read_only: bool) -> None:
    """All ranks start, run small and large operations, and split."""
    own_shared_memory(read_only)
    if not read_only:
        with open("/dev/shm/filler", "wb", buffering=0) as filler:
            filler.write(bytes(60 << 10))
    side = scene.comm()
    for numel in (1, 1 << 12, 1 << 22):
        scene.right(side.start("all_reduce", Shape(numel), async_op=False))
    child = side.split(range(scene.size), 30.0)
    assert child is not None
    scene.open.append(child)
    scene.works(child)
    left = [p.name for p in Path("/dev/shm").iterdir() if p.name != "filler"]
    scene.check(not left, f"files in /dev/shm: {left}")


# Libraries of other backends decide themselves how they share memory.
_SHARING = (*OWN, "c10d:gloo")

CELLS = (
    Cell(
        "F23/full", "/dev/shm has 4 KiB left", "all operations work, and leave no file",
        functools.partial(scarce, read_only=False), bystander=False, backends=_SHARING,
    ),
    Cell(
        "F23/unwritable", "/dev/shm is read-only", "all operations work",
        functools.partial(scarce, read_only=True), bystander=False, backends=_SHARING,
    ),
)  # fmt: skip
