"""Creates, splits and destroys process groups, and the communicators that belong to them."""

from __future__ import annotations

import functools
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup, Store
from torch.distributed import distributed_c10d as c10d

import torchcomms
from torchcomms import _arguments, _environment
from torchcomms.distwrap import pginfo, utils

# Functions of torch.distributed that would bypass the communicators and use torch's own groups.
_REPLACED = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "scatter", "gather", "barrier",
    "send", "recv", "isend", "irecv", "batch_isend_irecv", "all_gather_object", "gather_object",
    "scatter_object_list", "broadcast_object_list",
)  # fmt: skip
_originals: dict[str, Any] = {}


class _Refusal:
    """Replaces one of these functions, raises, and compares equal to the function.

    It must be equal, because a P2POp names its kind by torch.distributed.isend or irecv.
    """

    __name__: str

    def __init__(self, original: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original)
        self._original = original

    def __call__(self, *_: object, **__: object) -> None:
        name = self.__name__
        raise NotImplementedError(
            f"torch.distributed.{name} is disabled while torchcomms is in use: call"
            f" torchcomms.distwrap.{name}"
        )

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._original

    def __hash__(self) -> int:
        return hash(self._original)


def _switch(on: bool) -> None:
    """Turns communicators on or off, and torch's own collective functions off or on."""
    utils.set_torchcomms_enabled(on)
    if on and not _originals:
        for name in _REPLACED:
            _originals[name] = getattr(dist, name)
            setattr(dist, name, _Refusal(_originals[name]))
    if not on:
        for name, function in _originals.items():
            setattr(dist, name, function)
        _originals.clear()


def _hints(pg_options: object) -> dict[str, str]:
    """The public values of an options object, as text."""
    names = [] if pg_options is None else [n for n in dir(pg_options) if not n.startswith("_")]
    values = {name: getattr(pg_options, name) for name in names}
    return {name: str(value) for name, value in values.items() if not callable(value)}


def _shared_store(
    init_method: str | None, rank: int, world_size: int, timeout: timedelta | None
) -> Store:
    """Makes one store for torch's groups and for the communicators."""
    address = {
        "MASTER_ADDR": os.environ.get("MASTER_ADDR", "localhost"),
        "MASTER_PORT": os.environ.get("MASTER_PORT", "29500"),
    }
    limit = {} if timeout is None else {"timeout": timeout}
    with _environment.variables(**address):
        meet = dist.rendezvous(init_method or "env://", rank, world_size, **limit)
        store: Store = next(iter(meet))[0]
    if timeout is not None:
        store.set_timeout(timeout)
    return store


def init_process_group(  # noqa: PLR0917 (the contract's order)
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,  # noqa: ANN401
    device_id: torch.device | int | None = None,
    use_torchcomms: bool = False,
) -> None:
    """Initializes the default group, as torch.distributed.init_process_group.

    With `use_torchcomms`, communicators run the operations.

    Args:
        backend: "gloo", "nccl", "cpu:gloo,cuda:nccl", ...; must be given.
        init_method: URL of the rendezvous; None: `store`, or MASTER_ADDR and MASTER_PORT.
        timeout: timedelta, timeout of the start-up and of each operation.
        world_size, rank: -1: from the launcher's variables.
        store: torch.distributed.Store instead of `init_method`.
        group_name: name of the communicator; "": default_torchcomm_<backend>.
        pg_options: torch's options; with torchcomms their values are hints.
        device_id: for torch's own backends; ignored with torchcomms.
        use_torchcomms: True: one communicator per device, and torch.distributed's own collective
            functions raise NotImplementedError until destroy_process_group.
    Raises:
        InvalidArgument (a ValueError): backend missing or malformed.
        AssertionError: no rank and world size are known.
        CommError: as torchcomms.new_comm. Without `use_torchcomms` the errors are those of
            torch.distributed.init_process_group.
    """
    if backend is None:
        raise torchcomms.InvalidArgument("init_process_group: backend must be specified")
    device_backends = utils.parse_backend_string(backend)
    rank, world_size = utils.get_rank_and_world_size(rank, world_size)
    if store is None:
        store = _shared_store(init_method, rank, world_size, timeout)
    # Keys of an earlier start in this store must not be taken for keys of this start.
    starts = f"distwrap/starts/{rank}"
    part = dist.PrefixStore(f"distwrap/{store.add(starts, 0)}", store)
    shown = utils.shown_to_torch(device_backends)
    utils.set_eager_init_enabled(device_id is not None and not use_torchcomms)
    dist.init_process_group(
        utils.format_backend_string(shown),
        store=dist.PrefixStore("torch", part),
        rank=rank,
        world_size=world_size,
        timeout=timeout,
        group_name=group_name,
        pg_options=None if use_torchcomms else pg_options,
        device_id=device_id if utils.eager_init_is_enabled() else None,
    )
    store.add(starts, 1)
    world = utils.get_group()
    pginfo.pg_info_create(world, list(range(world_size)), group_name)
    pginfo.pg_info_set_data(world, pginfo.DEVICE_BACKENDS, device_backends)
    if not use_torchcomms:
        return
    try:
        _connect(world, device_backends, part, timeout, group_name, _hints(pg_options))
    except BaseException:
        destroy_process_group()
        raise
    _switch(True)


