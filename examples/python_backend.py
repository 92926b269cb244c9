"""A backend of your own, in Python: this one sums through torch's key-value store.

    torchrun --nproc-per-node 2 examples/python_backend.py

What is not overridden raises when it is called. Hooks, argument checks, events and the public API
are the same as for every other backend.
"""

import torch
from torch.distributed import PrefixStore, rendezvous
from torchcomms import CommOptions, ReduceOp, TorchCommBackend, new_comm, register_backend


class StoreBackend(TorchCommBackend):
    """Every rank publishes its tensor under its own key and reads everybody's."""

    def init(self, device: torch.device, name: str, options: CommOptions) -> None:
        self._name = name
        store, self._rank, self._size = next(rendezvous("env://", timeout=options.timeout))
        self._store = PrefixStore(name, store)
        self._operations = 0

    def finalize(self) -> None:
        del self._store

    def get_rank(self) -> int:
        return self._rank

    def get_size(self) -> int:
        return self._size

    def get_backend_name(self) -> str:
        return "store"

    def get_comm_name(self) -> str:
        return self._name

    def all_reduce(self, tensor: torch.Tensor, op: ReduceOp, async_op: bool) -> None:
        """Returning None says that the work is done."""
        if op != ReduceOp.SUM:
            raise ValueError(f"the store backend can only SUM, not {op.type.name}")
        self._operations += 1
        self._store.set(f"{self._operations}/{self._rank}", tensor.numpy().tobytes())
        keys = [f"{self._operations}/{rank}" for rank in range(self._size)]
        parts = [bytearray(self._store.get(key)) for key in keys]  # waits until it is there
        total = sum(torch.frombuffer(part, dtype=tensor.dtype) for part in parts)
        tensor.copy_(total.view_as(tensor))


def main() -> None:
    register_backend("store", StoreBackend)
    comm = new_comm("store", torch.device("cpu"), name="mine")
    tensor = torch.arange(4.0) + comm.get_rank()
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    print(f"rank {comm.get_rank()}: {tensor.tolist()} by {comm.get_backend()}", flush=True)
    comm.finalize()


if __name__ == "__main__":
    main()
