"""The table of backends under test: one row each, nothing else in the suite names them all."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, replace
from pathlib import Path

# What some backends have not of the contract's wider promises, and why.
LACKS = {
    "bitwise": "its library has no bitwise reductions",
    "element_factors": "its factors of PREMUL_SUM are read before the operation runs",
    "narrow_reductions": "its sums are in the elements' dtype",
    "propagated_nans": "its library's MIN and MAX drop a NaN",
    "created_at_once": "ranks that make several communicators at once may wait for ever",
    "messages": "its library has no messages between two ranks",
    "early_sends": "its library has no messages between two ranks",
    "unordered_messages": "its library has no messages between two ranks",
    "local_finalize": "its ranks leave the library together",
    "different_orders": "a communicator's first operation waits for all ranks",
    "split_among_listed": "all ranks take part in its splits",
    "all_in_captures": "it copies some operations through host memory, which no graph can do",
}

# As many as most tests have at most; what is measured for them is stretched for more.
USUAL_RANKS = 4
# Set: several ranks may have one GPU, whose time they then share; their times say nothing.
SHARES_GPUS = "TEST_SHARE_GPUS" in os.environ


@dataclass(frozen=True)
class Backend:
    """A backend, the world sizes it is tested at, and what it may refuse by contract."""

    name: str
    device: str = "cpu"
    sizes: tuple[int, ...] = (1, 2, 3, 4)
    # More sizes, in `./dev check` only.
    slow_sizes: tuple[int, ...] = ()
    # False: operations complete without moving data (`fake`), so only calls and errors are tested.
    moves_data: bool = True
    # False: send or recv with oneself is refused, in and outside of a batch.
    self_messages: bool = False
    # False: a second finalize(), or an operation after it, is accepted.
    finalizes_once: bool = True
    # False: wait_blocking() of a work started with async_op=True is refused.
    host_waits_for_async: bool = False
    # True: an operation that fails ends its communicator: is_aborted(), and later calls raise too.
    fails_as_a_whole: bool = False
    # True: abort() ends a communicator's operations.
    aborts: bool = False
    # What it has of the optional parts; the rest must be refused.
    optional: frozenset[str] = frozenset()
    # Of every communicator, and what tells this row from others of the same backend.
    hints: tuple[tuple[str, str], ...] = ()
    variant: str = ""
    # What each rank calls its host, where one machine is to be several.
    hosts: tuple[str, ...] = ()
    # The vendor's library is this file of the stand-in (tests/standin), named by this variable.
    library: tuple[str, str] | None = None
    # Whose library it is over: the file that the loader finds, and what its functions begin with.
    vendor: tuple[str, str] | None = None
    # The same, of a library that is not part of the build: the variable that names its folder, and
    # what sets that.
    installed: tuple[str, str] | None = None
    # Variables that its ranks need beside those.
    settings: tuple[tuple[str, str], ...] = ()
    # True: kernels run some of its operations, those of the stand-in where `library` is one.
    kernels: bool = False
    # The modules of tests/spec that run on it; None: all.
    modules: frozenset[str] | None = None
    # What it has not of the contract's wider promises; tests say with the mark `worlds(needs=...)`.
    lacks: frozenset[str] = frozenset()
    # True: tests of what it lacks are shown as skipped, with the reason in LACKS.
    tells_lacks: bool = False

    @property
    def label(self) -> str:
        return self.name + self.variant

    def missing(self, ranks: int = 1) -> str | None:
        """Why `ranks` of this backend cannot run on this machine, or None when they can."""
        import torch
        import torchcomms

        if not torchcomms.is_backend_built(self.name):
            return f"backend {self.name} is not part of this build"
        devices = torch.cuda.device_count() if self.device == "cuda" else ranks
        if devices < ranks and not (SHARES_GPUS and devices > 0):
            return f"{ranks} ranks on CUDA need as many devices, not {devices}"
        if self.installed is not None and self.installed[0] not in os.environ:
            return f"needs a library that {self.installed[1]} installs"
        if self.library is not None and not Path(self.environment[self.library[0]]).is_file():
            return "this build has no stand-in library (it comes with the C++ tests)"
        kernels = Path(torchcomms.__file__).parent / "libtorchcomms_kernels_cuda.so"
        if self.kernels and self.library is None and not kernels.is_file():
            return "this build has no kernels for GPUs (nvcc was not there)"
        return None

    def environment_of(self, rank: int) -> dict[str, str]:
        """Variables that this rank needs."""
        variables = dict(self.environment)
        if self.hosts:
            variables["TORCHCOMM_CTRAN_HOST_ID"] = self.hosts[rank]
        if self.device == "cuda" and SHARES_GPUS:
            variables["NCCL_HOSTID"] = f"rank {rank}"  # it refuses ranks of one host on one GPU
        return variables

    @property
    def environment(self) -> dict[str, str]:
        """Variables that all its ranks need."""
        if self.device == "cuda":
            # By default work of more than 8 streams may wait for work of another one.
            return {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
        if self.installed is not None and self.vendor is not None:
            library = Path(os.environ[self.installed[0]], self.vendor[0])
            variable = f"TORCHCOMM_{self.name.upper()}_LIBRARY"
            return {variable: str(library), **dict(self.settings)}
        if self.library is None:
            return {}
        from torchcomms import _comms

        variable, file = self.library
        build = Path(_comms.__file__).parents[2]  # the module is in stage/torchcomms
        files = {variable: file}
        if self.kernels:
            files["TORCHCOMM_KERNELS_LIBRARY"] = "libstand_in_kernels.so"
        paths = {name: str(build / "stand_in" / one) for name, one in files.items()}
        return {**paths, **dict(self.settings)}

    def version(self) -> str:
        """What it must call its version: of one over a vendor's library what that says itself."""
        if self.vendor is None:
            import torchcomms

            return torchcomms.__version__
        soname, prefix = self.vendor
        library = ctypes.CDLL(self.environment[self.library[0]] if self.library else soname)
        number = ctypes.c_int()
        assert library[f"{prefix}GetVersion"](ctypes.byref(number)) == 0
        code = number.value
        nccls = f"{code // 10000}.{code // 100 % 100}.{code % 100}"
        return nccls if prefix == "nccl" else str(code)

    def reduces(self, op: str, dtype: object) -> bool:
        """Whether it has that reduction, where the contract defines it."""
        import torch

        if "bitwise" in self.lacks and op in ("band", "bor", "bxor"):
            return False
        narrow = (torch.int16, torch.uint16, torch.complex64, torch.complex128)
        return "all_dtypes" not in self.lacks or dtype not in narrow


