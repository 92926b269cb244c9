"""Parameters and arguments of operations, for methods and for operators.

Each operation has one `CollectiveParamSchema`, made of `ParamSpec`s. It gives the two signatures of
the operator, the arguments that the operation changes, and the parsing of calls.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import inspect
import types
import typing
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import torchcomms
from torchcomms._arguments import MOST_SECONDS

_ABSENT: Any = inspect.Parameter.empty


class ParamKind(enum.Enum):
    """The role of a parameter in its operation."""

    CLASS_OBJECT = "class_object"  # the object that has the method
    INPUT = "input"  # an operand: tensors that are read or changed
    OUTPUT = "output"  # a new result; not a parameter of the call
    EXTRA = "extra"  # any other parameter


_TYPES = {
    Tensor: "Tensor",
    int: "int",
    bool: "bool",
    str: "str",
    float: "float",
    torch.dtype: "ScalarType",
    torch.device: "Device",
}
_TENSOR_LIST = list[Tensor]
_LISTS = {Tensor: "Tensor[]", int: "int[]"}
# Classes of torchcomms that appear in signatures by their own names.
_CLASSES = (
    torchcomms.TorchComm,
    torchcomms.TorchCommWindow,
    torchcomms.BatchSendRecv,
    torchcomms.ReduceOp,
    torchcomms.Timeout,
)


def class_name(cls: type) -> str:
    """The name of a class in signatures of operators."""
    return f"{cls.__module__}.{cls.__qualname__}"


def schema_type(annotation: Any) -> str:  # noqa: ANN401
    """The text of a type in signatures: "Tensor[]" for list[Tensor], "int?" for int | None.

    A str is returned unchanged; torch checks it when it defines the operator.

    Raises:
        ValueError: a type that signatures do not support.
    """
    if isinstance(annotation, str):
        return annotation
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        inner = [argument for argument in arguments if argument is not type(None)]
        if len(inner) == 1 and len(arguments) == 2:
            return f"{schema_type(inner[0])}?"
    elif origin is list and arguments and arguments[0] in _LISTS:
        return _LISTS[arguments[0]]
    elif origin is dict and arguments == (str, str):
        return "Dict(str, str)"
    elif annotation in _TYPES:
        return _TYPES[annotation]
    elif annotation in _CLASSES:
        return class_name(annotation)
    raise ValueError(
        f"type {annotation!r} is not possible in an operator's signature: allowed are"
        f" {', '.join(known.__name__ for known in (*_TYPES, *_CLASSES))}, list[Tensor], list[int],"
        " dict[str, str], and each with '| None'"
    )


@dataclasses.dataclass(frozen=True)
class ParamSpec:
    """One parameter of an operation.

    Args:
        name: its name in the method.
        kind: see ParamKind.
        torch_type: its type, as an annotation or as the text of signatures: list[Tensor] or
            "Tensor[]".
        default_value: its default; omitted: it has none.
        mutable: for an INPUT tensor: whether the operation changes it.
        write_only: for a mutable one: whether its old content does not matter.
        older: older names, accepted as keywords.
    """

    name: str
    kind: ParamKind
    torch_type: Any
    default_value: Any = _ABSENT
    mutable: bool = True
    write_only: bool = False
    older: tuple[str, ...] = ()

    def has_default(self) -> bool:
        """Returns whether a call may omit it."""
        return self.default_value is not _ABSENT

    def is_tensor(self) -> bool:
        """Returns whether it is one tensor."""
        return self.torch_type is Tensor or bool(self.torch_type == "Tensor")

    def is_tensor_list(self) -> bool:
        """Returns whether it is a list of tensors."""
        return bool(self.torch_type in (_TENSOR_LIST, "Tensor[]"))

    def is_tensor_like(self) -> bool:
        """Returns whether it is a tensor or a list of tensors."""
        return self.is_tensor() or self.is_tensor_list()

    def is_changed(self) -> bool:
        """Returns whether the operation writes to it."""
        return self.kind is ParamKind.INPUT and self.mutable and self.is_tensor_like()


# For each parameter its names, and its default or an empty tuple.
CallShape = tuple[tuple[tuple[str, ...], tuple[Any, ...]], ...]


def call_shape(params: Sequence[ParamSpec]) -> CallShape:
    """Converts parameters for `bind` to few plain objects, because compilers guard each object."""
    return tuple(
        ((param.name, *param.older), (param.default_value,) if param.has_default() else ())
        for param in params
    )


def bind(
    shape: CallShape, args: Sequence[Any], kwargs: dict[str, Any], name: str = "operation"
) -> list[Any]:
    """Binds arguments to parameters as Python does. Returns one value per parameter.

    Args:
        name: the name of the function in errors.
    Raises:
        TypeError: too many arguments, or one is missing, unknown or given twice.
    """
    if len(args) > len(shape):
        raise TypeError(f"{name}() takes at most {len(shape)} arguments, {len(args)} were given")
    values, taken = list(args), 0
    for at, (names, default) in enumerate(shape):
        named = [known for known in names if known in kwargs]
        if len(named) > (at >= len(args)):
            raise TypeError(f"{name}() got multiple values for argument '{names[0]}'")
        taken += len(named)
        if at < len(args):
            continue
        if not named and not default:
            raise TypeError(f"{name}() missing required argument '{names[0]}'")
        values.append(kwargs[named[0]] if named else default[0])
    if taken < len(kwargs):
        known = [one for names, _ in shape for one in names]
        unknown = [one for one in kwargs if one not in known]
        raise TypeError(f"{name}() got an unexpected keyword argument '{unknown[0]}'")
    return values


def _flat(values: Sequence[Any]) -> list[Tensor]:
    """The tensors in a list of tensors and lists of tensors."""
    tensors: list[Tensor] = []
    for value in values:
        tensors += [value] if isinstance(value, Tensor) else list(value or ())
    return tensors


def is_fake_or_functional(tensor: Tensor) -> bool:
    """Returns: whether a tensor is a fake or functional one, whose data cannot be sent."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor

    return isinstance(tensor, FakeTensor | FunctionalTensor) or torch._is_functional_tensor(tensor)


