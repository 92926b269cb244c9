"""What to run, and the check of it before any process starts."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchcomms._arguments import MOST_RANKS_HERE, MOST_SECONDS_HERE

DEVICES = ("cpu", "cuda")
_MOST_STEPS = 10**15


class SoakError(Exception):
    """The request is not possible here. The text names the value seen and the allowed ones."""


@dataclass(frozen=True)
class Request:
    """The parameters of one soak.

    Attributes:
        backend: the backend to test.
        device: "cpu" or "cuda".
        ranks: the number of processes.
        seed: the seed of everything random.
        minutes: the duration, if `steps` is None.
        steps: the number of steps; None: as many as `minutes` allow.
        from_step: the first step.
        limit_s: timeout of a step and of every operation, in seconds.
        most_bytes: the size of the largest tensor.
        hints: hints of every communicator.
    """

    backend: str
    device: str = "cpu"
    ranks: int = 2
    seed: int = 1
    minutes: float = 1.0
    steps: int | None = None
    from_step: int = 0
    limit_s: float = 60.0  # timeout of a step and of every operation
    most_bytes: int = 32 << 20  # the largest tensor
    hints: dict[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raises SoakError for the first wrong value."""
        self._check_backend()
        self._check_device()
        for label, value in (("--minutes", self.minutes), ("--limit", self.limit_s)):
            if not 0 < value <= MOST_SECONDS_HERE:
                allowed = f"above 0 and at most {MOST_SECONDS_HERE:g}"
                raise SoakError(f"{label}: {value:g} is not {allowed}")
        for name, least, number, most in (
            ("--ranks", 1, self.ranks, MOST_RANKS_HERE),
            ("--steps", 1, self.steps, _MOST_STEPS),
            ("--from-step", 0, self.from_step, _MOST_STEPS),
            ("--bytes", 16, self.most_bytes, self.most_bytes),
        ):
            if number is not None and number < least:
                raise SoakError(f"{name}: {number} is not at least {least}")
            if number is not None and number > most:
                raise SoakError(f"{name}: {number} is above {most}")

    def _check_backend(self) -> None:
        import torchcomms

        built = sorted(set(torchcomms.built_backends()) - {"fake"})
        if self.backend == "fake":
            raise SoakError(f"backend fake moves no data; allowed: {', '.join(built)}")
        if self.backend not in built:
            raise SoakError(f"unknown backend {self.backend!r}; built here: {', '.join(built)}")

    def _check_device(self) -> None:
        import torch

        if self.device not in DEVICES:
            raise SoakError(f"unknown device {self.device!r}; allowed: {', '.join(DEVICES)}")
        if self.device == "cuda" and self.ranks > torch.cuda.device_count():
            raise SoakError(
                f"--ranks: {self.ranks} on cuda need one GPU each, but torch sees"
                f" {torch.cuda.device_count()}"
            )


def default_ranks(device: str) -> int:
    """One rank per GPU; 2 on the CPU."""
    if device != "cuda":
        return 2
    import torch

    return max(torch.cuda.device_count(), 1)


def parse_hints(texts: list[str]) -> dict[str, str]:
    """Parses ["a::b=c"] to {"a::b": "c"}.

    Raises:
        SoakError: a text without name or "=".
    """
    hints = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise SoakError(f"--hint: {text!r} is not NAME=VALUE, for example ctran::transport=tcp")
        hints[name] = value
    return hints
