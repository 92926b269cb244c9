"""Windows and transports in Triton kernels: the device functions as a library of LLVM bitcode.

A kernel receives a handle as an int64, from `window.get_device_window()` or
`comm.get_device_transport()`. It calls the C functions of `include/torchcomms/device/symbols.hpp`,
which Triton links from `device_library()`.
"""

from __future__ import annotations

from pathlib import Path

import torchcomms

__all__ = ["device_library"]


def device_library() -> Path:
    """The file to pass to `extern_elementwise` and in a kernel's `extern_libs`.

    Raises:
        torchcomms.Unsupported: this build has no device library, because it found no clang with the
            target nvptx64.
    """
    file = Path(__file__).parent / "libtorchcomms_device.bc"
    if not file.is_file():
        raise torchcomms.Unsupported(
            "this build has no device library: install a clang++ with target nvptx64 and llvm-as,"
            " and build torchcomms again"
        )
    return file