CTRAN = Backend(
    "ctran",
    sizes=(1, 2, 4),
    slow_sizes=(16,),  # many more ranks than cores
    self_messages=True,
    host_waits_for_async=True,
    fails_as_a_whole=True,
    aborts=True,
    optional=frozenset(
        {
            "abort",
            "set_timeout",
            "set_hints",
            "get_backend_version",
            "get_init_handle",
            "reconfigure",
            "new_window",
            "window_allocate",
            "tensor_register",
            "tensor_deregister",
        }
    ),
    lacks=frozenset({"device_windows", "kernel_tuning", "registered"}),
)
# Vendors' libraries, over the stand-in. One source serves them all: nccl runs what says something
# about a backend's own work, the others what shows that their row is right.
_VENDOR_LACKS = frozenset(
    {
        "bitwise",
        "all_dtypes",
        "element_factors",
        "narrow_reductions",
        "propagated_nans",
        # Operations wait for those before them, also for a message that has not come.
        "unordered_messages",
        # The ranks leave the library together, and split together.
        "local_finalize",
        "split_among_listed",
    }
)
NCCL = Backend(
    "nccl",
    sizes=(3,),
    self_messages=True,
    fails_as_a_whole=True,
    aborts=True,
    optional=frozenset(
        {
            "abort",
            "get_backend_version",
            "get_init_handle",
            "reconfigure",
            "set_timeout",
            "get_mem_allocator",
            "mem_allocator",
            "tensor_register",
            "tensor_deregister",
            "all_gather_p_init",
            "new_window",
            "window_allocate",
        }
    ),
    library=("TORCHCOMM_NCCL_LIBRARY", "libstand_in_nccl.so"),
    vendor=("libnccl.so.2", "nccl"),
    lacks=_VENDOR_LACKS,
    modules=frozenset(
        [
            "all_gather",
            "all_gather_single",
            "batch_invariant",
            "all_gather_v",
            "all_reduce",
            "all_to_all",
            "all_to_all_single",
            "all_to_all_v_single",
            "async",
            "barrier",
            "batch",
            "broadcast",
            "dtypes",
            "gather",
            "gather_single",
            "nan",
            "reduce",
            "reduce_ops",
            "reduce_scatter",
            "reduce_scatter_single",
            "reduce_scatter_v",
            "reconfigure",
            "reconfigure_agreement",
            "reconfigure_observed",
            "scatter",
            "send_recv",
            "shapes",
            "unsupported",
            "vendors",
            "windows",
            "windows_of_libraries",
        ]
    ),
)
# What says little about how data move.
_LIVES = frozenset(
    [
        "bad_input",
        "finalize",
        "hints",
        "multi_comm",
        "new_comm",
        "object_collectives",
        "properties",
        "split",
        "work",
    ]
)
NCCL_OF_TWO = replace(NCCL, sizes=(2,), modules=_LIVES | {"limits", "timeouts"})
# Messages of single calls have communicators of two ranks.
NCCL_LAZY = replace(
    NCCL,
    name="nccl-lazy",
    # A first message of two ranks connects them, and waits for both: rings of messages, as in
    # "send_recv", are for batches.
    modules=frozenset({"batch", "reconfigure", "split"}),
)
RCCL = replace(
    NCCL,
    name="rccl",
    sizes=(2,),
    library=("TORCHCOMM_RCCL_LIBRARY", "libstand_in_nccl.so"),
    vendor=("librccl.so.1", "nccl"),
    modules=frozenset({"nan", "reduce_ops", "vendors", "windows_of_libraries"}),
)
RCCLX = replace(
    RCCL,
    name="rcclx",
    sizes=(2, 3, 4),
    library=("TORCHCOMM_RCCLX_LIBRARY", "libstand_in_nccl.so"),
    vendor=("librcclx.so.1", "nccl"),
    modules=frozenset({"sharded_relay", "vendors"}),
)
# Small operations are kernels, which the other rows have not; the rest is nccl's.
NCCLX = replace(
    NCCL,
    name="ncclx",
    sizes=(2,),
    library=("TORCHCOMM_NCCLX_LIBRARY", "libstand_in_nccl.so"),
    kernels=True,
    optional=NCCL.optional | {"get_device_transport"},
    lacks=_VENDOR_LACKS - {"propagated_nans"},
    modules=frozenset(
        [
            "all_gather_single",
            "batch_invariant",
            "all_reduce",
            "all_to_all_single",
            "async",
            "barrier",
            "broadcast",
            "device_windows",
            "dtypes",
            "gather_single",
            "growing",
            "nan",
            "ncclx",
            "reconfigure",
            "reduce",
            "reduce_ops",
            "reduce_scatter_single",
            "registered",
            "registered_messages",
            "shapes",
            "tuning",
            "unsupported",
            "vendors",
        ]
    ),
)
# Backend ctran on a GPU: kernels, and nothing of a vendor's.
CTRAN_KERNELS = replace(
    NCCL,
    name="ctran",
    variant="-kernels",
    sizes=(2, 3),
    optional=CTRAN.optional
    | {"all_gather_p_init", "get_mem_allocator", "mem_allocator", "get_device_transport"},
    library=("TORCHCOMM_KERNELS_LIBRARY", "libstand_in_kernels.so"),
    kernels=True,
    vendor=None,
    # Operations are the kernels', what is agreed beside them the links': neither sees the other's.
    lacks=_VENDOR_LACKS
    - {"bitwise", "all_dtypes", "narrow_reductions", "propagated_nans", "split_among_listed"}
    | {"one_engine"},
    modules=(NCCL.modules or frozenset()) - {"vendors"}
    | {"device_windows", "finalize", "growing", "properties", "registered"}
    | {"registered_messages"}
    | {"split", "tuning", "work"},
)
# Kernels of both, whose workspace grows.
_GROWING = (("TORCHCOMM_KERNELS_WORKSPACE", "growing"),)
_GROW = frozenset(
    {
        "all_gather_single",
        "all_reduce",
        "batch_invariant",
        "disagreement",
        "limits",
        "ncclx",
        "reconfigure",
        "reduce_scatter_single",
        "registered",
        "shapes",
        "split",
    }
)


