"""What a case is, and what all of them use."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable

import torch
import torchcomms

Comm = torchcomms.TorchComm
CASES: dict[str, Callable[[Comm, str], None]] = {}
ALONE: dict[str, Callable[[Comm, str], None]] = {}


def case(function):
    """A case that several ranks run; what its name says holds if it returns."""
    CASES[function.__name__] = function
    return function


def alone(function):
    """A case of one rank."""
    ALONE[function.__name__] = function
    return function


def main(kind: str, backend: str, names: list[str]) -> None:
    """Runs the cases on one communicator, and prints what became of each as JSON."""
    cases = {"together": CASES, "alone": ALONE}[kind]
    made = "fake" if kind == "alone" else "gloo"
    comm = torchcomms.new_comm(made, torch.device("cpu"), "compiled")
    results = dict.fromkeys(names, "not reached: a case before it has failed")
    for name in names:
        torch._dynamo.reset()
        try:
            cases[name](comm, backend)
        except Exception:
            results[name] = traceback.format_exc()
            break  # the ranks may be apart
        results[name] = ""
    print(json.dumps(results))
    sys.stdout.flush()


def compiled(function, backend):
    return torch.compile(function, backend=backend, fullgraph=True)


def counted(function, backend):
    """The compiled function, and how often it was compiled."""
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend(backend)
    return compiled(function, counter), lambda: counter.frame_count


def code_of(function, *arguments):
    """The result, and what inductor made of the function."""
    from torch._inductor.utils import run_and_get_code

    result, code = run_and_get_code(compiled(function, "inductor"), *arguments)
    return result, "\n".join(code)


def same(got, want):
    torch.testing.assert_close(got, want)


def ramp(comm, rows=2):
    return (torch.arange(rows * 3.0) + 10 * comm.get_rank()).reshape(rows, 3)


def outs(comm, like):
    return [torch.zeros_like(like) for _ in range(comm.get_size())]
