"""Process groups of torch.distributed, for measurements through them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from torchcomms.bench.world import LIMIT, World


class Group:
    """All ranks of the world on one backend of torch.distributed, as process group `group`."""

    def __init__(self, backend: str, name: str, world: World, device: torch.device) -> None:
        # With a device id the group connects when it is made, as a TorchComm does.
        bound = device if device.type != "cpu" and backend != "gloo" else None
        self._owns_default = not dist.is_initialized()
        if self._owns_default:
            store = world.store_of(name)
            dist.init_process_group(
                backend, store=store, rank=world.rank, world_size=world.size, timeout=LIMIT,
                device_id=bound,
            )  # fmt: skip
            self.group: Any = dist.group.WORLD
        else:
            self.group = dist.new_group(backend=backend, timeout=LIMIT)

    def close(self) -> None:
        dist.destroy_process_group(None if self._owns_default else self.group)
