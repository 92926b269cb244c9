"""Every program in examples/ runs and prints what it promises."""

from __future__ import annotations

import math
import re
import runpy
from pathlib import Path

import pytest
import torch
import torchcomms

from tests.harness.programs import launched

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def _gloo():
    if not torchcomms.is_backend_built("gloo"):
        pytest.skip("backend gloo is not part of this build")


def lines_of(program: str, size: int, folder: Path) -> list[str]:
    """Runs examples/<program> as torchrun would; the sorted lines of all ranks."""
    needs = ("torch._dynamo",) if program.startswith("train_") else ()
    ended = launched(EXAMPLES / program, size, folder=folder, deadline=LIMIT_S, needs=needs)
    text = "".join(finished.out + finished.err for finished in ended)
    codes = [finished.code for finished in ended]
    assert codes == [0] * size, f"exit codes {codes}\n{text}"
    # Where names cannot be looked up, torch's store says so.
    unnamed = "[c10d] The hostname of the client socket cannot be retrieved"
    return sorted(line for line in text.splitlines() if unnamed not in line)


def test_every_example_is_tested_here():
    # torchft has a test of its own: tests/interop/test_torchft.py.
    tested = {"train_digits.py", "train_torchft.py", *EXPECTED}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested


EXPECTED = {
    "quickstart.py": [f"rank {r} of 2: every element is 3" for r in range(2)],
    "async_overlap.py": [f"rank {r}: averages of the 4 pieces are 1, 2, 3, 4" for r in range(2)],
    "split.py": [
        "rank 0 is rank 0 of 2 in [0, 2]: sum of ranks 2",
        "rank 1 is rank 0 of 2 in [1, 3]: sum of ranks 4",
        "rank 2 is rank 1 of 2 in [0, 2]: sum of ranks 2",
        "rank 3 is rank 1 of 2 in [1, 3]: sum of ranks 4",
    ],
    "batch_p2p.py": [
        "rank 0 has seen the tokens [0, 2, 1]",
        "rank 1 has seen the tokens [1, 0, 2]",
        "rank 2 has seen the tokens [2, 1, 0]",
    ],
    "old_api.py": [
        "rank 0: 2 in its pair",
        "rank 0: twice the sum is [6.0, 6.0, 6.0]",
        "rank 1: 2 in its pair",
        "rank 1: twice the sum is [6.0, 6.0, 6.0]",
    ],
    "shrink.py": [
        "rank 0 is now rank 0 of 2: [2.0, 2.0, 2.0, 2.0]",
        "rank 2 is now rank 1 of 2: [2.0, 2.0, 2.0, 2.0]",
    ],
    "diagnose_a_hang.py": [
        "rank 0: the sums are 27",
        "rank 1: rank 1 has not entered all_reduce 3 of 'training' (last: finished all_reduce 2);"
        " ranks 0, 2 wait in it",
        "rank 1: the sums are 27",
        "rank 2: the sums are 27",
    ],
    "window.py": ["squares: [0, 1, 4, 9, 16, 25, 36, 49]"],
    "train_ddp.py": [
        f"rank {r} of 2 on ctran: the loss is lower, the weights are those of every rank"
        for r in range(2)
    ],
    "train_fsdp.py": [
        f"rank {r} keeps {kept} of 5313 parameters; trained as one process trains"
        for r, kept in enumerate((2689, 2624))
    ],
    "train_tensor_parallel.py": [
        f"rank {r} has 64 of 128 inner features; trained as one process trains" for r in range(2)
    ],
    "device_window.py": [f"rank {r}: {10 + r} came from rank {r}" for r in range(2)],
    "python_backend.py": [f"rank {r}: [1.0, 3.0, 5.0, 7.0] by store" for r in range(2)],
}
LOSE_A_RANK = {"shrink.py"}
ON_GPUS = {"device_window.py"}
SIZES = {"diagnose_a_hang.py": 3, "split.py": 4, "batch_p2p.py": 3, "shrink.py": 3, "window.py": 3}


