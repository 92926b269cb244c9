"""Runs random operations and checks every value, for any length of time: `torchcomms soak`.

`plan.step(terms, number)` and `lives.lives(seed, ranks, step)` define what every rank does at a
step; both are pure functions of a seed. `rank.Rank` runs the steps on one rank.
`soak(Request(...))` runs all ranks in processes of their own, and returns the outcome.
"""

from torchcomms.soak.outcome import Failure, Outcome
from torchcomms.soak.request import Request, SoakError, default_ranks, parse_hints
from torchcomms.soak.run import soak
from torchcomms.soak.show import as_object, failure_text, summary

__all__ = [
    "Failure", "Outcome", "Request", "SoakError", "as_object", "default_ranks", "failure_text",
    "parse_hints", "soak", "summary",
]  # fmt: skip
