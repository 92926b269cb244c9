"""The tests that come with torch pass on our communicators, as they are.

Each runs on torch's own gloo, on gloo with torch's switch to us, and on ctran as torch finds it by
name. What passes on the first must pass on the others: to skip it there counts as a failure.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torchcomms
from torch.torch_version import TorchVersion

from tests.harness.programs import together

CLIENT = Path(__file__).parent / "client.py"
DEADLINE_S = 1500.0  # of a part; each test has its own limit
SWITCH = "TORCH_DISTRIBUTED_USE_TORCHCOMMS"

pytestmark = [
    pytest.mark.serial,  # torch's limits are a second or two
    pytest.mark.skipif(
        TorchVersion(torch.__version__) < (2, 15), reason="torch before 2.15 has no switch to us"
    ),
]


class How(NamedTuple):
    backend: str
    switched: bool

    def __str__(self) -> str:
        return f"{self.backend}{'-switched' if self.switched else ''}"


PLAIN = How("gloo", False)
OURS = (How("gloo", True), How("ctran", False))


class Part(NamedTuple):
    name: str
    size: int
    match: str = ""
    without: str = "^$"
    chosen_as: str = "gloo"  # torch's tests of a backend are chosen by its name
    debug: str = "OFF"
    rpc: bool = False
    only: str = ""  # this backend

    def __str__(self) -> str:
        return self.name


_COLLECTIVES = "all_gather|all_reduce|broadcast|reduce|gather|scatter|all_to_all"
_MESSAGES = "send|recv"
_GROUPS = "group|barrier|timeout"
_MODELS = "DistributedDataParallel|ddp|no_sync|static_graph"
_SUBJECTS = "|".join((_COLLECTIVES, _MESSAGES, _GROUPS))
# torch's tests of groups want 8 ranks, but for MPI.
_CROWDED = "_group$|_group_(max|min|product|sum)$|timeout_group|failure_order|wait_all_ranks"

QUICK = Part(
    "a few of all kinds",
    3,
    "test_(all_reduce_sum|all_gather_complex|reduce_scatter|send_recv_any_source|monitored_barrier"
    "_gloo|sparse_all_reduce_sum|isend_autograd_profiler|DistributedDataParallelCPU"
    "|barrier_timeout_global|all_gather_coalesced_simple|batch_isend_irecv_gloo)$",
)
PARTS = (
    Part("collectives", 4, _COLLECTIVES),
    Part("messages", 4, _MESSAGES, _COLLECTIVES),
    Part("groups", 4, _GROUPS, f"{_COLLECTIVES}|{_MESSAGES}"),
    Part("models and the rest", 4, "", _SUBJECTS),
    Part("checked by torch", 3, "", _MODELS, debug="DETAIL"),
    # On gloo, torch's log of DDP takes its own checker for its own gloo and reads beyond it, which
    # goes well by luck alone.
    Part("models checked by torch", 3, _MODELS, debug="DETAIL", only="ctran"),
    Part("models beside RPC", 4, rpc=True),
    Part("chosen as for MPI", 4, f"all_to_all|{_CROWDED}", chosen_as="mpi"),
    Part("eight ranks", 8, _CROWDED),
)

# What passes on torch's own gloo alone, by backend, part and test, and why.
KNOWN = {
    ("ctran", "models and the rest", "test_ddp_logging_data_cpu"): (
        "torch's log of DDP calls every backend that it does not know 'custom'"
    ),
    ("gloo", "eight ranks", "test_barrier_timeout_group"): (
        "under its switch torch gives the limit of a group to nobody"
    ),
    ("gloo", "checked by torch", "test_destroy_full_group"): (
        "behind its checker torch does not see whose group it destroys, and finalizes it once more"
    ),
}

Results = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def results() -> Callable[[How, Part], Results]:
    """What became of each test of torch's; every part runs once."""
    known: dict[tuple[How, Part], Results] = {}

    def run(how: How, part: Part) -> Results:
        if (how, part) not in known:
            command = [sys.executable, str(CLIENT), "--backend", how.backend]
            command += ["--as", part.chosen_as, "--size", str(part.size)]
            command += ["--match", part.match, "--without", part.without]
            command += ["--rpc"] * part.rpc
            variables = {"TORCH_DISTRIBUTED_DEBUG": part.debug, SWITCH: str(int(how.switched))}
            (finished,) = together([(command, variables)], DEADLINE_S)
            finished.expect_success()
            lines = [json.loads(line) for line in finished.out.splitlines()]
            known[how, part] = {line["test"]: line for line in lines}
            ran = [line for line in lines if line["outcome"] != "skipped"]
            assert not ran or ("Using TorchComms backend" in finished.err) == how.switched
        return known[how, part]

    return run


@pytest.mark.parametrize("how", OURS, ids=str)
@pytest.mark.parametrize(
    "part", [QUICK, *(pytest.param(part, marks=pytest.mark.slow) for part in PARTS)], ids=str
)
def test_what_passes_on_torchs_gloo_passes_on_ours(part, how, results):
    if not torchcomms.is_backend_built(how.backend):
        pytest.skip(f"needs backend {how.backend}")
    if part.only and part.only != how.backend:
        pytest.skip(f"on {part.only} alone")
    passed = {test for test, line in results(PLAIN, part).items() if line["outcome"] == "passed"}
    assert passed
    ours = results(how, part)
    assert ours.keys() >= passed
    missed = {test for test in passed if ours[test]["outcome"] != "passed"}
    known = {test for backend, of, test in KNOWN if (backend, of) == (how.backend, part.name)}
    unexpected = missed - known
    assert not unexpected, "\n\n".join(
        f"{test}: {ours[test]['outcome']}: {ours[test]['text']}" for test in sorted(unexpected)
    )
    # One that passes meanwhile leaves the list.
    assert missed == passed & known