def _connect(  # noqa: PLR0917
    world: ProcessGroup,
    device_backends: dict[str, str],
    store: Store,
    timeout: timedelta | None,
    name: str,
    hints: dict[str, str],
) -> None:
    """Makes the communicators of the default group, one per device."""
    comms: dict[str, torchcomms.TorchComm] = {}
    pginfo.pg_info_set_data(world, pginfo.COMMS, comms)
    pginfo.pg_info_set_data(world, pginfo.STORE, store)
    place = {"TORCHCOMM_RANK": str(world.rank()), "TORCHCOMM_SIZE": str(world.size())}
    for device, backend in device_backends.items():
        with _environment.variables(**place):
            comms[device] = torchcomms.new_comm(
                backend,
                torch.device(device),
                name or f"default_torchcomm_{backend}",
                timeout=timeout,
                store=dist.PrefixStore(device, store),
                hints=hints,
            )


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Finalizes the group's communicators and destroys torch's group.

    For the default group, it does this to all groups.

    Raises:
        AssertionError: nothing is initialized, or the group was not made here.
        CommError: the first error of finalize(). The other communicators are finalized and torch's
            groups are destroyed all the same.
    """
    assert dist.is_initialized(), "init_process_group has not been called"
    chosen = utils.get_group(group)
    pginfo.pg_info_assert_registered(chosen)
    everything = chosen is dist.group.WORLD
    groups = pginfo.pg_info_all() if everything else [chosen]
    comms: list[torchcomms.TorchComm] = []
    for one in reversed(groups):
        comms += (pginfo.pg_info_get_data(one, pginfo.COMMS) or {}).values()
        pginfo.pg_info_destroy(one)
    try:
        _finalize(comms)
    finally:
        if everything:
            _switch(False)
        dist.destroy_process_group(None if everything else chosen)


def _finalize(comms: list[torchcomms.TorchComm]) -> None:
    """Finalizes all communicators, then raises the first error."""
    failures: list[Exception] = []
    for comm in comms:
        try:
            comm.finalize()
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]


def new_group(  # noqa: PLR0917 (the contract's order)
    ranks: list[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,  # noqa: ANN401
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: torch.device | None = None,
) -> Any:  # noqa: ANN401
    """Makes a group, as torch.distributed.new_group. With torchcomms use split_group instead.

    Raises:
        AssertionError: with torchcomms, or before init_process_group.
        InvalidArgument (a ValueError): no backend, or a malformed one.
    """
    if utils.torchcomms_is_enabled():
        raise AssertionError("new_group is not supported with torchcomms: use split_group")
    if backend is None:
        raise torchcomms.InvalidArgument("new_group: backend must be specified")
    device_backends = utils.parse_backend_string(backend)
    world = utils.get_group()
    created = dist.new_group(
        ranks,
        timeout=timeout,
        backend=utils.format_backend_string(utils.shown_to_torch(device_backends)),
        pg_options=pg_options,
        use_local_synchronization=use_local_synchronization,
        group_desc=group_desc,
        device_id=device_id,
    )
    members = list(range(world.size())) if ranks is None else sorted(ranks)
    return _registered(created, members, group_desc, device_backends)


def _registered(
    created: Any,  # noqa: ANN401
    members: list[int],
    group_desc: str | None,
    device_backends: dict[str, str],
) -> Any:  # noqa: ANN401
    if created is not dist.GroupMember.NON_GROUP_MEMBER:
        pginfo.pg_info_create(created, members, group_desc or "")
        pginfo.pg_info_set_data(created, pginfo.DEVICE_BACKENDS, device_backends)
    return created


def split_group(  # noqa: PLR0917 (the contract's order)
    parent_pg: ProcessGroup | None = None,
    split_ranks: list[list[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,  # noqa: ANN401
    group_desc: str | None = None,
    backend: str | None = None,
) -> ProcessGroup:
    """Makes a group of the parent's ranks that are in one list with this rank.

    Args:
        parent_pg: group made here; None: the default group. All of its ranks make this call.
        split_ranks: disjoint lists of the parent's ranks, the same on all of them; None: one list
            of all. The ranks of the new group are in ascending order.
        timeout: timeout of the new group's operations.
        pg_options: torch's options; with torchcomms their values are hints.
        group_desc: description, and the name of the communicators.
        backend: keeps only the devices of this backend text; None: all of the parent's.
    Raises:
        InvalidArgument (a ValueError): this rank is in no list; it has taken part, so that its
            peers go on. On all ranks: a rank in two lists, a rank that the parent does not have, or
            an unknown backend.
        TypeError: `split_ranks` is not a list of lists of int.
        AssertionError: before init_process_group, or a parent that was not made here.
    """
    parent = utils.get_group(parent_pg)
    pginfo.pg_info_assert_registered(parent)
    global_ranks = pginfo.pg_info_get_global_ranks(parent)
    size = len(global_ranks)
    lists = [list(range(size))]
    if split_ranks is not None:
        given = _arguments.require_groups("split_group", "split_ranks", split_ranks, lambda: size)
        lists = [sorted(one) for one in given]
    for rank, times in Counter(rank for one in lists for rank in one).items():
        if times > 1:
            raise torchcomms.InvalidArgument(
                f"split_group: rank {rank} is listed {times} times in {lists}; list it once"
            )
    for rank in itertools.chain(*lists):
        if not 0 <= rank < size:
            raise torchcomms.InvalidArgument(
                f"split_group: rank {rank} in {lists} is outside [0, {size})"
            )
    device_backends = _kept(parent, backend)
    own = next((one for one in lists if parent.rank() in one), [])
    name = _split_name(parent, own)
    comms = pginfo.pg_info_get_data(parent, pginfo.COMMS) or {}
    parts = {
        device: comms[device].split(
            own, group_desc or "", hints=_hints(pg_options), timeout=timeout
        )
        for device in device_backends
        if device in comms
    }
    members = [global_ranks[rank] for rank in own]
    with _named(name):
        created = _torch_group(
            parent, members, lists, device_backends, timeout, pg_options, group_desc
        )
    if created is None or not own:
        raise torchcomms.InvalidArgument(
            f"split_group: rank {parent.rank()} is in none of {lists}; pass every rank of the"
            " parent in one list"
        )
    _registered(created, members, group_desc, device_backends)
    if comms:
        pginfo.pg_info_set_data(created, pginfo.COMMS, parts)
    return created


def _split_name(parent: ProcessGroup, own: list[int]) -> str:
    """The name of the new group in torch, which only its ranks use."""
    nth = (pginfo.pg_info_get_data(parent, pginfo.SPLITS) or 0) + 1
    pginfo.pg_info_set_data(parent, pginfo.SPLITS, nth)
    return f"{parent.group_name}:{nth}:{own[0] if own else 'none'}"


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Gives groups that torch makes inside the block this name.

    torch itself counts the groups of the process. These counts differ between ranks once some of
    them have split a group.
    """
    naming = c10d._process_group_name
    c10d._process_group_name = lambda *_, **__: cast("Any", name)
    try:
        yield
    finally:
        c10d._process_group_name = naming