@pytest.mark.parametrize("program", EXPECTED)
def test_an_example_prints_what_it_promises(program, tmp_path):
    if program in ON_GPUS and torch.cuda.device_count() < 2:
        pytest.skip("needs 2 GPUs")
    lines = lines_of(program, SIZES.get(program, 2), tmp_path)
    if program in LOSE_A_RANK:  # which the library tells on stderr
        told = [line for line in lines if line.startswith("torchcomms warning")]
        assert told
        assert all("rank 1 has failed" in line for line in told), told
        lines = [line for line in lines if line not in told]
    assert lines == EXPECTED[program]


@pytest.mark.parametrize("program", EXPECTED)
def test_an_example_says_how_to_run_it_and_is_short(program):
    text = (EXAMPLES / program).read_text()
    size = SIZES.get(program, 2)
    assert re.search(
        rf"^    torchrun --nproc-per-node {size} examples/{program}( \[.*\])?$", text, re.MULTILINE
    )
    assert len(text.splitlines()) <= 80


def test_training_on_digits_agrees_with_one_process(tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    if not torchcomms.is_backend_built("ctran"):
        pytest.skip("backend ctran is not part of this build")
    picture = tmp_path / "digits.png"
    finished, *others = launched(
        EXAMPLES / "train_digits.py", 4, "--picture", str(picture),
        folder=tmp_path, deadline=180.0, needs=("sklearn.datasets", "torch._dynamo"),
    )  # fmt: skip
    for each in (finished, *others):
        each.expect_success()
    assert "4 processes, backend ctran" in finished.out
    assert "loss curves agree: at step" in finished.out
    (right,) = [line for line in finished.out.splitlines() if "read correctly" in line]
    assert float(right.split("%")[0]) > 95
    table = [line.split() for line in finished.out.splitlines() if line.startswith("all_reduce ")]
    assert [row[4] for row in table] == ["ctran", "gloo", "c10d:gloo"] * 6
    compared = re.search(
        r"averages of a step \(\d+ KiB\) take (\d+) us on ctran and (\d+) us on gloo: "
        r"([\d.]+) times (faster|slower)", finished.out
    )  # fmt: skip
    ours, theirs, ratio = (float(compared[n]) for n in (1, 2, 3))
    exact = theirs / ours if compared[4] == "faster" else ours / theirs
    assert exact >= 1
    assert abs(ratio - exact) < 0.06 + 0.02 * exact  # by roundings to microseconds and tenths
    assert {row[-1] for row in table} == {"ok"}
    assert f"picture: {picture}" in finished.out
    assert picture.read_bytes().startswith(b"\x89PNG")


class TestTheComparisonOfCurves:
    """The demonstration would notice: a curve off by more than rounding is outside."""

    digits = runpy.run_path(str(EXAMPLES / "train_digits.py"))

    def test_the_tolerance_grows_by_the_roundings_of_each_step(self):
        losses = torch.tensor([2.0, 1.0, 4.0])
        allowed = self.digits["tolerance"](losses, 4)
        eps = torch.finfo(torch.float32).eps
        torch.testing.assert_close(allowed, torch.tensor([1 * 2.0, 2 * 2.0, 3 * 4.0]) * 11 * eps)

    def test_a_forgotten_average_is_far_outside(self):
        """Training on one rank's share, as if nobody had communicated."""
        make, train, averager = (self.digits[name] for name in ("make_model", "train", "Averager"))
        source = torch.Generator().manual_seed(1)
        images = torch.rand(256, 1, 8, 8, generator=source)
        data = images, (images.mean((1, 2, 3)) * 10).long().clamp(0, 9)
        curves = []
        for share in (slice(0, 128), slice(0, 32)):
            torch.manual_seed(0)
            model = make()
            curves.append(train(model, averager(None, model), data, share, lambda *_: None))
        apart = (curves[0] - curves[1]).abs()
        assert math.isfinite(float(apart.sum()))
        assert bool((apart > self.digits["tolerance"](curves[0], 4)).any())
