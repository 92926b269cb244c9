"""The ranks, name and communicators of each process group that this package made.

Groups that torch made on its own are not registered; asking for them raises AssertionError.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch.distributed import ProcessGroup

# The keys of `PgInfo.data`.
COMMS = "torchcomms"  # dict: device type -> TorchComm
DEVICE_BACKENDS = "device_backends"  # dict: device type -> name of the backend
STORE = "tc_store"  # the store of the communicators
SPLITS = "splits"  # int: the number of splits so far


@dataclass
class PgInfo:
    """A registered group. `data` holds values of the caller that registers it, by key."""

    global_ranks: list[int]
    group_desc: str = ""
    data: dict[str, Any] = field(default_factory=dict)


_infos: dict[ProcessGroup, PgInfo] = {}


def pg_info_create(group: ProcessGroup, global_ranks: list[int], group_desc: str = "") -> PgInfo:
    """Registers a group, and replaces an older registration of it."""
    info = _infos[group] = PgInfo(list(global_ranks), group_desc)
    return info


def pg_info_destroy(group: ProcessGroup) -> None:
    """Removes a group. Raises AssertionError if it is not registered."""
    pg_info_get(group)
    del _infos[group]


def pg_info_all() -> list[ProcessGroup]:
    """The registered groups, in the order in which they were made."""
    return list(_infos)


def pg_info_assert_registered(group: ProcessGroup) -> None:
    """Raises AssertionError for a group that was not made here."""
    if group not in _infos:
        raise AssertionError(
            f"the process group {group} was not created through torchcomms.distwrap"
        )


def pg_info_get(group: ProcessGroup) -> PgInfo:
    """The registration of a group. Raises AssertionError if it is not registered."""
    pg_info_assert_registered(group)
    return _infos[group]


def pg_info_get_global_ranks(group: ProcessGroup) -> list[int]:
    """Global ranks of the members, in the order of their group ranks."""
    return list(pg_info_get(group).global_ranks)


def pg_info_get_rank_map(group: ProcessGroup) -> dict[int, int]:
    """Group rank of each member by its global rank."""
    return {rank: index for index, rank in enumerate(pg_info_get(group).global_ranks)}


def pg_info_get_group_desc(group: ProcessGroup) -> str:
    """The description given when the group was made."""
    return pg_info_get(group).group_desc


def pg_info_set_data(group: ProcessGroup, key: str, value: Any) -> None:  # noqa: ANN401
    """Stores a value with the group."""
    pg_info_get(group).data[key] = value


def pg_info_get_data(group: ProcessGroup, key: str) -> Any:  # noqa: ANN401
    """The value stored under `key`; None if there is none."""
    return pg_info_get(group).data.get(key)
