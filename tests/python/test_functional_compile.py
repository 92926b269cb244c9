"""Compile support: operators, compiled functions, eager methods after patching, graph passes.

The cases are in compiled/. One pair of processes runs all of a kind, for they start slowly;
every case is a test of its own here.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

import pytest
import torchcomms
from torchcomms import functional

from tests.harness.ports import free_port
from tests.harness.programs import python, ranks
from tests.python import compiled

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 900.0
TIMEOUT_S = "60"

pytestmark = pytest.mark.skipif(
    not functional.is_torch_compile_supported(),
    reason=f"compile support needs torch {functional.MIN_PYTORCH_VERSION_FOR_COMPILE}, this one is"
    " older",
)

INDUCTOR_ALONE = [name for name in compiled.CASES if name.startswith("inductor")]
# What does not compile, or has its own compiler: once is enough.
ONCE = [
    "results_of_eager_calls_carry_grad",
    "what_cannot_have_a_gradient_of_its_own_leaves_it_to_the_result",
    "what_has_no_gradient_says_so",
    "what_is_under_way_is_waited_for_by_the_next_operation",
    "what_is_under_way_is_waited_for_by_windows",
    "a_saved_value_that_was_overwritten_is_noticed",
    "in_graphs_what_is_used_after_the_wait_flows_from_it",
    "what_comes_after_a_wait_is_made_of_what_it_returns",
    "passes_leave_the_results_as_they_are",
]
EVERY_BACKEND = [name for name in compiled.CASES if name not in (*INDUCTOR_ALONE, *ONCE)]


@functools.cache
def results(kind: str, backend: str, names: tuple[str, ...], size: int) -> dict[str, str]:
    """Of each case what went wrong, on the first rank where it did; "" where nothing did."""
    program = f"""
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        from tests.python.compiled import main
        main({kind!r}, {backend!r}, {list(names)!r})
        """
    finished = ranks(
        program,
        size,
        free_port(),
        DEADLINE_S,
        needs=("torch._dynamo",),
        TORCHCOMMS_PATCH_FOR_COMPILE="1",
        TORCHCOMM_TIMEOUT_SECONDS=TIMEOUT_S,
    )
    found: dict[str, str] = {}
    for rank, one in enumerate(finished):
        assert one.code == 0, f"rank {rank} ended with {one.code}\n{one.out}\n{one.err}"
        for name, failure in json.loads(one.out.strip().splitlines()[-1]).items():
            found[name] = found.get(name) or (failure and f"rank {rank}: {failure}")
    return found


def expect(kind: str, backend: str, names: list[str], name: str, size: int = 2) -> None:
    failure = results(kind, backend, tuple(names), size)[name]
    assert not failure, failure


@pytest.mark.parametrize("name", EVERY_BACKEND)
def test_compiled(name):
    expect("together", "aot_eager", EVERY_BACKEND, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY_BACKEND)
def test_compiled_by_inductor(name):
    expect("together", "inductor", EVERY_BACKEND, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", INDUCTOR_ALONE)
def test_inductors_code(name):
    expect("together", "inductor", INDUCTOR_ALONE, name)


@pytest.mark.parametrize("name", ONCE)
def test_after_patching(name):
    expect("together", "aot_eager", ONCE, name)


@pytest.mark.parametrize("name", list(compiled.ALONE))
def test_operators_and_passes(name):
    expect("alone", "aot_eager", list(compiled.ALONE), name, size=1)


@pytest.mark.parametrize("first", ["torch", "torchcomms", "torch.distributed"])
def test_the_order_of_imports_does_not_matter(first):
    """torch imports our native core on its own account, before or after the package."""
    python(
        f"""
        import {first}
        import sys, torchcomms
        metaclass = sys.modules["torchcomms._opaque_meta"].OpaqueBaseMeta
        assert type(torchcomms.TorchComm) is type(torchcomms.Timeout) is metaclass
        """,
        TORCHCOMMS_PATCH_FOR_COMPILE="1",
    ).expect_success()


def test_without_the_switch_the_classes_are_plain():
    assert "torchcomms._opaque_meta" not in sys.modules
    for cls in (torchcomms.TorchComm, torchcomms.ReduceOp):
        assert type(cls) is type(torchcomms.TorchWork)
    assert type(torchcomms.Timeout) is type


def test_no_case_is_left_out():
    assert set(EVERY_BACKEND) | set(INDUCTOR_ALONE) | set(ONCE) == set(compiled.CASES)
