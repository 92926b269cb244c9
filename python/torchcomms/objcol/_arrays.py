"""Converts tensors, numpy arrays and numpy scalars to a description and their bytes, and back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from torchcomms._dtype import dtype_name
from torchcomms.objcol._format import Refused
from torchcomms.objcol._plain import constant

if TYPE_CHECKING:
    import numpy as np  # imported only where it is used: the import starts threads

_KINDS = "biufcmMSUV"  # numpy's kinds of plain memory; "O" holds Python objects
_DIMENSIONS = 64
_NOT_DENSE = ("torch.q", "torch.bits")  # dtypes that need more than their bytes


def _elements(shape: object) -> int:
    """Returns the number of elements of `shape`, which must be a short tuple of numbers >= 0."""
    if (
        type(shape) is not tuple
        or len(shape) > _DIMENSIONS
        or not all(type(n) is int and 0 <= n < 1 << 62 for n in shape)
    ):
        raise Refused(f"{str(shape)[:80]} is not a shape")
    return math.prod(shape)


def _expect_bytes(shape: object, item: int, raw: memoryview) -> None:
    """Checks that the description fits the bytes received, before memory is allocated."""
    count = _elements(shape)
    if count * item != len(raw) or (count and not item):
        raise Refused(f"received {len(raw)} bytes for shape {shape} of {item}-byte elements")


def describe_tensor(tensor: torch.Tensor) -> tuple[tuple[Any, ...], bytes]:
    """Returns a description of the tensor and its bytes.

    The description is (dtype, shape, device type, requires_grad, is a Parameter). If the bytes are
    dense but not in the order of the dimensions, as in a transposed matrix, the shape is that of
    the bytes. The description then ends with the dimension of the tensor for each dimension of the
    bytes.
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
    about = (
        str(tensor.dtype),
        tuple(plain.shape),
        tensor.device.type,
        tensor.requires_grad,
        cls is not torch.Tensor,
        *((order,) if order else ()),
    )
    flat = plain.contiguous().reshape(-1)
    return about, flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def make_tensor(about: Any, raw: memoryview, device: torch.device) -> torch.Tensor:  # noqa: ANN401
    """Makes the tensor.

    A tensor from an accelerator goes to `device` if that is of the same type.
    """
    dtype_text, shape, where, requires_grad, parameter, *orders = about
    dtype = constant(torch.dtype, dtype_text)
    if str(dtype).startswith(_NOT_DENSE):
        raise Refused(f"tensors of {dtype_name(dtype)} cannot be received")
    _expect_bytes(shape, dtype.itemsize, raw)
    if len(raw):
        # Copies the bytes: the tensor must be writable, and must not keep the whole message alive.
        raw_tensor = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
        # A peer may send any byte, but a bool is 0 or 1.
        tensor = raw_tensor.ne(0) if dtype is torch.bool else raw_tensor.view(dtype)
        tensor = tensor.reshape(shape)
    else:
        tensor = torch.empty(shape, dtype=dtype)
    for order in orders:
        tensor = tensor.permute(_inverse(order, tensor.dim()))
    if where != "cpu" and where == device.type:
        tensor = tensor.to(device)
    if parameter is True:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad is True)
    return tensor.requires_grad_() if requires_grad is True else tensor


def _inverse(order: Any, dimensions: int) -> list[int]:  # noqa: ANN401
    """Returns the inverse permutation of `order`, which must contain each dimension once."""
    if type(order) is not tuple or sorted(order) != list(range(dimensions)):
        raise Refused(f"{str(order)[:80]} is not an order of {dimensions} dimensions")
    return sorted(range(dimensions), key=order.__getitem__)


def describe_dtype(dtype: np.dtype[Any]) -> Any:  # noqa: ANN401
    """Returns the description that `make_dtype` takes."""
    if dtype.hasobject or dtype.kind not in _KINDS:
        raise Refused(f"a numpy array of {dtype} holds Python objects")
    import numpy as np

    return np.lib.format.dtype_to_descr(dtype)


def make_dtype(description: Any) -> np.dtype[Any]:  # noqa: ANN401
    """Makes the numpy dtype. Raises Refused for a dtype that is not plain memory."""
    import numpy as np

    dtype = np.lib.format.descr_to_dtype(description)
    if dtype.hasobject or dtype.kind not in _KINDS:
        raise Refused(f"the numpy dtype {dtype} holds Python objects")
    return dtype


def describe_array(array: np.ndarray[Any, Any] | np.generic) -> tuple[tuple[Any, ...], bytes]:
    """Returns (description of the dtype, shape) and the bytes, in C order."""
    return (describe_dtype(array.dtype), tuple(array.shape)), array.tobytes()


def make_array(about: Any, raw: memoryview) -> np.ndarray[Any, Any]:  # noqa: ANN401
    """Makes a writable array."""
    import numpy as np

    description, shape = about
    dtype = make_dtype(description)
    _expect_bytes(shape, dtype.itemsize, raw)
    if not len(raw):
        return np.empty(shape, dtype)
    array = np.frombuffer(bytearray(raw), np.uint8 if dtype.kind == "b" else dtype)
    return (array != 0 if dtype.kind == "b" else array).reshape(shape)
