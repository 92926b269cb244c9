"""Random operations with every value checked, for as long as one likes: `torchcomms soak`.

`plan.step(terms, number)` and `lives.lives(seed, ranks, step)` say what every rank does at a step:
pure functions of a seed. `rank.Rank` does it on one rank; `soak(Request(...))` runs all ranks in
processes of their own, and says how it went.
"""

from torchcomms.soak.outcome import Failure, Outcome
from torchcomms.soak.request import Request, SoakError, default_ranks, parse_hints
from torchcomms.soak.run import soak
from torchcomms.soak.show import as_object, failure_text, summary

__all__ = [
    "Failure", "Outcome", "Request", "SoakError", "as_object", "default_ranks", "failure_text",
    "parse_hints", "soak", "summary",
]  # fmt: skip
