"""tests/docs/public_names.txt lists every public Python name; each has a docstring and a page."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.markdown import ROOT, code_spans, prose

LIST = Path(__file__).with_name("public_names.txt")
API = ROOT / "docs" / "api"
# Modules that a program imports. What `torchcomms` itself has beside these is looked at by name.
MODULES = (
    "torchcomms", "torchcomms.algorithms", "torchcomms.analyze", "torchcomms.bench",
    "torchcomms.device_mesh", "torchcomms.distwrap", "torchcomms.distwrap.pginfo",
    "torchcomms.distwrap.utils", "torchcomms.doctor", "torchcomms.drill", "torchcomms.events",
    "torchcomms.functional", "torchcomms.hooks", "torchcomms.objcol", "torchcomms.sim",
    "torchcomms.soak", "torchcomms.triton",
)  # fmt: skip
# Of pybind11's enumerations, not of ours.
OF_ENUMERATIONS = {"name", "value"}
# A torch without CUDA does not have these.
OPTIONAL = {"torchcomms.distwrap.ProcessGroupNCCL"}
DIRECTIVE = re.compile(r"^::: (?P<path>[\w.]+)$")


def _listed() -> list[str]:
    return LIST.read_text().split()


def _names_of(module: Any) -> Iterator[str]:
    names = dir(module) if module.__name__ == "torchcomms" else getattr(module, "__all__", None)
    if names is None:
        names = [
            name for name, value in vars(module).items()
            if getattr(value, "__module__", "") == module.__name__ and callable(value)
        ]  # fmt: skip
    for name in names:
        value = getattr(module, name, None)
        if not name.startswith("_") and not inspect.ismodule(value):
            yield name


def _members_of(cls: type) -> Iterator[str]:
    members = getattr(cls, "__members__", {})
    for name in vars(cls):
        if not name.startswith("_") and not (members and name in OF_ENUMERATIONS):
            yield name


def _found() -> Iterator[tuple[str, Any]]:
    """Every public name with what it stands for; members of the classes of `torchcomms` too."""
    for title in MODULES:
        module = importlib.import_module(title)
        for name in _names_of(module):
            value = getattr(module, name)
            yield f"{title}.{name}", value
            if title == "torchcomms" and inspect.isclass(value) and value.__name__ == name:
                for member in _members_of(value):
                    yield f"{title}.{name}.{member}", inspect.getattr_static(value, member)


def _needs_docstring(value: Any) -> bool:
    if not getattr(value, "__module__", "torchcomms").startswith("torchcomms"):
        return False  # torch's own class under a name of ours
    return inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, property)


def _on_pages() -> set[str]:
    """Names of the pages of docs/api: directives, and code spans that stand outside of links."""
    out = set()
    for page in API.glob("*.md"):
        lines = [line for _, line in prose(page)]
        spans = code_spans(lines[0])
        module = spans[0] if spans else ""
        for line in lines[1:]:
            directive = DIRECTIVE.match(line)
            names = [directive["path"].rpartition(".")[2]] if directive else code_spans(line)
            out |= {f"{module}.{name}" for name in names}
    return out


def test_the_list_is_complete() -> None:
    found = {name for name, _ in _found()}
    listed = _listed()
    assert listed == sorted(set(listed)), "the list is sorted, and has each name once"
    assert sorted(found - set(listed)) == [], f"public, but not in {LIST.name}"
    assert sorted(set(listed) - found - OPTIONAL) == [], f"in {LIST.name}, but not public"


def test_every_name_has_a_docstring() -> None:
    bare = [name for name, value in _found() if _needs_docstring(value) and not value.__doc__]
    assert bare == []


def test_every_name_is_on_a_page() -> None:
    """A class of a page shows its members."""
    shown = _on_pages()
    lost = [name for name in _listed() if not {name, name.rpartition(".")[0]} & shown]
    assert lost == []


@pytest.mark.parametrize("page", sorted(API.glob("*.md")), ids=lambda page: page.name)
def test_directives_name_what_there_is(page: Path) -> None:
    wrong = []
    for _, line in prose(page):
        if directive := DIRECTIVE.match(line):
            path = directive["path"]
            if path.startswith("torchcomms._comms_"):
                continue  # a backend that is not built on this machine
            module = path.rpartition(".")[0]
            holder = importlib.import_module(module) if "hooks" not in module else _at(module)
            if not hasattr(holder, path.rpartition(".")[2]):
                wrong.append(path)
    assert wrong == []


def _at(path: str) -> Any:
    first, *rest = path.split(".")
    value = importlib.import_module(first)
    for name in rest:
        value = getattr(value, name)
    return value
