"""Whether a reference such as `tests/python/test_x.py::test_y` names a test that exists."""

from __future__ import annotations

import ast
import functools
import re

from tests.docs.markdown import ROOT

_CPP_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", re.MULTILINE)


@functools.cache
def tests_in(path: str) -> frozenset[str]:
    """`test_name` and `TestClass::test_name` of a Python file, `Suite.Name` of a C++ file."""
    text = (ROOT / path).read_text()
    if path.endswith(".cpp"):
        return frozenset(f"{suite}.{name}" for suite, name in _CPP_TEST.findall(text))
    names = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{m.name}" for m in node.body if isinstance(m, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
    return frozenset(name for name in names if name.split("::")[-1].startswith("test_"))


def problem(reference: str) -> str | None:
    """What is wrong with `path::name`; None if it names an existing test."""
    path, _, name = reference.partition("::")
    if not path.startswith("tests/") or not (ROOT / path).is_file():
        return f"{path} is no file below tests/"
    return None if name in tests_in(path) else f"{path} has no test {name!r}"