def _kept(parent: ProcessGroup, backend: str | None) -> dict[str, str]:
    """The devices of the parent that the new group has, too. Raises InvalidArgument for others."""
    has: dict[str, str] = pginfo.pg_info_get_data(parent, pginfo.DEVICE_BACKENDS)
    wanted = has if backend is None else utils.parse_backend_string(backend)
    for device, name in wanted.items():
        if has.get(device) != name:
            raise torchcomms.InvalidArgument(
                f"split_group: the parent has no backend {name!r} for {device!r}, only {has}"
            )
    return wanted


def _torch_group(  # noqa: PLR0917
    parent: ProcessGroup,
    members: list[int],
    lists: list[list[int]],
    device_backends: dict[str, str],
    timeout: timedelta | None,
    pg_options: Any,  # noqa: ANN401
    group_desc: str | None,
) -> ProcessGroup | None:
    """Makes torch's group: by its own split if the parent supports it, else as a new group.

    Ranks outside of a new group do not take part.

    Returns: None on these ranks.
    """
    with_comms = utils.torchcomms_is_enabled()
    device = getattr(parent, "bound_device_id", None)
    if not with_comms and device is not None and parent._get_backend(device).supports_splitting:
        split: Any = c10d.split_group(parent, lists, timeout, pg_options, group_desc)
        return cast("ProcessGroup", split)
    if not members:
        return None
    created: Any = dist.new_group(
        members,
        timeout=timeout,
        backend=utils.format_backend_string(utils.shown_to_torch(device_backends)),
        pg_options=None if with_comms else pg_options,
        use_local_synchronization=True,
        group_desc=group_desc,
    )
    return cast("ProcessGroup", created)
