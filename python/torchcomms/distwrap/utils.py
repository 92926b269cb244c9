"""Parses backend texts, finds rank and size, and finds the communicator of a group and a tensor."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

import torchcomms
from torchcomms.distwrap import pginfo

# The device of each backend whose name may be given alone: ours, and one that torch may have.
_OURS = {
    "nccl": "cuda",
    "ncclx": "cuda",
    "rccl": "cuda",
    "rcclx": "cuda",
    "gloo": "cpu",
    "ctran": "cpu",
}
_DEVICE_OF = {**_OURS, "hccl": "mtia"}
# The names given to torch for backends that it does not know.
_SHOWN_AS = {"ncclx": "nccl", "rcclx": "rccl", "ctran": "gloo"}

_RANK_AND_SIZE = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("PMI_RANK", "PMI_SIZE"),
)


class _Switches:
    torchcomms = False
    eager_init = False


def torchcomms_is_enabled() -> bool:
    """Returns: whether this package uses communicators instead of torch.distributed."""
    return _Switches.torchcomms


def set_torchcomms_enabled(enabled: bool) -> None:
    """Switches communicators on or off. init_process_group and destroy_process_group call it."""
    _Switches.torchcomms = bool(enabled)


def eager_init_is_enabled() -> bool:
    """Returns: whether torch's groups connect at creation, as they do with a device_id."""
    return _Switches.eager_init


def set_eager_init_enabled(enabled: bool) -> None:
    """Switches eager connection of torch's groups on or off; see `eager_init_is_enabled`."""
    _Switches.eager_init = bool(enabled)


def _unknown(what: str, text: str) -> torchcomms.InvalidArgument:
    return torchcomms.InvalidArgument(
        f"backend {text!r}: {what}; allowed is one of {', '.join(_OURS)}, or"
        " device:backend pairs such as 'cpu:gloo,cuda:nccl'"
    )


def parse_backend_string(backend: str) -> dict[str, str]:
    """Parses "cpu:gloo,cuda:nccl" to {"cpu": "gloo", "cuda": "nccl"}, and "nccl" to {"cuda":
    "nccl"}.

    Raises:
        InvalidArgument (a ValueError): unknown name, malformed pair, a device twice.
    """
    text = str(backend).lower()
    if ":" not in text and "," not in text:
        if text not in _DEVICE_OF:
            raise _unknown("unknown", text)
        return {_DEVICE_OF[text]: text}
    found: dict[str, str] = {}
    for pair in text.split(","):
        device, colon, name = (part.strip() for part in pair.partition(":"))
        if not (device and colon and name) or ":" in name:
            raise _unknown(f"{pair!r} is not device:backend", text)
        if name not in _DEVICE_OF:
            raise _unknown(f"{name!r} is unknown", text)
        if device in found:
            raise _unknown(f"device {device!r} is given twice", text)
        found[device] = name
    return found


def format_backend_string(device_backends: dict[str, str]) -> str:
    """Formats {"cpu": "gloo", "cuda": "nccl"} as "cpu:gloo,cuda:nccl"."""
    return ",".join(f"{device}:{name}" for device, name in device_backends.items())


def shown_to_torch(device_backends: dict[str, str]) -> dict[str, str]:
    """Replaces names that torch.distributed does not know by names that it knows."""
    return {device: _SHOWN_AS.get(name, name) for device, name in device_backends.items()}


def get_rank_and_world_size(rank: int = -1, world_size: int = -1) -> tuple[int, int]:
    """Returns rank and world size.

    A value of -1 is taken from the first launcher that has set both of its variables.

    Raises:
        AssertionError: a value is -1, and no launcher has set both variables.
    """
    if rank >= 0 and world_size >= 0:
        return rank, world_size
    for rank_name, size_name in _RANK_AND_SIZE:
        if rank_name in os.environ and size_name in os.environ:
            found = int(os.environ[rank_name]), int(os.environ[size_name])
            return (rank if rank >= 0 else found[0]), (world_size if world_size >= 0 else found[1])
    names = ", ".join("/".join(pair) for pair in _RANK_AND_SIZE)
    raise AssertionError(f"rank and world_size were not given, and none of {names} is set")


def get_group(group: ProcessGroup | None = None) -> ProcessGroup:
    """The group, or the default group for None.

    Raises:
        AssertionError: init_process_group() was not called.
        InvalidArgument (a ValueError): the group is the marker "not a member".
    """
    if group is None or group is dist.group.WORLD:
        world = dist.group.WORLD
        assert world is not None, "init_process_group has not been called"
        return world
    outside: object = dist.GroupMember.NON_GROUP_MEMBER
    if group is outside:
        raise torchcomms.InvalidArgument("this rank is not in the group")
    return group


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The rank in the group of a global rank.

    Raises:
        InvalidArgument (a ValueError): the rank is not in the group.
    """
    ranks = pginfo.pg_info_get_rank_map(group)
    if global_rank not in ranks:
        raise torchcomms.InvalidArgument(f"rank {global_rank} is not in the group {list(ranks)}")
    return ranks[global_rank]


def get_backend_for_device(group: ProcessGroup, device_type: str) -> str:
    """The name of the group's backend for a device type.

    Raises:
        InvalidArgument (a ValueError): the group has no backend for it.
    """
    backends: dict[str, str] = pginfo.pg_info_get_data(group, pginfo.DEVICE_BACKENDS) or {}
    if device_type not in backends:
        raise torchcomms.InvalidArgument(
            f"the group has no backend for {device_type!r}, only for {sorted(backends)}"
        )
    return backends[device_type]


def get_torchcomms_instance(
    group: ProcessGroup, device_type: str | None = None, tensor: torch.Tensor | None = None
) -> torchcomms.TorchComm:
    """The group's communicator for a device type or a tensor's device; by default the first one.

    Raises:
        InvalidArgument (a ValueError): the group has no communicator for the device.
    """
    comms: dict[str, torchcomms.TorchComm] = pginfo.pg_info_get_data(group, pginfo.COMMS) or {}
    if tensor is not None:
        device_type = tensor.device.type
    if device_type is None and comms:
        return next(iter(comms.values()))
    if device_type not in comms:
        raise torchcomms.InvalidArgument(
            f"the group has no communicator for {device_type!r}, only for {sorted(comms)}"
        )
    return comms[device_type]
