"""
Registers the backend on import.
"""

from __future__ import annotations
import collections.abc
import torch
import torchcomms._comms
from torchcomms._comms import TorchCommWindow as TorchCommWindowNCCLXGin
from torchcomms._comms import TorchCommWindow as TorchCommWindowNCCLXPipes

__all__: list[str] = [
    "TorchCommNCCLX",
    "TorchCommWindowNCCLXGin",
    "TorchCommWindowNCCLXPipes",
    "comm_dump_all",
    "init_caching_allocator_hook",
    "kernel_table",
]

class TorchCommNCCLX(torchcomms._comms.TorchCommBackend):
    """
    The backend behind a communicator; from TorchComm.get_backend_impl().
    """
    def comm_dump(self) -> dict[str, str]:
        """
        What is known of the communicator, in words: commHash, rank, nRanks and more.
        """
    def device_alltoallv_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: torch.Tensor,
        input_split_sizes: torch.Tensor,
        async_op: bool,
    ) -> torchcomms._comms.TorchWork:
        """
        all_to_all_v_single whose sizes, in elements, are int64 on the device, and read there.
        """
    def get_nccl_comm_ptr(self) -> int:
        """
        The library's communicator, as a number.
        """
    def reduce_scatter_quantized(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        op: torchcomms._comms.ReduceOp,
        seed: torch.Tensor,
        async_op: bool,
    ) -> torchcomms._comms.TorchWork:
        """
        reduce_scatter_single of float32 that travels as bfloat16, rounded by chance: SUM or AVG; seed is an int64 on the device.
        """
    def set_config(self, hints: collections.abc.Mapping[str, str]) -> None:
        """
        Changes who runs which collective: allreduceAlgo and the like.
        """

def comm_dump_all(hints: collections.abc.Mapping[str, str] = {}) -> dict[str, dict[str, str]]:
    """
    comm_dump() of all communicators of this process, by commHash, and GlobalInfo.
    """

def init_caching_allocator_hook() -> None:
    """
    From now on communicators of this backend tell the library of the memory that torch's caching allocator has of their device. May be repeated. Raises Unsupported without CUDA.
    """

def kernel_table() -> list[tuple[str, int, int]]:
    """
    (operation, ranks at most, bytes at most) of the collectives that kernels run.
    """
