"""Meshes of torch.distributed whose dimensions are communicators.

All users of a ``DeviceMesh`` can run on them: DTensor, tensor parallelism, FSDP, DDP.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchcomms._arguments import wrong_type
from torchcomms._comms import InvalidArgument, TorchComm, _BackendWrapper

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed._mesh_layout import _MeshLayout
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["init_device_mesh"]

_BACKEND = "torchcomm"
_WORLD = "torchcomm_world"


def init_device_mesh(
    mesh_dim_comms: tuple[TorchComm, ...],
    mesh_dim_names: tuple[str, ...],
    _global_comm: TorchComm | None = None,
) -> DeviceMesh:
    """Makes a mesh with one dimension per communicator, in row-major order of the global ranks.

    Each dimension is a process group with the name of the dimension. If torch.distributed has no
    default process group, it becomes the group of `_global_comm`, or of the only dimension. If it
    has one, the global ranks are the ranks of that group.

    Args:
        mesh_dim_comms: this rank's communicator of each dimension; their sizes are the shape.
        mesh_dim_names: one name per dimension.
        _global_comm: a communicator of all ranks; needed for two or more dimensions.

    Raises:
        TypeError: an argument is not a communicator or not a name.
        InvalidArgument: no dimension; another number of names; a name that is given twice or
            belongs to another group; communicators of different devices or that are not connected;
            ranks that do not fit the mesh or the default process group.
        RuntimeError: several dimensions without `_global_comm`.

    Local: nothing is sent.
    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh

    _require_kinds(mesh_dim_comms, mesh_dim_names, _global_comm)
    if not mesh_dim_comms or len(mesh_dim_comms) != len(mesh_dim_names):
        raise InvalidArgument(
            f"init_device_mesh: {len(mesh_dim_comms)} communicators and {len(mesh_dim_names)}"
            " names; pass one name per communicator, and at least one communicator"
        )
    if len(mesh_dim_comms) > 1 and _global_comm is None:
        raise RuntimeError(
            f"init_device_mesh: {len(mesh_dim_comms)} dimensions need _global_comm=, a"
            " communicator of all ranks"
        )
    _require_new(mesh_dim_names)
    _require_alike([*mesh_dim_comms, *([] if _global_comm is None else [_global_comm])])
    shape = [comm.get_size() for comm in mesh_dim_comms]
    coordinate = [comm.get_rank() for comm in mesh_dim_comms]
    mesh = torch.arange(math.prod(shape), dtype=torch.int).reshape(shape)
    rank = int(mesh[tuple(coordinate)])
    if _global_comm is not None and (_global_comm.get_rank(), _global_comm.get_size()) != (
        rank,
        mesh.numel(),
    ):
        raise InvalidArgument(
            f"init_device_mesh: this rank is rank {_global_comm.get_rank()} of"
            f" {_global_comm.get_size()} in _global_comm, but rank {rank} of {mesh.numel()} at"
            f" coordinate {coordinate} of the mesh of shape {shape}"
        )

    lines: list[list[int]] = [
        mesh[tuple(slice(None) if d == dim else c for d, c in enumerate(coordinate))].tolist()
        for dim in range(len(shape))
    ]
    if dist.is_initialized():
        _require_places(rank, mesh.numel(), mesh_dim_comms, lines)

    groups = []
    for comm, name, line in zip(mesh_dim_comms, mesh_dim_names, lines, strict=True):
        mapping = {member: place for place, member in enumerate(line)}
        groups.append(_create_torchcomm_process_group(comm, name, _BACKEND, mapping))
    if not dist.is_initialized():
        world = (
            groups[0]
            if _global_comm is None
            else _create_torchcomm_process_group(_global_comm, _WORLD, _BACKEND)
        )
        dist.distributed_c10d._update_default_pg(world)
    return DeviceMesh.from_group(
        groups if len(groups) > 1 else groups[0],
        mesh_dim_comms[0].get_device().type,
        mesh if len(groups) > 1 else mesh.flatten(),
        mesh_dim_names=mesh_dim_names,
    )


