"""Registers operations as operators of torch; ``register_collective`` describes one.

An operation that changes tensors has two operators. The in-place operator ``x_`` changes its
arguments and returns them. The functional operator ``x`` returns new tensors and changes nothing.
Compilers convert the first to the second, and back where the results do not change. All operators
are ordered side effects, because peer ranks wait for them.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import torchcomms
from torchcomms.functional import _pending
from torchcomms.functional.param_parsing import CollectiveParamSchema, ParamSpec, ParsedArgs

NAMESPACE = "torchcomms"
_WAIT = "torchcomm_wait_tensors"
_WAIT_INDEX = 0  # index of the tensors among its arguments


@dataclasses.dataclass(frozen=True)
class Collective:
    """A registered operation.

    `native` is the method without torch.compile. `backward_fn` and `setup_context_fn` are passed to
    torch.library.register_autograd for the functional operator. `meta_fn` returns the result of an
    operation that changes nothing.
    """

    target_class: type
    method: str
    native: Callable[..., Any]
    schema: CollectiveParamSchema
    meta_fn: Callable[..., Any] | None
    backward_fn: Callable[..., Any] | None
    setup_context_fn: Callable[..., Any] | None
    is_bound_to_tensors: bool = False  # see register_collective

    @property
    def name(self) -> str:
        """The name of the functional operator, without namespace."""
        return f"{self.target_class.__name__.lower()}_{self.method}"

    @property
    def is_mutating(self) -> bool:
        """Whether there is an in-place operator."""
        return bool(self.schema.mutable_params)


_REGISTERED_COLLECTIVES: dict[tuple[type, str], Collective] = {}


def register_collective(  # noqa: PLR0917 (the contract's order)
    target_class: type,
    method: str,
    param_specs: Sequence[ParamSpec],
    meta_fn: Callable[..., Any] | None = None,
    backward_fn: Callable[..., Any] | None = None,
    setup_context_fn: Callable[..., Any] | None = None,
    native: Callable[..., Any] | None = None,
) -> Collective:
    """Registers an operation. `finalize_registration` makes its operators.

    Args:
        target_class: the class that has the method.
        method: the name of the method.
        param_specs: its parameters.
        meta_fn: returns the result for fake tensors, if the operation changes nothing.
        backward_fn: the gradient, as for torch.library.register_autograd.
        setup_context_fn: as for torch.library.register_autograd.
        native: the function that runs; None: the method. It may hold its tensors elsewhere, so the
            functional operator passes the original tensors and returns copies.
    Raises:
        ValueError: no such method, or it was registered before.
    """
    key = (target_class, method)
    if key in _REGISTERED_COLLECTIVES:
        raise ValueError(f"{target_class.__name__}.{method} is registered already")
    own = getattr(target_class, method, None)
    if own is None:
        raise ValueError(f"{target_class.__name__} has no method '{method}'")
    schema = CollectiveParamSchema.from_raw_specs(target_class, param_specs)
    registered = Collective(
        target_class=target_class,
        method=method,
        native=native or own,
        schema=schema,
        meta_fn=meta_fn,
        backward_fn=backward_fn,
        setup_context_fn=setup_context_fn,
        is_bound_to_tensors=native is not None and bool(schema.mutable_params),
    )
    _REGISTERED_COLLECTIVES[key] = registered
    return registered


def finalize_registration(lib: torch.library.Library) -> None:
    """Makes the operators of all registered operations in `lib`, and the operators that wait.

    Existing operators stay, so that operations registered later can be added.
    """
    known = getattr(torch.ops, NAMESPACE)
    for collective in _REGISTERED_COLLECTIVES.values():
        if not hasattr(known, collective.name):
            _define(lib, collective)
    if not hasattr(known, _WAIT):
        _define_wait(lib)


def operator(name: str) -> torch._ops.OpOverload:
    """The operator of a name without namespace."""
    found: torch._ops.OpOverload = getattr(getattr(torch.ops, NAMESPACE), name).default
    return found


def flat(results: Any) -> list[Tensor]:  # noqa: ANN401
    """The tensors in the result of an operator: a tensor, a list, or several of both."""
    if isinstance(results, Tensor):
        return [results]
    return [tensor for part in results for tensor in flat(part)]


def _returned(values: Sequence[Any]) -> Any:  # noqa: ANN401
    return values[0] if len(values) == 1 else tuple(values)


def _like(value: Any, function: Callable[[Tensor], Tensor]) -> Any:  # noqa: ANN401
    """Applies `function` to a tensor, or to each tensor of a list."""
    return function(value) if isinstance(value, Tensor) else [function(tensor) for tensor in value]


def _empty(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _copy(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _call(collective: Collective, parsed: ParsedArgs) -> Any:  # noqa: ANN401
    """Runs the operation. Operands that are not contiguous are read and written through copies."""
    values = parsed.to_values()
    changed = set(parsed.get_mutable_tensor_indices())
    copies: list[tuple[Tensor, Tensor]] = []

    def contiguous(tensor: Tensor, written: bool) -> Tensor:
        if tensor.is_contiguous():
            return tensor
        copy = tensor.contiguous()
        if written:
            copies.append((tensor, copy))
        return copy

    for at in parsed.get_tensor_input_indices():
        values[at] = _like(values[at], functools.partial(contiguous, written=at in changed))
    result = collective.native(*values)
    if copies:
        result.wait()
        for tensor, copy in copies:
            tensor.copy_(copy)
    return result


def _run(collective: Collective, parsed: ParsedArgs) -> Any:  # noqa: ANN401
    """Runs the operation on the given tensors. Returns the result of the in-place operator."""
    with torch.no_grad():
        result = _call(collective, parsed)
    if collective.schema.output_params:
        return result
    written = parsed.get_mutable_outputs()
    if not written:
        written = [torch.empty(0)] if collective.schema.needs_async_dummy_return else []
    if parsed.get_value("async_op"):
        _pending.remember(flat(written), result)
    return _returned(written) if written else None


def _for_torch(signature: str) -> str:
    """Renames the object in a signature to `obj`.

    torch.fx renames an argument `self` of an operator to `input`, which some operators have
    already.
    """
    return signature.replace(" self,", " obj,", 1)


def _define(lib: Any, collective: Collective) -> None:  # noqa: ANN401
    name, schema = collective.name, collective.schema
    changed = schema.mutable_indices

    def fresh(parsed: ParsedArgs, held: Callable[[Tensor], Tensor]) -> ParsedArgs:
        """The arguments with new tensors in place of those that the operation changes."""
        values = parsed.to_values()
        for at in changed:
            make = _empty if schema.all_params[at].write_only else held
            values[at] = _like(values[at], make)
        return ParsedArgs(schema.all_params, values)

    def in_place(*args: Any) -> Any:  # noqa: ANN401
        return _run(collective, schema.parse_lib_args(args))

    def functional(*args: Any) -> Any:  # noqa: ANN401
        parsed = schema.parse_lib_args(args)
        if not collective.is_bound_to_tensors:
            return _run(collective, fresh(parsed, _copy))
        _run(collective, parsed)
        _pending.wait(parsed.get_mutable_outputs_flat())
        return _returned([_like(value, _copy) for value in parsed.get_mutable_outputs()])

    def in_place_fake(*args: Any) -> Any:  # noqa: ANN401
        _register_if_imported()
        return _returned(schema.parse_lib_args(args).get_mutable_outputs())

    def functional_fake(*args: Any) -> Any:  # noqa: ANN401
        _register_if_imported()
        parsed = schema.parse_lib_args(args)
        if collective.is_mutating:
            return _returned(fresh(parsed, _empty).get_mutable_outputs())
        if collective.meta_fn is not None:
            return collective.meta_fn(*parsed.to_values())
        return torch.empty(0) if schema.needs_async_dummy_return else None

    lib.define(f"{name}{_for_torch(schema.functional_signature)}")
    lib.impl(name, functional, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", functional_fake, lib=lib)
    _set_ordered(name)
    if collective.backward_fn is not None:
        torch.library.register_autograd(
            f"{NAMESPACE}::{name}",
            collective.backward_fn,
            setup_context=collective.setup_context_fn,
            lib=lib,
        )
    else:
        lib.impl(name, torch.library.fallthrough_kernel, "Autograd")
    if not collective.is_mutating:
        return
    lib.define(f"{name}_{_for_torch(schema.signature)}")
    lib.impl(f"{name}_", in_place, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}_", in_place_fake, lib=lib)
    if collective.backward_fn is not None:
        lib.impl(f"{name}_", functools.partial(_in_place_autograd, collective), "Autograd")
    else:
        lib.impl(f"{name}_", torch.library.fallthrough_kernel, "Autograd")
    _functionalize(f"{name}_", name, changed, collective)


def _set_ordered(name: str) -> None:
    if hasattr(torch.library, "EffectType"):  # only newer torch versions have effects
        entry = torch._library.simple_registry.singleton.find(operator(name)._name)
        entry.effect.register(torch.library.EffectType.ORDERED)


# Views of a whole tensor. In a graph, replacing such a view replaces the tensor without a copy.
_WHOLE_VIEWS = {
    f"{name}_ViewMeta"
    for name in ("alias", "detach", "view", "_unsafe_view", "t", "transpose_int", "permute",
                 "unsqueeze", "squeeze", "squeeze_dim", "squeeze_dims")
}  # fmt: skip


def _is_part(tensor: Any) -> bool:  # noqa: ANN401
    """Returns: whether a functional tensor may be a part of another one."""
    views_of = getattr(torch._C._functionalization, "get_view_meta_sequence", None)
    if views_of is None:  # an older torch cannot say
        return True
    views = views_of(tensor.elem)
    return any(type(view).__name__ not in _WHOLE_VIEWS for view in views)


def _writes_later(collective: Collective, args: Sequence[Any]) -> bool:
    """Returns: whether the operation may still write after its call has returned.

    Raises: Unsupported if a later call, without these tensors, makes the operation write.
    """
    names = [param.name for param in collective.schema.all_params]
    if "async_op" not in names:
        raise torchcomms.Unsupported(
            f"{collective.method}: cannot write to a part of a tensor in a graph; pass a whole one"
        )
    at = names.index("async_op")
    return at < len(args) and bool(args[at])


def _functionalize(
    name: str, functional_name: str, changed: Sequence[int], collective: Collective | None = None
) -> None:
    """Converts the in-place operator to the functional one, whose results replace the tensors."""
    _set_ordered(name)  # for compilers that have made it in-place again

    def replace(ctx: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        written = [args[at] for at in changed]
        has_parts = any(map(_is_part, flat(written)))
        with ctx.mode:  # the mode orders effects
            results = operator(functional_name)(*args, **kwargs)
            # A part is copied into its whole, so its data must be complete before the copy.
            if has_parts and collective is not None and _writes_later(collective, args):
                results = operator(_WAIT)(flat(results))
        for tensor, result in zip(flat(written), flat(results), strict=True):
            ctx.replace(tensor, ctx.unwrap_tensors(result))
            ctx.commit_update(tensor)
            ctx.sync(tensor)
        return _returned(written)

    operator(name).py_functionalize_impl(replace)
    _IN_PLACE[functional_name] = tuple(changed)


class _InPlace(torch.autograd.Function):
    """The in-place operator with the gradient of the functional one, on a flat list of tensors."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        collective: Collective,
        parsed: ParsedArgs,
        *tensors: Tensor,
    ) -> Any:  # noqa: ANN401
        values = _with_tensors(parsed, tensors)
        ctx.collective = collective
        ctx.counts = [len(flat([value])) for value in values.get_tensor_inputs()]
        with torch._C._AutoDispatchBelowAutograd():
            results = operator(f"{collective.name}_")(*values.to_values())
        assert collective.setup_context_fn is not None
        collective.setup_context_fn(ctx=ctx, inputs=tuple(values.to_values()), output=results)
        written = values.get_mutable_outputs_flat()
        ctx.mark_dirty(*written)
        return tuple(written)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # noqa: ANN401
        collective = ctx.collective
        changed = collective.schema.mutable_params
        given = list(grads) if changed[0].is_tensor_list() else grads[0]
        found = collective.backward_fn(ctx, given)
        wanted = [
            found[at]
            for at, param in enumerate(collective.schema.all_params)
            if param.is_tensor_like()
        ]
        inputs: list[Tensor | None] = []
        for value, count in zip(wanted, ctx.counts, strict=True):
            inputs += [None] * count if value is None else _as_list(value)
        return None, None, *inputs


