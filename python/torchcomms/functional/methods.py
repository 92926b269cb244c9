"""Methods of communicators, windows and batches with TORCHCOMMS_PATCH_FOR_COMPILE=1.

In compiled functions the methods are operators. Otherwise they behave as before, with two
exceptions. If a tensor requires grad, the result carries the gradient. For tensors without memory,
such as meta tensors, nothing is sent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import torchcomms
from torchcomms._arguments import require_hints, require_limit
from torchcomms.functional import _graph_classes, _operations, collectives, registry  # noqa: F401
from torchcomms.functional.async_tensor import (
    FakeWork,
    TorchCommsAsyncTensor,
    _are_we_tracing,
    _waited,
    _wrap_result_with_registered_work,
)
from torchcomms.functional.param_parsing import (
    CollectiveParamSchema,
    ParsedArgs,
    as_timeout,
    bind,
    call_shape,
    is_fake_or_functional,
)

_Method = Callable[..., Any]

# Methods that store a tensor and are not operations.
_KEEP_TENSORS: dict[type, tuple[str, ...]] = {
    torchcomms.TorchComm: ("new_window", "tensor_register", "tensor_deregister"),
    torchcomms.TorchCommWindow: ("tensor_register", "register_local_buffer"),
}

# The outputs of batch receives, from a traced `recv` to the next traced `issue`.
_received: list[Tensor] = []
_library: torch.library.Library | None = None


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [one for one in value if isinstance(one, Tensor)]
    return found


def _requires_grad(tensors: Sequence[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _one_or_list(value: Any) -> Any:  # noqa: ANN401
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def _is_special(tensor: Tensor) -> bool:
    return tensor.is_meta or is_fake_or_functional(tensor)


def _traced(collective: registry.Collective) -> _Method:
    """The method for compiled functions."""
    schema = collective.schema
    shape = call_shape(schema.all_params[1:])
    names = [param.name for param in schema.all_params[1:]]
    async_at = names.index("async_op") if "async_op" in names else -1
    changed_at = [at - 1 for at in schema.mutable_indices]
    has_grad = collective.backward_fn is not None
    functional = registry.operator(collective.name)
    run = registry.operator(f"{collective.name}_") if changed_at else functional

    def method(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        values = bind(shape, args, kwargs, collective.method)
        is_async = False
        if async_at >= 0:
            is_async = values[async_at] = bool(values[async_at])
        if not changed_at:
            result = run(self, *values)
            if schema_returns:
                return result
            return FakeWork(result if is_async else None)
        written = [values[at] for at in changed_at]
        results = written[0] if len(written) == 1 else _tensors(written)
        if not has_grad or not _requires_grad(_tensors(values)):
            run(self, *values)
            return FakeWork(results if is_async else None)
        leaves = [one for one in _tensors(written) if one.requires_grad and one.is_leaf]
        if not leaves:
            results = run(self, *values)  # the tracer knows that these require grad
            return FakeWork(results) if is_async else results
        fresh = functional(self, *values)

        def write_leaves() -> None:
            with torch.no_grad():
                for tensor, result in zip(_tensors(written), _tensors([fresh]), strict=True):
                    tensor.copy_(result)

        if is_async:
            return FakeWork(fresh, write_leaves)
        write_leaves()
        return fresh

    schema_returns = bool(schema.output_params)
    return method


def _traced_recv(native: _Method) -> _Method:
    def method(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        native(self, args, kwargs)
        _received.append(args[0] if args else kwargs["tensor"])

    return method


def _traced_issue(native: _Method) -> _Method:
    def method(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        options = args[1] if len(args) > 1 else kwargs.pop("options", None)
        if options is not None:
            raise torchcomms.Unsupported("batch.issue: options cannot be traced: omit them")
        received = list(_received)
        _received.clear()
        return native(self, (received, *args[:1]), kwargs)

    return method


class _Written(torch.autograd.Function):
    """The in-place operation on tensors that cannot carry a gradient themselves.

    The returned tensors share their memory and carry the gradient.
    """

    @staticmethod
    def forward(ctx: Any, collective: Any, parsed: ParsedArgs, *tensors: Tensor) -> Any:  # noqa: ANN401
        ctx.collective = collective
        ctx.counts = [len(_tensors([value])) for value in parsed.get_tensor_inputs()]
        results = registry.operator(f"{collective.name}_")(*parsed.to_values())
        collective.setup_context_fn(ctx=ctx, inputs=tuple(parsed.to_values()), output=results)
        written = parsed.get_mutable_outputs_flat()
        torch.autograd.graph.increment_version(written)
        return tuple(tensor.detach() for tensor in written)

    backward = registry._InPlace.backward


def _carry_grad(written: Sequence[Tensor]) -> bool:
    """Returns: whether tensors can carry the gradient of what is written to them.

    The rules are those of in-place operations of torch: no leaves, and views only if one tensor is
    written. Tensors without a gradient stay so, because a reused buffer would keep its history
    alive.
    """
    if any(tensor.is_leaf for tensor in written):
        return False
    views = [tensor for tensor in written if tensor._is_view()]
    plain = torch._C._autograd.CreationMeta.DEFAULT
    return not views or (
        len(written) == 1 and torch._C._autograd._get_creation_meta(written[0]) == plain
    )


def _with_grad(collective: registry.Collective, parsed: ParsedArgs) -> Any:  # noqa: ANN401
    """Runs the operation and returns its results with their gradient."""
    tensors, _ = parsed.get_tensor_inputs_flat_with_mutable_mask()
    carry = _carry_grad(parsed.get_mutable_outputs_flat())
    written = (registry._InPlace if carry else _Written).apply(collective, parsed, *tensors)
    is_list = collective.schema.mutable_params[0].is_tensor_list()
    results = list(written) if is_list else written[0]
    return _wrap_result_with_registered_work(results) if parsed.get_value("async_op") else results


def _without_memory(collective: registry.Collective, parsed: ParsedArgs) -> FakeWork | None:
    """Checks or records the shapes of the operation. Nothing is sent."""
    name = f"{collective.name}_" if collective.is_mutating else collective.name
    result = registry.operator(name)(*parsed.to_values())
    if not parsed.get_value("async_op"):
        return None
    written = parsed.get_mutable_outputs_flat()
    return FakeWork(_one_or_list(written) if written else result)


def _converter(
    schema: CollectiveParamSchema, name: str, convert: Callable[[Any], Any]
) -> Callable[[list[Any]], None]:
    """A function that converts the value of one parameter, if the operation has that parameter."""
    found = [at for at, param in enumerate(schema.all_params) if param.name == name]

    def apply(values: list[Any]) -> None:
        for at in found:
            values[at] = convert(values[at])

    return apply


def _hints(method: str, value: Any) -> Any:  # noqa: ANN401
    return None if value is None else require_hints(method, value)


def _limit(method: str, value: Any) -> Any:  # noqa: ANN401
    """Converts a timeout for operators. Raises the errors of the native methods."""
    if value is None or isinstance(value, torchcomms.Timeout):
        return value
    return as_timeout(require_limit(method, value))


def _operation(collective: registry.Collective, traced: _Method) -> _Method:
    native = getattr(collective.target_class, collective.method)
    schema = collective.schema
    name = collective.method
    has_grad = collective.backward_fn is not None
    returns = bool(schema.output_params)
    traced_shape = call_shape(schema.all_params[1:])
    # Only compiled code may omit async_op.
    shape = tuple((names, () if "async_op" in names else rest) for names, rest in traced_shape)
    converters = (
        _converter(schema, "async_op", bool),
        _converter(schema, "hints", lambda value: _hints(name, value)),
        _converter(schema, "timeout", lambda value: _limit(name, value)),
    )

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if torch.compiler.is_compiling():
            return traced(self, args, kwargs)
        tensors = _tensors([*args, *kwargs.values()])
        if any(isinstance(tensor, TorchCommsAsyncTensor) for tensor in tensors):
            args, kwargs = _waited((args, kwargs))
            tensors = _tensors([*args, *kwargs.values()])
        wants_grad = has_grad and _requires_grad(tensors)
        tracing = _are_we_tracing()
        fake = tracing or any(map(_is_special, tensors))
        if not wants_grad and not fake:
            return native(self, *args, **kwargs)
        values = bind(traced_shape if tracing else shape, args, kwargs, name)
        parsed = ParsedArgs(schema.all_params, [self, *values])
        for convert in converters:
            convert(parsed.values)
        if not fake:
            return _with_grad(collective, parsed)
        if returns:
            return registry.operator(collective.name)(*parsed.to_values())
        return _without_memory(collective, parsed)

    return _like(method, native, collective)


def _waiting(native: _Method) -> _Method:
    """Wraps a method so that it receives complete tensors."""

    @functools.wraps(native)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        args, kwargs = _waited((args, kwargs))
        return native(self, *args, **kwargs)

    return method


def _outside_graphs(native: _Method) -> _Method:
    """Wraps a method so that compiled functions do not trace into it: it breaks the graph."""

    @functools.wraps(native)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return native(self, *args, **kwargs)

    # torch.compiler.disable() would import the compiler now.
    method._torchdynamo_disable = True  # type: ignore[attr-defined]
    method._torchdynamo_disable_msg = f"{native.__name__} cannot be traced"  # type: ignore[attr-defined]
    return method


def _issue(collective: registry.Collective, traced: _Method) -> _Method:
    native = getattr(collective.target_class, collective.method)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if torch.compiler.is_compiling():
            return traced(self, args, kwargs)
        return native(self, *args, **kwargs)

    return _like(method, native, collective)


def _like(method: _Method, native: Any, collective: registry.Collective) -> _Method:  # noqa: ANN401
    method.__name__ = collective.method
    method.__qualname__ = f"{collective.target_class.__name__}.{collective.method}"
    method.__doc__ = native.__doc__
    return method


def install() -> None:
    """Makes the operators and replaces the methods. Later calls do nothing.

    Does nothing if the classes lack the metaclass that torch requires.
    """
    global _library  # noqa: PLW0603 (the operators live as long as it)
    if _library is not None:
        return
    methods: dict[type, tuple[str, ...]] = {
        cls: tuple(row.method for row in rows) for cls, rows in _operations.ROWS.items()
    }
    if not _graph_classes.register(methods):
        return
    _library = torch.library.Library(registry.NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
    registry.finalize_registration(_library)
    new_methods: dict[tuple[type, str], _Method] = {}
    for key, collective in registry._REGISTERED_COLLECTIVES.items():
        traced = _traced(collective)
        if key == (torchcomms.BatchSendRecv, "issue"):
            new_methods[key] = _issue(collective, _traced_issue(traced))
        else:
            is_recv = key == (torchcomms.BatchSendRecv, "recv")
            new_methods[key] = _operation(collective, _traced_recv(traced) if is_recv else traced)
    for (cls, name), method in new_methods.items():
        setattr(cls, name, method)
    for cls, traced_names in methods.items():
        for name in _graph_classes.other_members(cls, traced_names):
            native = getattr(cls, name)
            if name in _KEEP_TENSORS.get(cls, ()):
                native = _waiting(native)
            setattr(cls, name, _outside_graphs(native))
    torchcomms.TorchComm._traceable = True  # type: ignore[attr-defined]