def _growing(row: Backend) -> Backend:
    return replace(
        row,
        variant=f"{row.variant}-growing",
        settings=_GROWING,
        modules=(row.modules or frozenset()) & _GROW,
    )


NCCLX_GROWING = _growing(NCCLX)
CTRAN_KERNELS_GROWING = replace(_growing(CTRAN_KERNELS), sizes=(3,))
# The same on several hosts: kernels inside, links between, and some operations staged.
CTRAN_HOSTS = replace(
    CTRAN,
    variant="-kernels-hosts",
    sizes=(4,),
    slow_sizes=(),
    library=("TORCHCOMM_KERNELS_LIBRARY", "libstand_in_kernels.so"),
    kernels=True,
    hosts=("a", "a", "b", "b"),
    modules=frozenset(
        {
            "all_gather_single",
            "batch_invariant",
            "all_reduce",
            "async",
            "barrier",
            "broadcast",
            "nan",
            "reconfigure",
            "reduce_ops",
            "reduce_scatter_single",
            "shapes",
            "split",
        }
    ),
)
XCCL = replace(
    RCCL,
    name="xccl",
    aborts=False,
    optional=frozenset({"get_backend_version", "all_gather_p_init", "set_timeout"}),
    library=("TORCHCOMM_XCCL_LIBRARY", "libstand_in_oneccl.so"),
    vendor=("libccl.so.2", "oneccl"),
)
# By the part for the CPU, where calls of the library block: here of the stand-in, whose streams are
# not asked.
_ON_HOST = (("CCL_PLUGIN", "ONECCL_LEGACY_CPU"),)
XCCL_ON_HOST = replace(
    XCCL,
    variant="-on-host",
    sizes=(2, 3),
    settings=_ON_HOST,
    lacks=_VENDOR_LACKS | {"messages", "early_sends"},
    modules=frozenset(
        {
            "all_gather_v",
            "all_to_all_v_single",
            "async",
            "gather",
            "nan",
            "reduce_ops",
            "scatter",
            "vendors",
        }
    ),
)
# And of oneCCL itself, as `./dev test --xccl` does.
ONECCL = replace(
    XCCL_ON_HOST,
    variant="-oneccl",
    library=None,
    installed=("TC_TEST_ONECCL", "./dev test --xccl"),
    # Its workers spin, and have no core to themselves here.
    settings=(
        *_ON_HOST,
        ("CCL_YIELD", "sched_yield"),
        ("CCL_ATL_TRANSPORT", "ofi"),
        ("CCL_LOG_LEVEL", "error"),
    ),
    sizes=(2,),
    lacks=XCCL_ON_HOST.lacks | {"created_at_once"},
    tells_lacks=True,
    modules=(NCCL.modules or frozenset())
    - {
        "batch_invariant",
        "nan",
        "reconfigure",
        "reconfigure_agreement",
        "reconfigure_observed",
        "unsupported",
    }
    | _LIVES,
)
# What may depend on the number of ranks.
ONECCL_OF_THREE = replace(
    ONECCL,
    sizes=(3,),
    modules=frozenset(
        {
            "all_to_all_v_single",
            "all_gather_v",
            "gather",
            "reduce",
            "reduce_ops",
            "scatter",
            "split",
        }
        | {"vendors"}
    ),
)
# The same on GPUs, a process each. Kernels of ncclx and ctran are launched without a wait.
_LACKS_ON_GPUS = _VENDOR_LACKS | {"early_sends"}
_ON_GPUS = replace(
    NCCL,
    device="cuda",
    variant="-cuda",
    sizes=(2, 4),
    library=None,
    # Of ranks that all send first, outside of a batch, each may wait for the other to receive.
    lacks=_LACKS_ON_GPUS | {"different_orders"},
    modules=(NCCL.modules or frozenset()) | _LIVES,
)
ON_GPUS = (
    _ON_GPUS,
    replace(_ON_GPUS, name="nccl-lazy"),
    replace(
        _ON_GPUS,
        name="ncclx",
        kernels=True,
        lacks=_LACKS_ON_GPUS - {"propagated_nans"},
        optional=NCCLX.optional,
        modules=_ON_GPUS.modules | {"device_windows", "growing", "ncclx", "registered", "tuning"},
    ),
    replace(
        CTRAN_KERNELS,
        device="cuda",
        variant="-cuda",
        sizes=(2, 4),
        library=None,
        lacks=CTRAN_KERNELS.lacks | {"early_sends"},
    ),
    replace(
        CTRAN_HOSTS,
        device="cuda",
        variant="-cuda-hosts",
        sizes=(2,),
        library=None,
        hosts=("a", "b"),
        lacks=CTRAN_HOSTS.lacks | {"all_in_captures"},
    ),
)
BACKENDS = (
    Backend("gloo", optional=frozenset({"get_init_handle", "reconfigure", "set_timeout"})),
    CTRAN,
    replace(
        CTRAN,
        sizes=(3,),
        slow_sizes=(1, 2, 4),
        hints=(("ctran::transport", "tcp"),),
        variant="-tcp",
    ),
    NCCL,
    NCCL_OF_TWO,
    NCCL_LAZY,
    NCCLX,
    NCCLX_GROWING,
    CTRAN_KERNELS,
    CTRAN_KERNELS_GROWING,
    CTRAN_HOSTS,
    RCCL,
    RCCLX,
    XCCL,
    XCCL_ON_HOST,
    ONECCL,
    ONECCL_OF_THREE,
    *ON_GPUS,
    Backend(
        "fake",
        sizes=(1,),
        moves_data=False,
        self_messages=True,
        finalizes_once=False,
        optional=frozenset(
            {
                "tensor_register",
                "tensor_deregister",
                "set_timeout",
                "set_hints",
                "abort",
                "new_window",
                "window_allocate",
            }
        ),
        host_waits_for_async=True,
    ),
)