def _as_list(value: Any) -> list[Any]:  # noqa: ANN401
    return [value] if isinstance(value, Tensor) else list(value)


def _with_tensors(parsed: ParsedArgs, tensors: Sequence[Tensor]) -> ParsedArgs:
    """The arguments of the call with other tensors."""
    values, rest = parsed.to_values(), list(tensors)
    for at in parsed.get_tensor_input_indices():
        if isinstance(values[at], Tensor):
            values[at] = rest.pop(0)
        else:
            values[at], rest = rest[: len(values[at])], rest[len(values[at]) :]
    return ParsedArgs(parsed.all_params, values)


def _in_place_autograd(collective: Collective, *args: Any) -> Any:  # noqa: ANN401
    parsed = collective.schema.parse_lib_args(args)
    tensors, _ = parsed.get_tensor_inputs_flat_with_mutable_mask()
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        _InPlace.apply(collective, parsed, *tensors)
        return _returned(parsed.get_mutable_outputs())
    with torch._C._AutoDispatchBelowAutograd():
        return operator(f"{collective.name}_")(*args)


def _define_wait(lib: Any) -> None:  # noqa: ANN401
    def in_place(tensors: list[Tensor]) -> list[Tensor]:
        _pending.wait(tensors)
        return tensors

    def functional(tensors: list[Tensor]) -> list[Tensor]:
        _pending.wait(tensors)
        return [tensor.clone() for tensor in tensors]

    def in_place_fake(tensors: list[Tensor]) -> list[Tensor]:
        _register_if_imported()
        return tensors

    def functional_fake(tensors: list[Tensor]) -> list[Tensor]:
        _register_if_imported()
        return [torch.empty_like(tensor) for tensor in tensors]

    lib.define(f"{_WAIT}(Tensor[] tensors) -> Tensor[]")
    lib.define(f"{_WAIT}_(Tensor(a!)[] tensors) -> Tensor(a!)[]")
    for name, kernel, fake in (
        (_WAIT, functional, functional_fake),
        (f"{_WAIT}_", in_place, in_place_fake),
    ):
        lib.impl(name, kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=lib)
    # The in-place wait changes no value, so tensors keep their gradient. The functional wait passes
    # the gradient through.
    lib.impl(f"{_WAIT}_", torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_autograd(
        f"{NAMESPACE}::{_WAIT}", lambda ctx, grads: grads, setup_context=None, lib=lib
    )
    _set_ordered(_WAIT)
    _functionalize(f"{_WAIT}_", _WAIT, [_WAIT_INDEX])


# The indices of the arguments that the in-place operator changes, by functional operator.
_IN_PLACE: dict[str, tuple[int, ...]] = {}


def in_place_of(target: Any) -> tuple[torch._ops.OpOverload, tuple[int, ...]] | None:  # noqa: ANN401
    """The in-place operator of a functional one, and the indices of what it changes; else None."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != NAMESPACE:
        return None
    name = target._opname
    return (operator(f"{name}_"), _IN_PLACE[name]) if name in _IN_PLACE else None


@functools.cache
def _register_with_inductor() -> None:
    from torchcomms.functional.passes import inductor_may_write

    module = sys.modules["torch._inductor.fx_passes.reinplace"]
    for name, changed in _IN_PLACE.items():
        module.inplaceable_ops[operator(name)] = module.InplaceableOp(
            operator(f"{name}_"), changed, inductor_may_write
        )


def _register_if_imported() -> None:
    """Registers the operators with inductor if it is imported; importing it would take long."""
    if "torch._inductor.fx_passes.post_grad" in sys.modules:
        _register_with_inductor()