class ParsedArgs:
    """The arguments of one call: one value per parameter, the object first."""

    def __init__(self, all_params: Sequence[ParamSpec], values: Sequence[Any]) -> None:
        self.all_params = list(all_params)
        self.values = list(values)

    @classmethod
    def from_lib_args(cls, args: Sequence[Any], all_params: Sequence[ParamSpec]) -> ParsedArgs:
        """Parses an operator's arguments, whose trailing defaults may be missing.

        Raises:
            TypeError: too many arguments, or one is missing.
        """
        if len(args) > len(all_params):
            raise TypeError(f"takes at most {len(all_params)} arguments, {len(args)} were given")
        values = list(args)
        for param in all_params[len(args) :]:
            if not param.has_default():
                raise TypeError(f"missing required argument '{param.name}'")
            values.append(param.default_value)
        return cls(all_params, values)

    @classmethod
    def from_method_args(
        cls,
        obj: Any,  # noqa: ANN401
        args: Sequence[Any],
        kwargs: dict[str, Any],
        all_params: Sequence[ParamSpec],
        name: str = "operation",
    ) -> ParsedArgs:
        """Parses the arguments of a method call.

        Raises:
            TypeError: too many arguments, or one is missing, unknown or given twice.
        """
        return cls(all_params, [obj, *bind(call_shape(all_params[1:]), args, kwargs, name)])

    def get_value(self, name: str) -> Any:  # noqa: ANN401
        """The value of a parameter; None if there is no such parameter."""
        for param, value in zip(self.all_params, self.values, strict=False):
            if param.name == name:
                return value
        return None

    def get_tensor_input_indices(self) -> list[int]:
        """The indices of operands that are tensors or lists of tensors."""
        return [
            at
            for at, param in enumerate(self.all_params)
            if param.kind is ParamKind.INPUT and param.is_tensor_like()
        ]

    def get_mutable_tensor_indices(self) -> list[int]:
        """The indices of the values that the operation changes."""
        return [at for at, param in enumerate(self.all_params) if param.is_changed()]

    def get_mutable_outputs(self) -> list[Any]:
        """The values that the operation changes: tensors and lists of tensors."""
        return [self.values[at] for at in self.get_mutable_tensor_indices()]

    def get_mutable_outputs_flat(self) -> list[Tensor]:
        """The tensors that the operation changes."""
        return _flat(self.get_mutable_outputs())

    def get_tensor_inputs(self) -> list[Any]:
        """The operands: tensors and lists of tensors."""
        return [self.values[at] for at in self.get_tensor_input_indices()]

    def get_tensor_inputs_flat_with_mutable_mask(self) -> tuple[list[Tensor], list[bool]]:
        """The tensors among the operands, and for each whether the operation changes it."""
        tensors: list[Tensor] = []
        mask: list[bool] = []
        for at in self.get_tensor_input_indices():
            tensors += _flat([self.values[at]])
            mask += [self.all_params[at].is_changed()] * (len(tensors) - len(mask))
        return tensors, mask

    def has_requires_grad(self) -> bool:
        """Returns whether one of the tensors requires grad."""
        return any(tensor.requires_grad for tensor in _flat(self.get_tensor_inputs()))

    def has_meta(self) -> bool:
        """Returns whether one of the tensors is a meta tensor."""
        return any(tensor.is_meta for tensor in _flat(self.get_tensor_inputs()))

    def has_fake_or_functional_tensor(self) -> bool:
        """Returns whether one of the tensors is fake or functional."""
        return any(map(is_fake_or_functional, _flat(self.get_tensor_inputs())))

    def to_values(self) -> list[Any]:
        """All values, the object first."""
        return list(self.values)