def _require_kinds(comms: object, names: object, world: object) -> None:
    """Raises TypeError for arguments of torch's own init_device_mesh: a device type and a shape."""
    function = "init_device_mesh"
    if not isinstance(comms, Sequence) or isinstance(comms, str):
        raise wrong_type(
            function, "mesh_dim_comms", "tuple[TorchComm, ...], one per dimension", comms
        )
    for dim, comm in enumerate(comms):
        if not isinstance(comm, TorchComm):
            raise wrong_type(function, f"mesh_dim_comms[{dim}]", "TorchComm", comm)
    if not isinstance(names, Sequence) or isinstance(names, str):
        raise wrong_type(
            function, "mesh_dim_names", "tuple[str, ...], one name per dimension: ('dp',)", names
        )
    for dim, name in enumerate(names):
        if not isinstance(name, str):
            raise wrong_type(function, f"mesh_dim_names[{dim}]", "str", name)
    if world is not None and not isinstance(world, TorchComm):
        raise wrong_type(function, "_global_comm", "TorchComm or None", world)


def _require_new(names: Sequence[str]) -> None:
    """Raises InvalidArgument if a name is already the name of a process group."""
    from torch.distributed.distributed_c10d import _world

    taken = set(_world.pg_names.values())
    for dim, name in enumerate(names):
        if name in names[:dim]:
            raise InvalidArgument(f"init_device_mesh: two dimensions have the name '{name}'")
        if name in taken:
            raise InvalidArgument(
                f"init_device_mesh: a process group with the name '{name}' exists already;"
                " destroy it, or choose another name"
            )


def _require_alike(comms: Sequence[TorchComm]) -> None:
    """Raises InvalidArgument if the devices differ in type, or a communicator is not connected."""
    devices = {comm.get_name(): comm.get_device().type for comm in comms}
    if len(set(devices.values())) > 1:
        seen = ", ".join(f"'{name}' on {device}" for name, device in devices.items())
        raise InvalidArgument(
            f"init_device_mesh: all communicators must be on one type of device, but {seen}"
        )
    for comm in comms:
        if not comm.get_ranks():
            raise InvalidArgument(
                f"init_device_mesh: communicator '{comm.get_name()}' is not connected: call"
                " reconfigure() first"
            )


def _require_places(
    rank: int, size: int, comms: Sequence[TorchComm], lines: Sequence[list[int]]
) -> None:
    """Raises InvalidArgument if the mesh's ranks do not fit the default group.

    The mesh may cover the whole default group, or a part whose communicators have its global ranks.
    """
    import torch.distributed as dist

    own, world = dist.get_rank(), dist.get_world_size()
    members = [comm.get_ranks() for comm in comms]
    if rank == own and (size == world or members == lines):
        return
    raise InvalidArgument(
        f"init_device_mesh: this rank is rank {rank} of {size} in the mesh, but rank {own} of"
        f" {world} in the default process group; the communicators have the global ranks {members},"
        f" and the mesh needs {lines}"
    )


def _own_store(group_name: str, size: int) -> Any:  # noqa: ANN401
    """A store inside this process: the communicator is connected and needs no rendezvous.

    A wait for a key of another rank fails at once with InvalidArgument. A new group that is not
    split from this one would wait like that.
    """
    import torch.distributed as dist

    class OwnStore(dist.Store):
        def __init__(self) -> None:
            super().__init__()
            self._keys = dist.HashStore()

        def set(self, key: str, value: Any) -> None:  # noqa: ANN401
            self._keys.set(key, value)

        def get(self, key: str) -> bytes:
            self._require([key])
            found: bytes = self._keys.get(key)
            return found

        def add(self, key: str, value: int) -> int:
            return int(self._keys.add(key, value))

        def check(self, keys: list[str]) -> bool:
            self._require(keys)  # a caller that polls check() would wait forever
            return True

        def wait(self, keys: list[str], timeout: Any = None) -> None:  # noqa: ANN401
            self._require(keys)

        def delete_key(self, key: str) -> bool:
            return bool(self._keys.delete_key(key))

        def num_keys(self) -> int:
            return int(self._keys.num_keys())

        def _require(self, keys: list[str]) -> None:
            if not self._keys.check(keys):
                raise InvalidArgument(
                    f"a new process group needs a store that all ranks share, but the group"
                    f" '{group_name}' was made from a communicator and has none: use"
                    " torch.distributed.split_group(), or call init_process_group() before"
                    " init_device_mesh()"
                )

    return dist.HashStore() if size == 1 else OwnStore()


