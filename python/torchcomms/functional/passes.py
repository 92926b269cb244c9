"""Passes over graphs of functional operators, for compilers that have no such passes.

Inductor does not need them: it makes operators in-place again and keeps their order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from torchcomms.functional.registry import NAMESPACE, in_place_of

_TOKEN = 0  # index of the token in the results of a wrapper
_WRAPPED = 2  # number of a wrapper's arguments before those of the operator: token and operator


def _is_wrapper(node: Any) -> bool:  # noqa: ANN401
    return (
        isinstance(node, Node)
        and node.op == "call_function"
        and node.target is torch.ops.higher_order.with_effects
    )


def _is_getitem(node: Node) -> bool:
    return node.op == "call_function" and node.target is operator.getitem


def _inner(node: Node) -> tuple[Any, Sequence[Any]]:
    """The target and arguments of a node, or of the operator inside a wrapper."""
    if _is_wrapper(node):
        return node.args[1], node.args[_WRAPPED:]
    return node.target, node.args


def _flat(values: Any) -> list[Node]:  # noqa: ANN401
    found: list[Node] = []
    map_arg(values, found.append)
    return found


class _Memory:
    """Groups nodes that may share memory.

    Nodes of unknown operators may share with all arguments.
    """

    def __init__(self) -> None:
        self._group: dict[Node, Node] = {}
        self._elements: dict[tuple[Node, Any], Node] = {}

    def of(self, node: Node) -> Node:
        """The node that represents the group of nodes with the same memory."""
        while self._group.get(node, node) is not node:
            node = self._group[node]
        return node

    def share(self, nodes: Iterable[Node]) -> None:
        first, *rest = nodes
        for node in rest:
            old, new = self.of(node), self.of(first)
            if old is not new:
                self._group[old] = new

    def see(self, node: Node) -> None:
        """Records the effect of a node. Its arguments must have been recorded before."""
        if _is_getitem(node):
            self._see_element(node)
        elif node.op in ("placeholder", "get_attr", "output"):
            return
        elif not _is_wrapper(node) and isinstance(node.target, torch._ops.OpOverload):
            returned = _returned(node.target, node.args, node.kwargs)
            if len(returned) < 2 or not _is_read_by_element(node):
                self.share([node, *returned])
        elif not _is_wrapper(node):
            self.share([node, *_flat((node.args, node.kwargs))])

    def _see_element(self, node: Node) -> None:
        """Records an element of a result.

        Elements share no memory, except with arguments returned.
        """
        parent, index = node.args
        assert isinstance(parent, Node)
        whole, at, wrapper = parent, index, _is_wrapper(parent)
        if _is_getitem(parent) and _is_wrapper(parent.args[0]):
            assert isinstance(parent.args[0], Node)
            whole, wrapper = parent.args[0], True
        target, args = _inner(whole)
        if not isinstance(target, torch._ops.OpOverload) or target.namespace != NAMESPACE:
            if not (wrapper and whole is parent and at == _TOKEN):
                self.share([node, whole, *_flat(args)])
            return
        if whole is parent and wrapper and at == _TOKEN:
            return
        if isinstance(parent, Node) and not _is_read_by_element(parent):
            self.share([node, parent])
        key = (whole, (parent.args[1], index) if whole is not parent else index)
        self.share([self._elements.setdefault(key, node), node])
        returned = _returned(target, args, whole.kwargs)
        if len(returned) > 1 and isinstance(index, int) and (whole is not parent or not wrapper):
            self.share([returned[index], node])
        elif len(returned) < 2 or not _is_read_by_element(node):
            self.share([node, *returned])


def _is_read_by_element(holder: Node) -> bool:
    """Returns: whether all users of a list only take its elements."""
    return all(_is_getitem(user) for user in holder.users)


def _returned(target: torch._ops.OpOverload, args: Sequence[Any], kwargs: Any) -> list[Node]:  # noqa: ANN401
    """The arguments whose memory an operator may return."""
    schema = target._schema
    if not any(one.alias_info is not None for one in schema.returns):
        return []
    names = [argument.name for argument in schema.arguments]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    return _flat([
        given[argument.name] for argument in schema.arguments
        if argument.alias_info is not None and argument.name in given
    ])  # fmt: skip


def _changed_arguments(node: Node) -> list[Node]:
    """The arguments that our operator changes in place, or would change; empty for other nodes."""
    target, args = _inner(node)
    found = in_place_of(target)
    if found is not None:
        return _flat([args[at] for at in found[1]])
    if isinstance(target, torch._ops.OpOverload) and target.namespace == NAMESPACE:
        return _returned(target, args, node.kwargs)
    return []


def _stems_from_input(node: Node) -> bool:
    """Returns: whether a value is an input of the graph, or a result of our operators on one."""
    while _is_getitem(node):
        parent = node.args[0]
        assert isinstance(parent, Node)
        node = parent
    if node.op in ("placeholder", "get_attr"):
        return True
    return any(map(_stems_from_input, _changed_arguments(node)))


def _is_given_out(node: Node) -> bool:
    """Returns: whether the graph returns a value, or a view or result of our operators on it."""
    for user in node.users:
        if user.op == "output":
            return True
        if _is_getitem(user):
            follows = not (_is_wrapper(node) and user.args[1] == _TOKEN)
        elif _is_wrapper(user) or user.target is not torch.ops.aten.copy_.default:
            target, args = _inner(user)
            follows = node in _changed_arguments(user) or (
                isinstance(target, torch._ops.OpOverload)
                and node in _returned(target, args, user.kwargs)
            )
        else:
            follows = False
        if follows and _is_given_out(user):
            return True
    return False


def gives_out_an_input(node: Node) -> bool:
    """Returns: whether the graph would return the memory of one of its inputs, written in place.

    A caller owns what a graph returns. Memory that is saved for a backward graph might be
    overwritten there.
    """
    return any(map(_stems_from_input, _changed_arguments(node))) and _is_given_out(node)


def _shares_memory(node: Node, memory_of: Callable[[Node], Any]) -> bool:
    """Returns: whether an argument that the operator changes shares memory with another argument.

    A compiler may merge tensors of the program that it finds equal.
    """
    given = [memory_of(one) for one in _flat(_inner(node)[1])]
    return any(given.count(memory_of(one)) > 1 for one in _changed_arguments(node))


def inductor_may_write(node: Node) -> bool:
    """Adds conditions to inductor's own checks, which treat the changed tensors one by one."""
    from torch._inductor.fx_utils import get_node_storage

    return not gives_out_an_input(node) and not _shares_memory(node, get_node_storage)


