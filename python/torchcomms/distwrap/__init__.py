"""Functions of torch.distributed on communicators: ``import torchcomms.distwrap as dist``.

``dist.init_process_group("gloo", use_torchcomms=True)`` makes one communicator per device of the
group, and all functions use it. Without that argument the functions call torch.distributed, and add
what its backend lacks.
"""

from torch.distributed import (
    GroupMember,
    HashStore,
    ProcessGroup,
    ProcessGroupGloo,
    ReduceOp,
    Store,
    Work,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    is_available,
    is_initialized,
)

from torchcomms.distwrap import pginfo, utils  # noqa: F401 (sub-modules, not in __all__)
from torchcomms.distwrap._collectives import (
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    reduce_scatter_quantized,
    reduce_scatter_tensor,
    scatter,
)
from torchcomms.distwrap._groups import (
    destroy_process_group,
    init_process_group,
    new_group,
    split_group,
)
from torchcomms.distwrap._messages import P2POp, batch_isend_irecv, irecv, isend, recv, send
from torchcomms.distwrap._objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    get_mem_allocator,
    new_window,
    register_mem_pool,
    scatter_object_list,
)
from torchcomms.distwrap._ranks import _make_nccl_premul_sum

__all__ = [
    "GroupMember",
    "HashStore",
    "P2POp",
    "ProcessGroup",
    "ProcessGroupGloo",
    "ReduceOp",
    "Store",
    "Work",
    "_make_nccl_premul_sum",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_mem_allocator",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "irecv",
    "is_available",
    "is_initialized",
    "isend",
    "new_group",
    "new_window",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_quantized",
    "reduce_scatter_tensor",
    "register_mem_pool",
    "scatter",
    "scatter_object_list",
    "send",
    "split_group",
]

try:  # a torch that was built without CUDA has no such class
    from torch.distributed import ProcessGroupNCCL
except ImportError:
    pass
else:
    __all__ += ["ProcessGroupNCCL"]
