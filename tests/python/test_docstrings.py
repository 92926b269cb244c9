"""Every public name explains itself; operations tell shapes, errors and cost."""

from __future__ import annotations

import inspect

import pytest
import torchcomms
from torchcomms import events

from tests.harness.operations import OPERATIONS

UNDOCUMENTED = {"name", "value"}  # of enumerations, which Python documents


def public_names():
    for name in dir(torchcomms):
        thing = getattr(torchcomms, name)
        if (
            not name.startswith("_")
            and (inspect.isclass(thing) or callable(thing))
            and getattr(thing, "__module__", "").startswith("torchcomms")
        ):
            yield name, thing


def members(thing):
    if not inspect.isclass(thing) or hasattr(thing, "__members__"):
        return
    for name, member in vars(thing).items():
        documented = callable(member) or isinstance(member, (property, staticmethod))
        if not name.startswith("_") and documented and name not in UNDOCUMENTED:
            yield name, getattr(thing, name) if not isinstance(member, property) else member


def words(thing):
    """The text below the signature that the bindings put first."""
    lines = (inspect.getdoc(thing) or "").splitlines()
    return "\n".join(line for line in lines if "->" not in line).strip()


@pytest.mark.parametrize("name", [name for name, _ in public_names()])
def test_a_public_name_explains_itself(name):
    assert len(words(getattr(torchcomms, name))) > 10, f"torchcomms.{name} has no docstring"


@pytest.mark.parametrize("name", [name for name, _ in public_names()])
def test_the_members_of_a_public_class_explain_themselves(name):
    silent = [
        member for member, thing in members(getattr(torchcomms, name)) if len(words(thing)) < 5
    ]
    assert silent == [], f"no docstring on {silent} of torchcomms.{name}"


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_tells_arguments_errors_and_cost(name):
    text = getattr(torchcomms.TorchComm, name).__doc__
    for part in ("Args:", "Raises:", "Cost:", "async_op", "timeout", "CommTimeout"):
        assert part in text, f"{name}: nothing about {part}"
    for parameter in ("tensor", "output", "root", "op"):
        signature = text.splitlines()[0]
        if f" {parameter}:" in signature:
            assert f"    {parameter}:" in text, f"{name}: {parameter} is not explained"


def test_new_comm_explains_every_parameter():
    text = inspect.getdoc(torchcomms.new_comm)
    for parameter in (
        "backend",
        "device",
        "name",
        "abort_process_on_timeout_or_error",
        "timeout",
        "is_high_priority_stream",
        "store",
        "enable_reconfigure",
        "hints",
    ):
        assert parameter in text, parameter
    assert "Raises" in text


def test_modules_explain_themselves():
    for module in (torchcomms, torchcomms._comms, events, events.read, events.print_table):
        assert len(module.__doc__ or "") > 20, module
