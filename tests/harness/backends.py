"""The table of backends under test: one row each, nothing else in the suite names them all."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Backend:
    """A backend, the world sizes it is tested at, and what it may refuse by contract."""

    name: str
    device: str = "cpu"
    sizes: tuple[int, ...] = (1, 2, 3, 4)
    # False: operations complete without moving data (`fake`), so only calls and errors are tested.
    moves_data: bool = True
    # False: send or recv with oneself is refused, in and outside of a batch.
    self_messages: bool = False
    # False: a second finalize(), or an operation after it, is accepted.
    finalizes_once: bool = True
    # False: wait_blocking() of a work started with async_op=True is refused.
    host_waits_for_async: bool = False
    # True: an operation that fails ends its communicator: is_aborted(), and later calls raise too.
    fails_as_a_whole: bool = False
    # True: abort() ends a communicator's operations.
    aborts: bool = False
    # What it has of the optional parts; the rest must be refused.
    optional: frozenset[str] = frozenset()
    # Of every communicator, and what tells this row from others of the same backend.
    hints: tuple[tuple[str, str], ...] = ()
    variant: str = ""

    @property
    def label(self) -> str:
        return self.name + self.variant

    def missing(self) -> str | None:
        """Why this backend cannot run on this machine, or None when it can."""
        import torch
        import torchcomms

        if not torchcomms.is_backend_built(self.name):
            return f"backend {self.name} is not part of this build"
        if self.device == "cuda" and not torch.cuda.is_available():
            return f"backend {self.name} needs a CUDA device"
        return None


CTRAN = Backend(
    "ctran",
    sizes=(1, 2, 4),
    self_messages=True,
    host_waits_for_async=True,
    fails_as_a_whole=True,
    aborts=True,
    optional=frozenset(
        {
            "abort",
            "set_timeout",
            "set_hints",
            "get_backend_version",
            "get_init_handle",
            "reconfigure",
            "new_window",
            "window_allocate",
        }
    ),
)
# Many more ranks than cores, for the tests marked `crowd`.
CROWD = replace(CTRAN, sizes=(16,))
BACKENDS = (
    Backend("gloo", optional=frozenset({"get_init_handle", "reconfigure"})),
    CTRAN,
    replace(CTRAN, sizes=(3,), hints=(("ctran::transport", "tcp"),), variant="-tcp"),
    Backend(
        "fake",
        sizes=(1,),
        moves_data=False,
        self_messages=True,
        finalizes_once=False,
        optional=frozenset(
            {
                "tensor_register",
                "tensor_deregister",
                "set_timeout",
                "set_hints",
                "abort",
                "new_window",
                "window_allocate",
            }
        ),
        host_waits_for_async=True,
    ),
)