def _create_torchcomm_process_group(
    comm: TorchComm,
    group_name: str,
    backend_str: str = _BACKEND,
    global_ranks_mapping: Mapping[int, int] | None = None,
) -> ProcessGroup:
    """Makes a process group over `comm`, known to torch.distributed as `group_name`.

    Args:
        global_ranks_mapping: the rank in the group by global rank; None: they are equal.
    """
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    custom = dist.ProcessGroup.BackendType.CUSTOM
    store = _own_store(group_name, comm.get_size())
    group = dist.ProcessGroup(store, comm.get_rank(), comm.get_size())
    group._register_backend(torch.device(comm.get_device().type), custom, _BackendWrapper(comm))
    group._set_default_backend(custom)
    group._set_group_desc(f"communicator {comm.get_name()}")

    name: Any = group_name  # newer torch versions have a type for group names
    group._set_group_name(name)
    ranks = global_ranks_mapping or {rank: rank for rank in range(comm.get_size())}
    world, tag = c10d._world, f"ptd:{group_name}"
    world.pg_map[group] = (backend_str, store)
    world.pg_names[group] = name
    world.pg_backend_config[group] = f"{comm.get_device().type}:{backend_str}"
    world.pg_group_ranks[group] = dict(ranks)
    world.tags_to_pg.setdefault(tag, []).append(group)
    world.pg_to_tag[group] = tag
    c10d._register_process_group(name, group)
    return group


def _flatten_with_comm(
    mesh: DeviceMesh,
    mesh_dim_name: str,
    comm: TorchComm,
    global_ranks: Sequence[int],
    layout: _MeshLayout,
) -> DeviceMesh:
    """Adds a flattened dimension backed by `comm`; then ``mesh[mesh_dim_name]`` works.

    Args:
        global_ranks: the members of `comm`, in its rank order.
        layout: the layout of the dimensions to flatten, such as ``mesh._layout``.

    Raises:
        NotImplementedError: this torch has no layouts.
    """
    from torch.distributed.device_mesh import DeviceMesh

    flat = _flat_layout(layout)
    root = mesh._get_root_mesh()
    ranks = {int(member): place for place, member in enumerate(global_ranks)}
    group = _create_torchcomm_process_group(comm, mesh_dim_name, _BACKEND, ranks)
    flattened = DeviceMesh(
        root.device_type,
        _layout=flat,
        _rank_map=root._rank_map,
        mesh_dim_names=(mesh_dim_name,),
        _root_mesh=root,
        _init_backend=False,
    )
    flattened._dim_group_names = [group.group_name]
    root._pg_registry[group.group_name] = group
    root._flatten_mapping[mesh_dim_name] = flattened
    return flattened


def _flat_layout(layout: _MeshLayout) -> _MeshLayout:
    """A layout of one dimension that covers the same ranks as `layout`, in the same order."""
    flat: _MeshLayout
    if hasattr(layout, "collapse"):
        flat = type(layout)([layout.collapse()])
        return flat
    if hasattr(layout, "coalesce"):  # older torch versions
        joined = layout.coalesce()
        flat = joined.nest() if len(joined) > 1 else joined
        return flat
    raise NotImplementedError("_flatten_with_comm: this torch's DeviceMesh has no layouts")