class CollectiveParamSchema:
    """The parameters of one operation, and the signatures of its two operators.

    The in-place operator changes its arguments and returns them. The functional operator returns
    new tensors and changes nothing. An operation that changes nothing has one operator.
    """

    def __init__(
        self, object_param: ParamSpec, inputs: list[ParamSpec], outputs: list[ParamSpec],
        extras: list[ParamSpec],
    ) -> None:  # fmt: skip
        self.object_param = object_param
        self.input_params = inputs
        self.output_params = outputs
        self.extra_params = extras
        self.all_params = [object_param, *inputs, *extras]

    @classmethod
    def from_raw_specs(
        cls, target_class: type, specs: Sequence[ParamSpec]
    ) -> CollectiveParamSchema:
        """Makes a schema from parameters in any order of kinds. The object, `self`, is added if
        missing.

        The types of the schema's parameters are texts, except that of the object, which is the
        class.

        Raises:
            ValueError: several objects, or a type that signatures do not support.
        """
        by_kind: dict[ParamKind, list[ParamSpec]] = {kind: [] for kind in ParamKind}
        for spec in specs:
            is_object = spec.kind is ParamKind.CLASS_OBJECT
            by_kind[spec.kind].append(spec if is_object else _as_text(spec))
        objects = by_kind[ParamKind.CLASS_OBJECT]
        if len(objects) > 1:
            raise ValueError(f"{len(objects)} parameters are the object; only one is allowed")
        own = objects[0] if objects else ParamSpec("self", ParamKind.CLASS_OBJECT, target_class)
        return cls(
            own, by_kind[ParamKind.INPUT], by_kind[ParamKind.OUTPUT], by_kind[ParamKind.EXTRA]
        )

    @property
    def mutable_params(self) -> list[ParamSpec]:
        """The parameters that the operation changes."""
        return [param for param in self.all_params if param.is_changed()]

    @property
    def mutable_indices(self) -> list[int]:
        """The indices of these parameters in `all_params`."""
        return [at for at, param in enumerate(self.all_params) if param.is_changed()]

    @property
    def needs_async_dummy_return(self) -> bool:
        """Whether the operation returns a dummy tensor, because a wait needs some tensor."""
        is_async = any(param.name == "async_op" for param in self.all_params)
        return is_async and not self.mutable_params and not self.output_params

    @property
    def signature(self) -> str:
        """The signature of the in-place operator, or of the only one."""
        return f"{self._arguments(in_place=True)} -> {self.inplace_return_type}"

    @property
    def functional_signature(self) -> str:
        """The signature of the functional operator."""
        return f"{self._arguments(in_place=False)} -> {self.functional_return_type}"

    @property
    def return_type(self) -> str:
        """The return type of an operation that changes nothing."""
        if self.needs_async_dummy_return:
            return "Tensor"
        return _one_or_tuple([schema_type(param.torch_type) for param in self.output_params])

    @property
    def inplace_return_type(self) -> str:
        """The return type of the in-place operator: the types of what it changes."""
        if not self.mutable_params:
            return self.return_type
        return _one_or_tuple([self._type(param, in_place=True) for param in self.mutable_params])

    @property
    def functional_return_type(self) -> str:
        """The return type of the functional operator: types of what the other one changes."""
        if not self.mutable_params:
            return self.return_type
        return _one_or_tuple([self._type(param, in_place=False) for param in self.mutable_params])

    def parse_lib_args(self, args: Sequence[Any]) -> ParsedArgs:
        """Parses an operator's arguments, see ParsedArgs.from_lib_args."""
        return ParsedArgs.from_lib_args(args, self.all_params)

    def parse_method_args(
        self,
        obj: Any,  # noqa: ANN401
        args: Sequence[Any],
        kwargs: dict[str, Any],
        name: str = "operation",
    ) -> ParsedArgs:
        """Parses the arguments of a method call, see ParsedArgs.from_method_args."""
        return ParsedArgs.from_method_args(obj, args, kwargs, self.all_params, name)

    def _type(self, param: ParamSpec, in_place: bool) -> str:
        if isinstance(param.torch_type, type) and param.kind is ParamKind.CLASS_OBJECT:
            return class_name(param.torch_type)
        text = schema_type(param.torch_type)
        if not in_place or not param.is_changed():
            return text
        alias = chr(ord("a") + self.mutable_params.index(param))
        return text.replace("Tensor", f"Tensor({alias}!)")

    def _arguments(self, in_place: bool) -> str:
        texts = []
        for param in self.all_params:
            default = f"={_default_text(param)}" if param.has_default() else ""
            texts.append(f"{self._type(param, in_place)} {param.name}{default}")
        return f"({', '.join(texts)})"


def _as_text(spec: ParamSpec) -> ParamSpec:
    """The parameter with the text of its type."""
    return dataclasses.replace(spec, torch_type=schema_type(spec.torch_type))


def _default_text(param: ParamSpec) -> str:
    value = param.default_value
    if isinstance(value, str):
        return f'"{value}"'
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    raise ValueError(
        f"default {value!r} of '{param.name}': allowed are None, bool, int, float and str"
    )


def _one_or_tuple(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def as_timeout(value: Any) -> Any:  # noqa: ANN401
    """Converts a duration to the Timeout that operators take. Returns other values unchanged."""
    if isinstance(value, torchcomms.Timeout) or value is None:
        return value
    if isinstance(value, datetime.timedelta):
        return torchcomms.Timeout(value.days, value.seconds, value.microseconds)
    return torchcomms.Timeout(seconds=min(value, MOST_SECONDS))
