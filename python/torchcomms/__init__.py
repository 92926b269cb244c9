"""Communicators for PyTorch as objects.

``comm = torchcomms.new_comm("gloo", torch.device("cpu"), "main")`` connects this process with the
other ranks of the job. Operations are methods of the communicator, such as
``comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=False)``.
"""

from torchcomms import _native

_native.load()

from torchcomms import _comms, events, functional, objcol  # noqa: E402 (the native core must be there first)
from torchcomms._backends import (  # noqa: E402
    _load_backend,
    built_backends,
    is_backend_built,
)
from torchcomms._build_info import VERSION as __version__  # noqa: E402
from torchcomms._c10d import (  # noqa: E402
    register_where_torch_is_whole as _register_in_c10d,
)
from torchcomms._cmake import cmake_prefix_path  # noqa: E402
from torchcomms._comms import *  # noqa: E402, F403 (every public native name is ours)
from torchcomms._comms import (  # noqa: E402
    BatchP2POptions,
    BatchSendRecv,
    CommOptions,
    P2POp,
    ReduceOp,
    TorchComm,
    TorchCommBackend,
    TorchCommWindow,
    TorchWork,
    register_backend,
)
from torchcomms._hook_types import PostHookArgs, PreHookArgs  # noqa: E402
from torchcomms._methods import install as _install  # noqa: E402
from torchcomms._new_comm import new_comm  # noqa: E402
from torchcomms._reconfigure import reconfigure as _reconfigure  # noqa: E402
from torchcomms._shared_tensors import share_cpu_tensors  # noqa: E402
from torchcomms._shared_tensors import share_when_asked as _share_when_asked  # noqa: E402
from torchcomms._split import split as _split  # noqa: E402
from torchcomms._timeout import Timeout  # noqa: E402
from torchcomms._whole_torch import (  # noqa: E402
    as_soon_as_possible as _as_soon_as_possible,
)

__all__ = [  # noqa: RUF022 (the contract's order)
    "new_comm",
    "TorchComm",
    "ReduceOp",
    "TorchWork",
    "Timeout",
    "BatchP2POptions",
    "BatchSendRecv",
    "P2POp",
    "CommOptions",
    "TorchCommWindow",
    "register_backend",
    "TorchCommBackend",
]

# The public names show `torchcomms` as their module, whatever file defines them.
for _name in (*__all__, "share_cpu_tensors"):
    globals()[_name].__module__ = "torchcomms"
del _name

# `import *` above bound this name to the native module; the package `torchcomms.hooks` replaces it.
import torchcomms.hooks as hooks  # type: ignore[no-redef]  # noqa: E402, PLR0402

_install(TorchComm, _split)
_install(TorchComm, _reconfigure)
_as_soon_as_possible(functional._install_when_asked)
_register_in_c10d()
events._install_exit_printer()
_share_when_asked()
