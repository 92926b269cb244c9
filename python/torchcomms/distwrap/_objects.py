"""Object collectives, memory pools and windows of a group."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import ProcessGroup
from torch.distributed import distributed_c10d as c10d

import torchcomms
from torchcomms import objcol
from torchcomms.distwrap import utils
from torchcomms.distwrap._ranks import group_rank


def _comm(
    group: ProcessGroup | None, device: torch.device | None = None
) -> torchcomms.TorchComm | None:
    """The group's first communicator, or that of `device`; None if torch does the work."""
    if not utils.torchcomms_is_enabled():
        return None
    return utils.get_torchcomms_instance(
        utils.get_group(group), None if device is None else torch.device(device).type
    )


def all_gather_object(
    object_list: list[Any],
    obj: Any,  # noqa: ANN401
    group: ProcessGroup | None = None,
    weights_only: bool = True,
) -> None:
    """Puts every rank's object into the list of each rank, in rank order.

    With torchcomms only data can be sent, see torchcomms.objcol, unless `weights_only` is False.
    Without torchcomms, torch's function pickles the objects.

    Args:
        object_list: list of as many elements as there are ranks.
        obj: the object of this rank.
        group: the process group; None: the default group.
        weights_only: False allows pickles, so that any peer can run code here.
    Raises:
        InvalidArgument, UnsafeObject, TooLarge, ...: see torchcomms.objcol.all_gather_object.
    """
    comm = _comm(group)
    if comm is None:
        c10d.all_gather_object(object_list, obj, group)
    else:
        objcol.all_gather_object(comm, object_list, obj, weights_only=weights_only)


def gather_object(  # noqa: PLR0917 (the contract's order)
    obj: Any,  # noqa: ANN401
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    group_dst: int | None = None,
    weights_only: bool = True,
) -> None:
    """Puts every rank's object into the list of `dst` (global rank), or of `group_dst`.

    `weights_only` and errors: see all_gather_object.
    """
    root = group_rank(utils.get_group(group), dst, group_dst, "dst")
    comm = _comm(group)
    if comm is None:
        c10d.gather_object(obj, object_gather_list, group=group, group_dst=root)
    else:
        objcol.gather_object(comm, obj, root, object_gather_list, weights_only=weights_only)


def scatter_object_list(  # noqa: PLR0917 (the contract's order)
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    group_src: int | None = None,
    weights_only: bool = True,
) -> None:
    """Sends each rank its object of the list of `src` (global rank), or of `group_src`.

    `weights_only` and errors: see all_gather_object.
    """
    root = group_rank(utils.get_group(group), src, group_src, "src")
    comm = _comm(group)
    output, given = scatter_object_output_list, scatter_object_input_list
    if comm is None:
        c10d.scatter_object_list(output, given, group=group, group_src=root)
    else:
        objcol.scatter_object_list(comm, root, output, given, weights_only=weights_only)


def broadcast_object_list(  # noqa: PLR0917 (the contract's order)
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: torch.device | None = None,
    group_src: int | None = None,
    weights_only: bool = True,
) -> None:
    """Sends the objects of `src` (global rank), or of `group_src`, to every rank.

    `weights_only` and errors: see all_gather_object.
    """
    root = group_rank(utils.get_group(group), src, group_src, "src")
    comm = _comm(group, device)
    if comm is None:
        c10d.broadcast_object_list(object_list, group=group, device=device, group_src=root)
    else:
        objcol.broadcast_object_list(comm, object_list, root, weights_only=weights_only)


def get_mem_allocator(group: ProcessGroup, device: torch.device) -> Any:  # noqa: ANN401
    """The allocator whose memory suits the group's backend for `device` best."""
    comm = _comm(group, device)
    if comm is not None:
        return comm.get_mem_allocator()
    return utils.get_group(group)._get_backend(torch.device(device)).mem_allocator


def register_mem_pool(group: ProcessGroup, device: torch.device, pool: Any) -> None:  # noqa: ANN401
    """Registers a pool with torch's backend.

    With torchcomms it does nothing, as nothing is needed.
    """
    if not utils.torchcomms_is_enabled():
        backend: Any = utils.get_group(group)._get_backend(torch.device(device))
        backend.register_mem_pool(pool)


def new_window(group: ProcessGroup | None = None, backend: str | None = None) -> Any:  # noqa: ANN401
    """Makes a window over the group, on its first communicator or on that of `backend`.

    Raises:
        AssertionError: torchcomms is off.
    """
    assert utils.torchcomms_is_enabled(), "new_window needs init_process_group(use_torchcomms=True)"
    device = None
    if backend is not None:
        device = torch.device(next(iter(utils.parse_backend_string(backend))))
    comm = _comm(group, device)
    assert comm is not None
    return comm.new_window()
