"""Registers backends under their names in torch.distributed: ``init_process_group("ctran")``.

torch 2.15 and later look up an unknown name in the entry points of group
``torch.distributed.backends``. With older versions, ``import torchcomms`` registers the backends.
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
    """Makes the backend of a process group; torch.distributed calls it.

    Args:
        backend: the name of the backend, such as "ctran".
        device: "cpu", or the type of an accelerator, of which the current device is used.
        options: torch's DistributedBackendOptions: store, timeout, group id, rank and size.
    """
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
    """The launcher variables for the rank and size in the group.

    If the group is a part of the job, the variables also give the rank and size in the job.
    """
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
    """Registers the backends. Returns False if torch.distributed has no class Backend yet."""
    if not hasattr(sys.modules.get("torch.distributed.distributed_c10d"), "Backend"):
        return False
    for backend in _DEVICES:
        _register(backend)
    return True


def register_where_torch_is_whole() -> None:
    """Registers the backends as early as torch allows.

    torch.distributed imports this package during its own import, so registration may have to wait.
    torch 2.15 and later call the entry point instead.
    """
    if TorchVersion(torch.__version__) < TorchVersion("2.15"):
        as_soon_as_possible(_register_all)
    else:
        _register_all()
