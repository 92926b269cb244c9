"""Sample tensors, what a reduction of them must give, and how far off it may be.

A sample depends on nothing but its arguments, so every rank computes every rank's input and the
expected result by itself: no test sends its reference through the library under test.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
INTEGERS = SIGNED + UNSIGNED
COMPLEX = (torch.complex64, torch.complex128)
NARROW = (torch.float8_e4m3fn, torch.float8_e5m2)
REDUCIBLE = (*FLOATS, *INTEGERS, torch.bool, *COMPLEX)
MOVABLE = (*REDUCIBLE, *NARROW)

BITWISE = ("band", "bor", "bxor")
PREMUL = ("premul_scalar", "premul_tensor")
REDUCE_OPS = ("sum", "product", "min", "max", "avg", *BITWISE, *PREMUL)

NUMELS = (0, 1, 7, 4096)
LARGE = 1 << 20
_PERIOD = 23 * 19  # after so many elements a sample begins anew, but for those of bool


def is_defined(op: str, dtype: torch.dtype) -> bool:
    """Whether the contract gives `op` on `dtype` a meaning."""
    if dtype in FLOATS:
        return op not in BITWISE
    if dtype in COMPLEX:
        return op in ("sum", "product", "avg", "premul_scalar")
    if dtype == torch.bool:
        return op not in PREMUL
    return op != "premul_scalar"


def sample(rank: int, dtype: torch.dtype, shape: int | tuple[int, ...], salt: int = 0) -> Any:
    """Rank `rank`'s input: small, signed where possible, different on every rank and element."""
    shape = (shape,) if isinstance(shape, int) else shape
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator(1000 * salt + rank)) < 0.6
    numel = math.prod(shape)
    begin = _first_period(rank, dtype, salt).view(torch.uint8)
    repeated = begin.repeat(-(-numel // _PERIOD))[: numel * dtype.itemsize]
    return repeated.clone().view(dtype).reshape(shape)


def generator(seed: int) -> torch.Generator:
    """Of random numbers on the device that tensors are made on."""
    return torch.Generator(torch.get_default_device()).manual_seed(seed)


def _first_period(rank: int, dtype: torch.dtype, salt: int) -> torch.Tensor:
    index = torch.arange(_PERIOD, dtype=torch.int64) + 31 * salt
    raw = (index * 7 + rank * 13) % 23
    if dtype in UNSIGNED:
        return raw.to(dtype)
    if dtype in SIGNED:
        return (raw - 11).to(dtype)
    real = (raw - 11).to(torch.float64) / 3 + 0.125
    if dtype.is_complex:
        return torch.complex(real, ((index * 5 + rank * 7) % 19 - 9).to(torch.float64) / 7).to(
            dtype
        )
    return real.to(dtype)


def factor(rank: int, dtype: torch.dtype) -> int | float:
    """What PREMUL_SUM multiplies rank `rank`'s input by."""
    return rank + 2 if dtype in INTEGERS else 1.5 - rank / 4


def reduce_op(op: str, rank: int, dtype: torch.dtype) -> Any:
    """The library's operation object for `op`, with rank `rank`'s factor where it has one."""
    from torchcomms import ReduceOp

    if op == "premul_scalar":
        return ReduceOp.PREMUL_SUM(float(factor(rank, dtype)))
    if op == "premul_tensor":
        return ReduceOp.PREMUL_SUM(torch.tensor([factor(rank, dtype)], dtype=dtype))
    return getattr(ReduceOp, op.upper())


def reference(op: str, inputs: list[torch.Tensor]) -> torch.Tensor:
    """The reduction of one input a rank, on the host: exact for integers and bool, else in double
    precision."""
    inputs = [tensor.cpu() for tensor in inputs]
    dtype = inputs[0].dtype
    if dtype == torch.bool:
        return _bool_reference(op, inputs)
    if dtype in INTEGERS:
        return _integer_reference(op, inputs)
    wide = [t.to(torch.complex128 if dtype.is_complex else torch.float64) for t in inputs]
    if op in PREMUL:
        wide = [t * factor(rank, dtype) for rank, t in enumerate(wide)]
    total = functools.reduce(_WIDE.get(op, torch.add), wide)
    return total / len(wide) if op == "avg" else total


_WIDE = {"product": torch.mul, "min": torch.minimum, "max": torch.maximum}


def _bool_reference(op: str, inputs: list[torch.Tensor]) -> torch.Tensor:
    if op in ("sum", "max", "bor"):
        return functools.reduce(torch.logical_or, inputs)
    if op in ("product", "min", "band", "avg"):
        return functools.reduce(torch.logical_and, inputs)
    return functools.reduce(torch.logical_xor, inputs)


_NUMPY = {
    "sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum, "avg": np.add,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor, "premul_tensor": np.add,
}  # fmt: skip


def _integer_reference(op: str, inputs: list[torch.Tensor]) -> torch.Tensor:
    """Wraps on overflow as the element type does; an average is cut toward zero."""
    arrays = [t.numpy() for t in inputs]
    if op == "premul_tensor":
        arrays = [
            a * a.dtype.type(factor(rank, t.dtype))
            for rank, (a, t) in enumerate(zip(arrays, inputs, strict=True))
        ]
    total = functools.reduce(_NUMPY[op], arrays)
    if op == "avg":
        quotient = np.abs(total.astype(np.int64)) // len(arrays)
        total = (np.sign(total.astype(np.int64)) * quotient).astype(total.dtype)
    return torch.from_numpy(np.asarray(total))


# Upper bounds of what sample() gives, factor() included: tolerances are multiples of them.
_MAGNITUDE = 4.0
_MAX_FACTOR = 1.5
_EXACT = {"rtol": 0.0, "atol": 0.0}


def tolerance(op: str, dtype: torch.dtype, size: int) -> dict[str, float]:
    """Derived bounds for assert_close: one rounding a step, in the element type.

    A sum of `size` terms makes size - 1 roundings, each at most eps / 2 of a partial sum, which
    is at most size * magnitude; AVG and PREMUL_SUM round once more a term. A product's roundings
    are relative to the result (complex: four real products and two sums a step). The last
    rounding is the conversion of the reference itself. eps instead of eps / 2 covers it.
    """
    whole = dtype not in FLOATS and dtype not in COMPLEX
    alone = size == 1 and op not in PREMUL
    if whole or alone or op in ("min", "max"):
        return dict(_EXACT)
    eps = torch.finfo(dtype).eps
    if op == "product":
        return {"rtol": size * eps, "atol": _MAGNITUDE**size * eps * size * dtype.is_complex}
    extra = 0 if op == "sum" else 1
    scale = _MAX_FACTOR if op in PREMUL else 1.0
    return {"rtol": eps, "atol": (size + extra) * eps * size * _MAGNITUDE * scale}


def assert_reduced(got: torch.Tensor, want: torch.Tensor, op: str, size: int) -> None:
    """`got` is `want` (as `reference` gave it) up to the roundings that its dtype allows."""
    assert got.shape == want.shape, f"shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    got, want = got.cpu(), want.cpu()
    bounds = tolerance(op, got.dtype, size)
    if bounds == _EXACT:
        assert_same_bits(got, want.to(got.dtype))
    else:
        torch.testing.assert_close(got.to(want.dtype), want, **bounds)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor, for comparisons that know no dtype."""
    if tensor.numel() == 0:  # its strides may be such that no view of bytes exists
        return torch.empty(0, dtype=torch.uint8)
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def assert_same_bits(got: torch.Tensor, want: torch.Tensor) -> None:
    """Equal dtype and bytes; shapes are compared by element count only."""
    assert got.dtype == want.dtype, f"dtype {got.dtype}, expected {want.dtype}"
    assert got.numel() == want.numel(), f"{got.numel()} elements, expected {want.numel()}"
    if not torch.equal(bits(got), bits(want)):
        different = bits(got) != bits(want)
        at = int(different.nonzero()[0]) // got.element_size()
        raise AssertionError(
            f"{int(different.sum())} bytes differ, first in element {at}: "
            f"{got.reshape(-1)[at]} instead of {want.reshape(-1)[at]}"
        )
