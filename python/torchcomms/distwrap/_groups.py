"""Making, splitting and destroying process groups, and the communicators that belong to them."""

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

# With communicators these functions of torch.distributed would use its own groups beside them.
_REPLACED = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "scatter", "gather", "barrier",
    "send", "recv", "isend", "irecv", "batch_isend_irecv", "all_gather_object", "gather_object",
    "scatter_object_list", "broadcast_object_list",
)  # fmt: skip
_originals: dict[str, Any] = {}


class _Refusal:
    """In the place of one of those functions, and equal to it: torch.distributed.isend and irecv
    also say which kind of message a P2POp is."""

    __name__: str

    def __init__(self, original: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original)
        self._original = original

    def __call__(self, *_: object, **__: object) -> None:
        name = self.__name__
        raise NotImplementedError(
            f"torch.distributed.{name} is off while torchcomms is in use: call"
            f" torchcomms.distwrap.{name}"
        )

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._original

    def __hash__(self) -> int:
        return hash(self._original)


def _switch(on: bool) -> None:
    """Turns communicators, and torch's own collective functions, on or off."""
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
    """Public values of an options object, as text."""
    names = [] if pg_options is None else [n for n in dir(pg_options) if not n.startswith("_")]
    values = {name: getattr(pg_options, name) for name in names}
    return {name: str(value) for name, value in values.items() if not callable(value)}


def _shared_store(
    init_method: str | None, rank: int, world_size: int, timeout: timedelta | None
) -> Store:
    """One store for torch's layer and ours."""
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
    """As torch.distributed.init_process_group; with `use_torchcomms` communicators do the work.

    Args:
        backend: "gloo", "nccl", "cpu:gloo,cuda:nccl", ...; must be given.
        init_method: where the ranks meet; None: `store`, or MASTER_ADDR and MASTER_PORT.
        timeout: timedelta, limit of the start-up and of the operations.
        world_size, rank: -1: from the launcher's variables.
        store: torch.distributed.Store instead of `init_method`.
        group_name: name of the communicator; "": default_torchcomm_<backend>.
        pg_options: torch's options; with torchcomms their values are hints.
        device_id: for torch's own backends; ignored with torchcomms.
        use_torchcomms: True: one communicator a device, and torch.distributed's own collective
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
    # What an earlier start left under its keys would be taken for this one's.
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
    """The default group's communicators, one a device."""
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
    """Finalizes the group's communicators and destroys torch's group; the default one: all.

    Raises:
        AssertionError: nothing is initialized, or a group that was not made here.
        CommError: what finalize() raised first; the other communicators are finalized and torch's
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
    """All of them. Raises what the first raised that failed, once the others are done."""
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
    """As torch.distributed.new_group. With torchcomms groups come from split_group alone.

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
    made = dist.new_group(
        ranks,
        timeout=timeout,
        backend=utils.format_backend_string(utils.shown_to_torch(device_backends)),
        pg_options=pg_options,
        use_local_synchronization=use_local_synchronization,
        group_desc=group_desc,
        device_id=device_id,
    )
    members = list(range(world.size())) if ranks is None else sorted(ranks)
    return _registered(made, members, group_desc, device_backends)


def _registered(
    made: Any,  # noqa: ANN401
    members: list[int],
    group_desc: str | None,
    device_backends: dict[str, str],
) -> Any:  # noqa: ANN401
    if made is not dist.GroupMember.NON_GROUP_MEMBER:
        pginfo.pg_info_create(made, members, group_desc or "")
        pginfo.pg_info_set_data(made, pginfo.DEVICE_BACKENDS, device_backends)
    return made


def split_group(  # noqa: PLR0917 (the contract's order)
    parent_pg: ProcessGroup | None = None,
    split_ranks: list[list[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,  # noqa: ANN401
    group_desc: str | None = None,
    backend: str | None = None,
) -> ProcessGroup:
    """A group of those of the parent's ranks that stand in one list with this one.

    Args:
        parent_pg: group made here; None: the default one. All of its ranks make this call.
        split_ranks: disjoint lists of the parent's ranks, the same on all of them; None: one list
            of all. The ranks of the new group are in ascending order.
        timeout: limit of the new group's operations.
        pg_options: torch's options; with torchcomms their values are hints.
        group_desc: description, and the name of the communicators.
        backend: keeps the devices of this backend text alone; None: all of the parent's.
    Raises:
        InvalidArgument (a ValueError): this rank is in no list, and has taken its part, so that
            the others go on; on all ranks, a rank in two lists, one that the parent has not, or
            an unknown backend.
        TypeError: `split_ranks` is no list of lists of int.
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
                f"split_group: rank {rank} is twice in {lists}; each may be once"
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
        made = _torch_group(
            parent, members, lists, device_backends, timeout, pg_options, group_desc
        )
    if made is None or not own:
        raise torchcomms.InvalidArgument(
            f"split_group: rank {parent.rank()} is in none of {lists}; each must be in one"
        )
    _registered(made, members, group_desc, device_backends)
    if comms:
        pginfo.pg_info_set_data(made, pginfo.COMMS, parts)
    return made


def _split_name(parent: ProcessGroup, own: list[int]) -> str:
    """What the new group's ranks, and no others, call the group in torch."""
    nth = (pginfo.pg_info_get_data(parent, pginfo.SPLITS) or 0) + 1
    pginfo.pg_info_set_data(parent, pginfo.SPLITS, nth)
    return f"{parent.group_name}:{nth}:{own[0] if own else 'none'}"


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Groups that torch makes meanwhile are called so. By itself it counts the groups of the
    process, and those are not as many on all ranks once some have split a group of theirs."""
    naming = c10d._process_group_name
    c10d._process_group_name = lambda *_, **__: cast("Any", name)
    try:
        yield
    finally:
        c10d._process_group_name = naming


def _kept(parent: ProcessGroup, backend: str | None) -> dict[str, str]:
    """The parent's devices that the new group has, too."""
    has: dict[str, str] = pginfo.pg_info_get_data(parent, pginfo.DEVICE_BACKENDS)
    wanted = has if backend is None else utils.parse_backend_string(backend)
    for device, name in wanted.items():
        if has.get(device) != name:
            raise torchcomms.InvalidArgument(
                f"split_group: the parent has no backend {name!r} for {device!r}, but {has}"
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
    """torch's side: its own split where the parent is connected for it, else a new group, which
    ranks outside of it need not know of. None for these."""
    with_comms = utils.torchcomms_is_enabled()
    device = getattr(parent, "bound_device_id", None)
    if not with_comms and device is not None and parent._get_backend(device).supports_splitting:
        split: Any = c10d.split_group(parent, lists, timeout, pg_options, group_desc)
        return cast("ProcessGroup", split)
    if not members:
        return None
    made: Any = dist.new_group(
        members,
        timeout=timeout,
        backend=utils.format_backend_string(utils.shown_to_torch(device_backends)),
        pg_options=None if with_comms else pg_options,
        use_local_synchronization=True,
        group_desc=group_desc,
    )
    return cast("ProcessGroup", made)
