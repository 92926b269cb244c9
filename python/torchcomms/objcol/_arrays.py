"""Converts tensors and numpy objects to their bytes with a description, and back."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import torch

from torchcomms._dtype import dtype_name
from torchcomms.objcol._allowed import Conversion, by_name
from torchcomms.objcol._format import Refused, expect
from torchcomms.objcol._plain import constant, is_plain, plain_conversion

if TYPE_CHECKING:
    import numpy as np  # imported only where it is used: the import starts threads

_KINDS = "biufcmMSUV"  # numpy's kinds of plain memory; "O" holds Python objects
_DIMENSIONS = 64
_NOT_DENSE = ("torch.q", "torch.bits")  # dtypes that need more than their bytes


def _elements(shape: object, item: int, raw: object) -> int:
    """Returns the number of elements of a description that fits the bytes received.

    It is checked before memory is allocated.
    """
    if (
        type(shape) is not tuple
        or len(shape) > _DIMENSIONS
        or not all(type(n) is int and 0 <= n < 1 << 62 for n in shape)
    ):
        raise Refused(f"a shape is not a tuple of 0 to {_DIMENSIONS} sizes")
    size, count = len(expect(raw, bytearray)), math.prod(shape)
    if count * item != size or (count and not item):
        raise Refused(f"received {size} bytes for shape {shape} of {item}-byte elements")
    return count


def describe_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Returns (bytes, dtype, shape, device type, requires_grad, is a Parameter).

    If the bytes are dense but not in the order of the dimensions, as in a transposed matrix, the
    shape is that of the bytes. The tuple then ends with the dimension of the tensor for each
    dimension of the bytes.
    """
    cls = type(tensor)
    if cls not in (torch.Tensor, torch.nn.Parameter):
        raise Refused(f"{cls.__module__}:{cls.__qualname__} is not a plain tensor class")
    without_plain_data = tensor.is_quantized or tensor.is_nested or tensor.is_meta
    if tensor.layout != torch.strided or without_plain_data:
        nested = "nested, " if tensor.is_nested else ""
        what = f"{nested}{tensor.layout}, {dtype_name(tensor.dtype)}, on {tensor.device}"
        raise Refused(f"only dense tensors with data can be sent, not {what}")
    plain = tensor.detach().resolve_conj().resolve_neg().cpu()
    order: tuple[int, ...] = ()
    if not plain.is_contiguous():
        strides = plain.stride()
        by_stride = tuple(sorted(range(plain.dim()), key=lambda d: -strides[d]))
        if plain.permute(by_stride).is_contiguous():
            order = by_stride
            plain = plain.permute(order)
    flat = plain.contiguous().reshape(-1)
    return (
        bytearray(flat.view(torch.uint8).numpy() if flat.numel() else b""),
        str(tensor.dtype),
        tuple(plain.shape),
        tensor.device.type,
        tensor.requires_grad,
        cls is not torch.Tensor,
        *((order,) if order else ()),
    )


def make_tensor(data: Any, device: torch.device) -> torch.Tensor:  # noqa: ANN401
    """Makes the tensor, which owns the bytes.

    A tensor from an accelerator goes to `device` if that is of the same type.
    """
    raw, dtype_text, shape, where, requires_grad, parameter, *orders = expect(data, tuple)
    dtype = constant(torch.dtype, dtype_text)
    if str(dtype).startswith(_NOT_DENSE):
        raise Refused(f"tensors of {dtype_name(dtype)} cannot be received")
    if _elements(shape, dtype.itemsize, raw):
        raw_tensor = torch.frombuffer(raw, dtype=torch.uint8)
        # A peer may send any byte, but a bool is 0 or 1.
        tensor = raw_tensor.ne(0) if dtype is torch.bool else raw_tensor.view(dtype)
        tensor = tensor.reshape(shape)
    else:
        tensor = torch.empty(shape, dtype=dtype)
    for order in orders:
        tensor = tensor.permute(_inverse(order, tensor.dim()))
    if expect(where, str) != "cpu" and where == device.type:
        tensor = tensor.to(device)
    if parameter is True:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad is True)
    return tensor.requires_grad_() if requires_grad is True else tensor


def _inverse(order: Any, dimensions: int) -> list[int]:  # noqa: ANN401
    """Returns the inverse permutation of `order`, which must contain each dimension once."""
    plain = type(order) is tuple and is_plain(order)
    if not plain or sorted(order) != list(range(dimensions)):
        raise Refused(f"the order of {dimensions} dimensions does not contain each one once")
    return sorted(range(dimensions), key=order.__getitem__)


def _without_objects(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.hasobject or dtype.kind not in _KINDS:
        raise Refused(f"the numpy dtype {dtype} holds Python objects")
    return dtype


def _describe_dtype(dtype: np.dtype[Any]) -> tuple[Any]:
    import numpy as np

    return (np.lib.format.dtype_to_descr(_without_objects(dtype)),)


def _make_dtype(description: Any) -> np.dtype[Any]:  # noqa: ANN401
    import numpy as np

    return _without_objects(np.lib.format.descr_to_dtype(description))


def _describe_array(array: np.ndarray[Any, Any] | np.generic) -> tuple[Any, ...]:
    """Returns the bytes, in C order, the shape, and the description of the dtype."""
    return bytearray(array.tobytes()), tuple(array.shape), *_describe_dtype(array.dtype)


def _make_array(raw: Any, shape: Any, description: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401
    """Makes a writable array, which owns the bytes."""
    import numpy as np

    dtype = _make_dtype(description)
    if not _elements(shape, dtype.itemsize, raw):
        return np.empty(shape, dtype)
    array = np.frombuffer(raw, np.uint8 if dtype.kind == "b" else dtype)
    return (array != 0 if dtype.kind == "b" else array).reshape(shape)


def _make_scalar(raw: Any, description: Any) -> Any:  # noqa: ANN401
    return _make_array(raw, (), description)[()]


_ARRAY = plain_conversion("numpy:ndarray", _describe_array, _make_array)
_SCALAR = plain_conversion(
    "numpy:generic", lambda v: (bytearray(v.tobytes()), *_describe_dtype(v.dtype)), _make_scalar
)
_DTYPE = plain_conversion("numpy:dtype", _describe_dtype, _make_dtype)
for _row in (_ARRAY, _SCALAR, _DTYPE):
    by_name[_row.name] = _row


def of_numpy_class(cls: type) -> Conversion | None:
    """Returns the conversion of numpy objects; None if `cls` is not theirs."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return None
    if issubclass(cls, numpy.generic):
        return _SCALAR
    if issubclass(cls, numpy.dtype):
        return _DTYPE
    return _ARRAY if cls is numpy.ndarray else None
