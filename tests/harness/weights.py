"""What programs of tests/interop/programs/train_every_way.py wrote, held against another run."""

from __future__ import annotations

import pytest
import torch

# Of each rank, by way: the weights, or why there are none.
Results = list[dict[str, torch.Tensor | str]]
# A sum of four in another order, over a few steps; one that was made in bf16.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
TOLERANCE_BF16 = {"rtol": 2**-8, "atol": 2**-8}


def expect_same(way: str, wants: Results, results: Results, same_bits: bool) -> None:
    """On each rank; skips where the run that says what is right has none."""
    tolerance = TOLERANCE_BF16 if way == "ddp_bf16_hook" else TOLERANCE
    for rank, (want, got) in enumerate(zip(wants, results, strict=True)):
        right, ours = want[way], got[way]
        if isinstance(right, str):
            pytest.skip(f"torch alone cannot: {right.splitlines()[-1]}")
        assert not isinstance(ours, str), ours
        torch.testing.assert_close(ours, right, **tolerance, msg=f"rank {rank}")
        if same_bits:
            assert torch.equal(ours, right)
