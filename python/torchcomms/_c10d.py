"""Backends of ours under their names in torch.distributed: ``init_process_group("ctran")``.

torch 2.15 asks the entry points of group ``torch.distributed.backends`` for a name that it does not
know; with older ones, ``import torchcomms`` says it.
"""

import functools
import os
import sys
from typing import Any

import torch

from torchcomms._comms import _BackendWrapper
from torchcomms._new_comm import new_comm

_DEVICES = {"ctran": ["cpu"]}


def _create(backend: str, options: Any, _pg_options: object = None) -> _BackendWrapper:  # noqa: ANN401
    """A process group's backend, with what torch.distributed says of the group."""
    of_group = {"TORCHCOMM_RANK": options.group_rank, "TORCHCOMM_SIZE": options.group_size}
    before = {name: os.environ.get(name) for name in of_group}
    os.environ.update({name: str(value) for name, value in of_group.items()})
    try:
        comm = new_comm(
            backend,
            torch.device(_DEVICES[backend][0]),
            name=str(options.group_id) or None,
            store=options.store,
            timeout=options.timeout,
            hints={"persistent_store": "true"},
        )
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return _BackendWrapper(comm)


def _register(backend: str) -> None:
    from torch.distributed.distributed_c10d import Backend

    if backend.upper() not in Backend._plugins:
        create = functools.partial(_create, backend)
        Backend.register_backend(backend, create, extended_api=True, devices=_DEVICES[backend])


ctran = functools.partial(_register, "ctran")


def register_where_torch_is_whole() -> None:
    """torch.distributed imports this package while it is made itself: then it asks later."""
    if hasattr(sys.modules.get("torch.distributed.distributed_c10d"), "Backend"):
        for backend in _DEVICES:
            _register(backend)