def _is_copy_back(node: Node, memory: _Memory, group: Node) -> bool:
    """Returns: whether a node writes to an input of the graph without reading it."""
    return (
        node.target is torch.ops.aten.copy_.default
        and memory.of(node.args[0]) is group  # type: ignore[arg-type]
        and (memory.of(node.args[1]) is not group)  # type: ignore[arg-type]
    )


def _may_be_written(node: Node, changed: list[Node], memory: _Memory, order: list[Node]) -> bool:
    """Returns: whether the program gives the same results if `node` writes to `changed`."""
    if _shares_memory(node, memory.of):
        return False
    groups = [memory.of(one) for one in changed]
    later = order[order.index(node) + 1 :]
    for group in groups:
        members = [one for one in order if memory.of(one) is group]
        copies = [one for one in later if _is_copy_back(one, memory, group)]
        users = {user for one in members for user in one.users}
        read = [one for one in later if one in users and one not in copies]
        first = later.index(copies[0]) if copies else len(later)
        if any(later.index(one) < first for one in read):
            return False
        is_input = any(one.op in ("placeholder", "get_attr") for one in members)
        if is_input and not copies:
            return False
    return True


def reinplacement_pass(
    gm: GraphModule, example_inputs: Sequence[Any] | None = None
) -> GraphModule:  # fmt: skip
    """Makes functional operators in-place where the results do not change.

    An argument is overwritten if no node reads it later. An input of the graph is overwritten only
    if the graph writes to it anyway. Copies of a result onto itself are removed. Operators inside
    wrappers for effects are changed inside the wrappers. Inductor accepts that; other compilers
    need `strip_with_effects_pass` afterwards.

    Args:
        gm: a graph of functional operators; it is changed and recompiled.
        example_inputs: not used; compilers pass it.
    """
    order = list(gm.graph.nodes)
    memory = _Memory()
    for node in order:
        memory.see(node)
    for node in order:
        target, args = _inner(node)
        found = in_place_of(target) if node.op == "call_function" else None
        if found is None:
            continue
        in_place, indices = found
        changed = _flat([args[at] for at in indices])
        if gives_out_an_input(node) or not _may_be_written(node, changed, memory, order):
            continue
        if _is_wrapper(node):
            node.update_arg(1, in_place)
        else:
            node.target = in_place
        memory = _Memory()  # the results share memory with the changed arguments now
        for one in order:
            memory.see(one)
    for node in order:
        if node.target is torch.ops.aten.copy_.default and _is_same(node, memory):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
    gm.graph.lint()
    gm.recompile()
    return gm


