"""``new_comm``, with the argument orders of both generations of the API."""

import datetime
import inspect
import itertools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch

from torchcomms import _comms, _stacks, functional
from torchcomms._arguments import LIMIT, require_hints, require_limit, wrong_type
from torchcomms._backends import _load_backend, is_backend_built

if TYPE_CHECKING:
    from torch.distributed import Store

_OMITTED = "<omitted>"
_unnamed = itertools.count()


class _NewComm(Protocol):
    """The signature that new_comm shows. new_comm also accepts the older order."""

    def __call__(  # noqa: PLR0917 (the contract's order)
        self,
        backend: str,
        device: torch.device,
        name: str = _OMITTED,
        abort_process_on_timeout_or_error: bool | None = None,
        timeout: datetime.timedelta | float | None = None,
        is_high_priority_stream: bool | None = None,
        store: "Store | None" = None,
        enable_reconfigure: bool = False,
        hints: dict[str, str] | None = None,
        *,
        options: _comms.CommOptions | None = None,
    ) -> _comms.TorchComm: ...


def _signature() -> inspect.Signature:
    whole = inspect.signature(_NewComm.__call__)
    return whole.replace(parameters=list(whole.parameters.values())[1:])  # all but self


_SIGNATURE = _signature()


def _shown(function: Callable[..., _comms.TorchComm]) -> _NewComm:
    function.__signature__ = _SIGNATURE  # type: ignore[attr-defined]
    return cast("_NewComm", function)


# The older order of the positional arguments after `device`.
_OLDER_ORDER = ("abort_process_on_timeout_or_error", "timeout", "store", "name", "hints")
_ORDER = tuple(_SIGNATURE.parameters)[2:-1]


# The arguments that are also fields of CommOptions, with the types that they accept.
_OPTIONS = {
    "abort_process_on_timeout_or_error": "bool or None",
    "timeout": LIMIT,
    "store": "torch.distributed.Store or None",
}


def _wrong_type(argument: str, expected: str, value: object) -> TypeError:
    return wrong_type("new_comm", argument, expected, value)


def _by_name(positional: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    """All arguments after `device` by name. A str in third place means the newer order."""
    older = bool(positional) and not isinstance(positional[0], str)
    if older and positional[0] is not None and not isinstance(positional[0], bool):
        raise _wrong_type("name", "str", positional[0])
    order = _OLDER_ORDER if older else _ORDER
    if len(positional) > len(order):
        raise TypeError(
            f"new_comm() takes at most {len(order) + 2} positional arguments,"
            f" {len(positional) + 2} were given"
        )
    arguments = dict(zip(order, positional, strict=False))
    for name, value in keywords.items():
        if name not in _ORDER and name != "options":
            raise TypeError(f"new_comm() got an unexpected keyword argument '{name}'")
        if name in arguments:
            raise TypeError(f"new_comm() got multiple values for argument '{name}'")
        arguments[name] = value
    return arguments


def _comm_options(arguments: dict[str, Any]) -> _comms.CommOptions:
    """`options`, overridden by explicit arguments. The environment gives the remaining defaults."""
    given = arguments.get("options")
    if given is not None and not isinstance(given, _comms.CommOptions):
        raise _wrong_type("options", "CommOptions or None", given)
    options = _comms.CommOptions()
    if given is not None:
        options.abort_process_on_timeout_or_error = given.abort_process_on_timeout_or_error
        options.timeout = given.timeout
        options.enable_reconfigure = given.enable_reconfigure
        options.store = given.store
        options.hints = given.hints
    if (limit := arguments.get("timeout")) is not None:
        require_limit("new_comm", limit)
    for name, expected in _OPTIONS.items():
        value = arguments.get(name)
        if value is not None:
            try:
                setattr(options, name, value)
            except TypeError:
                raise _wrong_type(name, expected, value) from None
    hints = arguments.get("hints")
    if hints is not None:
        options.hints = {**options.hints, **require_hints("new_comm", hints)}
    if (reconfigurable := arguments.get("enable_reconfigure")) is not None:
        options.enable_reconfigure = bool(reconfigurable)
    priority = arguments.get("is_high_priority_stream")
    if priority is not None:
        options.hints = {"is_high_priority_stream": str(bool(priority)), **options.hints}
    return options


def _name(arguments: dict[str, Any]) -> str:
    """The name given, or a name by order of creation, which is equal on all ranks."""
    name = arguments.get("name", _OMITTED)
    if name is _OMITTED and arguments.get("options") is not None:
        name = arguments["options"].name or _OMITTED
    if name is _OMITTED:
        return f"comm_{next(_unnamed)}"
    if not isinstance(name, str):
        raise _wrong_type("name", "str", name)
    return name


def _find(backend: str) -> None:
    """Makes sure that the native factory knows `backend`, or can load its library."""
    if not is_backend_built(backend) and _comms._is_backend_registered(backend):
        return
    try:
        _load_backend(backend)  # the error lists the installed backends
    except _comms.BackendUnavailable:
        variable = _comms._backend_library_variable(backend)
        if not _comms._is_backend_registered(backend) and not os.environ.get(variable):
            raise


@_shown
def new_comm(
    backend: str,
    device: torch.device,
    *args: Any,  # noqa: ANN401
    **kwargs: Any,  # noqa: ANN401
) -> _comms.TorchComm:
    """Connects this process with the other ranks of the job. Collective: every rank calls it.

    The older positional order ``(backend, device, abort_process_on_timeout_or_error, timeout,
    store, name, hints)`` works too. A str in third place means the newer order.

    Args:
        backend: an installed or registered name, see ``built_backends()``: "gloo", "fake", ...
        device: torch.device of the tensors. Without an index, an accelerator is chosen by rank.
        name: str, the communicator's name, the same on all ranks, up to 1024 bytes. If omitted, a
            name by order of creation.
        abort_process_on_timeout_or_error: whether a failure that the program does not observe may
            end the process; None: TORCHCOMM_ABORT_ON_ERROR.
        timeout: timedelta or float seconds, of the start-up and of each operation; None:
            TORCHCOMM_TIMEOUT_SECONDS.
        is_high_priority_stream: ask for a high-priority internal stream (accelerators).
        store: torch.distributed.Store for the rendezvous; None: found from the launcher's
            variables.
        enable_reconfigure: create without connecting; ``reconfigure()`` connects.
        hints: dict[str, str] for the backend; unknown keys are ignored.
        options: CommOptions; explicit arguments override its fields.
    Returns:
        TorchComm.
    Raises:
        BackendUnavailable (a ModuleNotFoundError): no such backend.
        InvalidArgument, TypeError: a wrong argument or environment value; nothing was sent.
        CommTimeout, PeerFailed: the start-up did not finish in time; names the phase, the address
            and the missing ranks.
    Cost: one rendezvous over the store; a few messages per rank.
    """
    functional._install_when_asked()
    if not isinstance(backend, str):
        raise _wrong_type("backend", "str", backend)
    if not isinstance(device, torch.device):
        raise _wrong_type("device", "torch.device, such as torch.device('cpu')", device)
    arguments = _by_name(args, kwargs)
    options = _comm_options(arguments)
    name = _name(arguments)
    _find(backend)
    _stacks.offer()
    return _comms._new_comm(backend, device, name, options)
