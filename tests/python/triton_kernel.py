"""A Triton kernel that puts to the next rank and waits for its signal; for sm_90, without a GPU."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language import core

INT, LONG = core.dtype("int32"), core.dtype("int64")


def call(library, symbol, arguments, semantic):
    """`arguments`: pairs of a value and its type. The functions return an int32."""
    values = [core.to_tensor(v, _semantic=semantic).to(t, _semantic=semantic) for v, t in arguments]
    types = tuple(t for _, t in arguments)
    return core.extern_elementwise(
        "torchcomms", library, values, {types: (symbol, INT)}, is_pure=False, _semantic=semantic
    )


@core.extern
def put_block(handle, at, source, begin, rank, size, signal, counter, _semantic=None):
    longs, ints = (handle, at, source, begin), (signal, counter)
    arguments = [(v, LONG) for v in longs] + [(rank, INT), (size, LONG)] + [(v, INT) for v in ints]
    return call("", "torchcomms_put_block", arguments, _semantic)


@core.extern
def wait_signal(handle, signal, expected, _semantic=None):
    arguments = [(handle, LONG), (signal, INT), (expected, LONG)]
    return call("", "torchcomms_wait_signal", arguments, _semantic)


@triton.jit
def kernel(handle, source, peer, result):
    code = put_block(handle, 0, source, 0, peer, 4096, 0, -1)
    code += wait_signal(handle, 0, 1)
    tl.store(result, code)


def compiled(library: str) -> str:
    """As PTX."""
    signature = {"handle": "i64", "source": "i64", "peer": "i32", "result": "*i32"}
    made = triton.compile(
        ASTSource(fn=kernel, signature=signature),
        target=GPUTarget("cuda", 90, 32),
        options={"extern_libs": (("torchcomms", library),)},
    )
    return str(made.asm["ptx"])
