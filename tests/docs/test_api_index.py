"""docs/reference/api.md names what exists, and all of it."""

from __future__ import annotations

import builtins
import re

import pytest

from tests.docs.markdown import ROOT

PAGE = ROOT / "docs" / "reference" / "api.md"


def _section(title: str) -> str:
    """The text below a second-level heading."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    assert found, f"no section {title}"
    return found[1]


def _called(text: str) -> set[str]:
    """Names followed by an opening parenthesis, inside the fenced blocks."""
    fenced = "".join(re.findall(r"```text\n(.*?)```", text, re.S))
    return set(re.findall(r"\b(\w+)\(", fenced)) - {"callback"}


def _public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.mark.parametrize("name", ["TorchComm", "TorchWork", "TorchCommWindow", "BatchSendRecv"])
def test_methods_are_listed_and_exist(name: str) -> None:
    import torchcomms

    section = _section(name)
    methods = _public(getattr(torchcomms, name))
    invented = {n for n in _called(section) if not hasattr(torchcomms, n)} - methods
    assert not invented, f"listed, but {name} has no such thing: {sorted(invented)}"
    missing = {m for m in methods if not re.search(rf"\b{m}\b", section)}
    assert not missing, f"{name} has them, the page does not: {sorted(missing)}"


def test_module_functions_exist() -> None:
    import torchcomms

    missing = {n for n in _called(_section("Module")) if not hasattr(torchcomms, n)}
    assert not missing, sorted(missing)


@pytest.mark.parametrize(
    "name", ["RedOpType", "WorkStatus", "P2POpType", "SignalCmpOp", "TorchCommWinAccessType"]
)
def test_members_of_enums_are_listed(name: str) -> None:
    import torchcomms

    (line,) = re.findall(rf"^.*\b{name}: ([A-Z_ ]+)$", PAGE.read_text(), re.M)
    assert set(line.split()) == set(getattr(torchcomms, name).__members__)


def test_error_types_form_the_tree_on_the_page() -> None:
    import torchcomms

    names = re.findall(r"\b([A-Z]\w+)\b", _section("Errors"))
    own = {n for n in names if n != "See" and not hasattr(builtins, n)}
    assert own == {
        n
        for n in _public(torchcomms)
        if isinstance(getattr(torchcomms, n), type)
        and issubclass(getattr(torchcomms, n), torchcomms.CommError)
    }
    for line in re.findall(r"(\w+)\(([\w, ]+)\)", _section("Errors")):
        for base in line[1].split(", "):
            expected = getattr(torchcomms, base, None) or getattr(builtins, base)
            assert issubclass(getattr(torchcomms, line[0]), expected), line