def _is_same(copy: Node, memory: _Memory) -> bool:
    """Returns: whether a copy writes a tensor onto itself, with no view in between."""
    goal, source = copy.args[:2]
    assert isinstance(goal, Node)
    while isinstance(source, Node) and source is not goal:
        source = _passed_on(source)
    return source is goal


def _passed_on(node: Node) -> Node | None:
    """The argument that our in-place operator returns as this node; None for other nodes."""
    path: list[Any] = []
    while _is_getitem(node):
        path.insert(0, node.args[1])
        parent = node.args[0]
        assert isinstance(parent, Node)
        node = parent
    target, args = _inner(node)
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != NAMESPACE:
        return None
    if not target._schema.is_mutable:
        return None
    if _is_wrapper(node) and (not path or path.pop(0) == _TOKEN):
        return None
    changed = [
        args[at]
        for at, argument in enumerate(target._schema.arguments)
        if argument.alias_info is not None and at < len(args)
    ]
    value: Any = changed[0] if len(changed) == 1 else changed
    for index in path:
        value = value[index]
    return value if isinstance(value, Node) else None


def strip_with_effects_pass(
    gm: GraphModule, example_inputs: Sequence[Any] | None = None
) -> GraphModule:  # fmt: skip
    """Removes the effect wrappers around our operators. Other operators stay wrapped.

    The graph then runs in the order of its nodes, for compilers that keep this order. Uses of a
    wrapper's token get the token that the wrapper was given. So the graph has as many outputs as
    before.

    Args:
        gm: a graph; it is changed and recompiled.
        example_inputs: not used; compilers pass it.
    """
    graph = gm.graph
    for node in list(graph.nodes):
        if not _is_wrapper(node) or getattr(node.args[1], "namespace", None) != NAMESPACE:
            continue
        token, target = node.args[:_WRAPPED]
        with graph.inserting_before(node):
            call = graph.call_function(target, node.args[_WRAPPED:], node.kwargs)
        returns = len(target._schema.returns)
        value = node.meta.get("val")
        if isinstance(value, tuple | list) and len(value) > 1:
            call.meta["val"] = value[1] if returns == 1 else tuple(value[1:])
        for user in list(node.users):
            index = user.args[1] if _is_getitem(user) else None
            if not isinstance(index, int):
                raise RuntimeError(
                    f"strip_with_effects_pass: {user} uses {node} as a whole; only its elements may"
                    " be used"
                )
            if index == _TOKEN:
                user.replace_all_uses_with(token)
            elif returns == 1:
                user.replace_all_uses_with(call)
            elif returns:
                with graph.inserting_before(user):
                    part = graph.call_function(operator.getitem, (call, index - 1))
                part.meta = dict(user.meta)
                user.replace_all_uses_with(part)
            graph.erase_node(user)
        graph.erase_node(node)
    graph.lint()
    gm.recompile()
    return gm
