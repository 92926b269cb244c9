"""Backends of ours under their names in torch.distributed: ``init_process_group("ctran")``.

torch 2.15 asks the entry points of group ``torch.distributed.backends`` for a name that it does not
know; with older ones, ``import torchcomms`` says it.
"""

import functools
import sys
from typing import Any

import torch
from torch.torch_version import TorchVersion

from torchcomms import _environment
from torchcomms._comms import _BackendWrapper
from torchcomms._new_comm import new_comm
from torchcomms._whole_torch import as_soon_as_possible

_DEVICES = {"ctran": "cpu"}


def create(
    backend: str,
    device: str,
    options: Any,  # noqa: ANN401
    _pg_options: object = None,
) -> _BackendWrapper:
    """A process group's backend, with what torch.distributed says of the group; on an accelerator,
    on the device that is current."""
    index = None if device == "cpu" else torch.accelerator.current_device_index()
    with _environment.variables(**_place(options)):
        comm = new_comm(
            backend,
            torch.device(device) if index is None else torch.device(device, index),
            name=str(options.group_id) or backend,
            store=options.store,
            timeout=options.timeout,
            hints={"persistent_store": "true"},
        )
    return _BackendWrapper(comm)


def _place(options: Any) -> dict[str, str]:  # noqa: ANN401
    """In the group, and in the job where this is not all of it, as a launcher says both."""
    place = {"TORCHCOMM_RANK": options.group_rank, "TORCHCOMM_SIZE": options.group_size}
    if ranks := options.global_ranks_in_group:
        place["RANK"] = ranks[options.group_rank]
        place["WORLD_SIZE"] = torch.distributed.get_world_size()
    return {name: str(number) for name, number in place.items()}


def _register(backend: str) -> None:
    from torch.distributed.distributed_c10d import Backend

    if backend.upper() not in Backend._plugins:
        device = _DEVICES[backend]
        make = functools.partial(create, backend, device)
        Backend.register_backend(backend, make, extended_api=True, devices=[device])


ctran = functools.partial(_register, "ctran")


def _register_all() -> bool:
    """False where torch.distributed does not have its backends yet."""
    if not hasattr(sys.modules.get("torch.distributed.distributed_c10d"), "Backend"):
        return False
    for backend in _DEVICES:
        _register(backend)
    return True


def register_where_torch_is_whole() -> None:
    """torch.distributed imports this package while it is made itself: a newer one asks later."""
    if TorchVersion(torch.__version__) < TorchVersion("2.15"):
        as_soon_as_possible(_register_all)
    else:
        _register_all()
