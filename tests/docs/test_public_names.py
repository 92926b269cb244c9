"""tests/docs/public_names.txt has every public name with a test; Python's have docstring and page.

A line is `name = path::test`. Names are those of the Python package and its backends, and of the
public headers, where `::` is between their parts.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.markdown import ROOT, code_spans, prose
from tests.docs.named_tests import problem
from tests.docs.public_headers import public_names

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
BACKENDS = tuple(
    f"torchcomms._comms_{name}"
    for name in ("ctran", "gloo", "nccl", "ncclx", "rccl", "rcclx", "xccl")
)
# Of pybind11's enumerations, not of ours.
OF_ENUMERATIONS = {"name", "value"}
# A torch without CUDA does not have these.
OPTIONAL = {"torchcomms.distwrap.ProcessGroupNCCL"}
# Of C++, for other modules of ours.
PRIVATE = {
    "torchcomms._comms_ctran.share_cpu_tensors",
    "torchcomms._comms_ctran.share_cpu_tensors_where_asked",
}
DIRECTIVE = re.compile(r"^::: (?P<path>[\w.]+)$")


LINES = [line.partition(" = ") for line in LIST.read_text().splitlines()]


def _listed() -> list[str]:
    """The Python names."""
    return [name for name, _, _ in LINES if name.startswith("torchcomms.")]


def _importable(title: str) -> Any:
    """The module, or None of a backend that is not built here."""
    if title in BACKENDS and not importlib.util.find_spec(title):
        return None
    return importlib.import_module(title)


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
    for title in (*MODULES, *BACKENDS):
        module = _importable(title)
        for name in _names_of(module) if module else ():
            value = getattr(module, name)
            if f"{title}.{name}" in PRIVATE:
                continue
            yield f"{title}.{name}", value
            is_own = inspect.isclass(value) and value.__name__ == name
            if is_own and value.__module__ == title and title in ("torchcomms", *BACKENDS):
                for member in _members_of(value):
                    yield f"{title}.{name}.{member}", inspect.getattr_static(value, member)


def _exists(name: str) -> bool:
    """Whether a Python name, also one with underscores, leads to something."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        title = ".".join(parts[:length])
        if title in BACKENDS and _importable(title) is None:
            return True  # not built here
        try:
            value = importlib.import_module(title)
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            value = getattr(value, part, None)
        return value is not None
    return False


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
            out |= {directive["path"]} if directive else set()
    return out


def test_the_list_is_sorted_and_its_tests_exist() -> None:
    names = [name for name, _, _ in LINES]
    assert names == sorted(set(names)), "the list is sorted, and has each name once"
    wrong = {name: why for name, _, test in LINES if (why := problem(test))}
    assert wrong == {}


def test_every_public_name_of_the_package_is_listed_and_exists() -> None:
    listed = {*_listed()}
    found = {name for name, _ in _found()}
    assert sorted(found - listed) == [], f"public, but not in {LIST.name}"
    lost = [name for name in listed - found - OPTIONAL if not _exists(name)]
    assert sorted(lost) == [], f"in {LIST.name}, but nowhere else"


def test_every_public_name_of_the_headers_is_listed_and_exists() -> None:
    listed = {name for name, _, _ in LINES} - {*_listed()}
    assert sorted(public_names() - listed) == [], f"in a header, but not in {LIST.name}"
    assert sorted(listed - public_names()) == [], f"in {LIST.name}, but in no header"


def test_every_name_has_a_docstring() -> None:
    bare = [name for name, value in _found() if _needs_docstring(value) and not value.__doc__]
    assert bare == []


def test_every_name_is_on_a_page() -> None:
    """A class of a page shows its members."""
    shown = _on_pages()
    named = [name for name in _listed() if "._" not in name]
    lost = [name for name in named if not {name, name.rpartition(".")[0]} & shown]
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
