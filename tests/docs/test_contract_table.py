"""docs/reference/contract.md tells the truth: paths exist, named tests exist, stars are tested."""

from __future__ import annotations

import ast
import functools
import re

from tests.docs.markdown import ROOT, Row, code_spans, name_of, rows

PAGE = ROOT / "docs" / "reference" / "contract.md"
COLUMNS = ["name", "mark", "contract", "implemented in", "tested in"]
CAPABILITIES = {
    "host engine",
    "torch.distributed interop",
    "compile",
    "hooks and recorder",
    "vendor GPU backends",
    "NVLink engine",
    "RDMA",
    "device API",
}
MARK = re.compile(r"[★☆-] (seed|head|both|-)")

TABLE = [row for row in rows(PAGE) if list(row.cells) == COLUMNS]


def _at(row: Row) -> str:
    return f"{name_of(PAGE)}:{row.line}: {row.cells['name']}"


def _planned(row: Row) -> str | None:
    where = row.cells["implemented in"]
    return where.removeprefix("planned: ") if where.startswith("planned: ") else None


def _not_provided(row: Row) -> bool:
    return row.cells["implemented in"].startswith("not provided: ")


IMPLEMENTED = [row for row in TABLE if _planned(row) is None and not _not_provided(row)]


@functools.cache
def _python_tests(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{m.name}" for m in node.body if isinstance(m, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
    return {name for name in names if name.split("::")[-1].startswith("test_")}


@functools.cache
def _cpp_tests(path: str) -> set[str]:
    found = re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", (ROOT / path).read_text(), re.M)
    return {f"{suite}.{name}" for suite, name in found}


def _test_problem(reference: str) -> str | None:
    """What is wrong with `path` or `path::name`; None if it names existing tests."""
    path, _, name = reference.partition("::")
    if not path.startswith("tests/"):
        return f"{path} is not below tests/"
    if not (ROOT / path).is_file():
        return f"{path} does not exist"
    known = _cpp_tests(path) if path.endswith(".cpp") else _python_tests(path)
    if name and name not in known:
        return f"{path} has no test {name}"
    if not known:
        return f"{path} has no test at all"
    return None


def test_there_is_a_table() -> None:
    assert len(TABLE) > 500, "the table has lost most of its rows"
    assert IMPLEMENTED


def test_rows_are_well_formed() -> None:
    bad = []
    for row in TABLE:
        if not MARK.fullmatch(row.cells["mark"]):
            bad.append(f"{_at(row)}: mark {row.cells['mark']!r}")
        capability = _planned(row)
        if capability is not None and capability not in CAPABILITIES:
            bad.append(f"{_at(row)}: unknown capability {capability!r}")
        if (capability is not None or _not_provided(row)) and row.cells["tested in"] != "-":
            bad.append(f"{_at(row)}: is not implemented but names a test")
        if not row.cells["name"] or not row.cells["contract"]:
            bad.append(f"{_at(row)}: an empty cell")
    assert not bad, "\n".join(bad)


def test_rows_are_unique_within_their_section() -> None:
    seen: dict[tuple[str, str], int] = {}
    bad = []
    for row in TABLE:
        key = (row.heading, row.cells["name"])
        if key in seen:
            bad.append(f"{_at(row)}: also on line {seen[key]}")
        seen[key] = row.line
    assert not bad, "\n".join(bad)


def test_implemented_rows_name_existing_files() -> None:
    bad = []
    for row in IMPLEMENTED:
        paths = code_spans(row.cells["implemented in"])
        if not paths:
            bad.append(f"{_at(row)}: names no file")
        bad += [f"{_at(row)}: {p} does not exist" for p in paths if not (ROOT / p).is_file()]
    assert not bad, "\n".join(bad)


def test_named_tests_exist() -> None:
    bad = []
    for row in IMPLEMENTED:
        for reference in code_spans(row.cells["tested in"]):
            if problem := _test_problem(reference):
                bad.append(f"{_at(row)}: {problem}")
    assert not bad, "\n".join(bad)


def test_starred_rows_that_are_implemented_are_tested() -> None:
    bad = [
        _at(row)
        for row in IMPLEMENTED
        if row.cells["mark"].startswith("★") and not code_spans(row.cells["tested in"])
    ]
    assert not bad, "starred, implemented, and without a test:\n" + "\n".join(bad)


# What the module has beyond the contract, with the page that describes it.
ADDITIONS = {
    "docs/concepts/errors.md": {
        "CommError", "CommTimeout", "PeerFailed", "Aborted", "Mismatch", "CommFinalized",
        "StaleGeneration", "ForkedProcess", "BackendUnavailable", "Unsupported",
        "ResourceExhausted", "UnsafeObject", "TooLarge", "InvalidArgument", "OutOfRange",
    },
    "docs/concepts/events.md": {"events"},
}  # fmt: skip


def test_every_public_name_has_a_row() -> None:
    """A public attribute of `torchcomms` is in this table, or among the documented additions."""
    import torchcomms

    assert "new_comm" in dir(torchcomms)
    text = " ".join(f"{row.cells['name']} {row.cells['contract']}" for row in TABLE)
    words = set(re.findall(r"\w+", text)) | set().union(*ADDITIONS.values())
    modules = {"analyze", "cli", "bench", "doctor", "sim", "drill", "soak", "algorithms"}
    missing = [
        name
        for name in dir(torchcomms)
        if not name.startswith("_") and not _has_row(name, words) and name not in modules
    ]
    assert not missing, f"public, but in no row: {missing}"


def _has_row(name: str, words: set[str]) -> bool:
    """Classes made one an operation share a row: `<Op>PostHookArgs`, `SendOptions` ..."""
    return name in words or name.endswith(("PostHookArgs", "PreHookArgs", "Options"))


def test_additions_are_described() -> None:
    bad = []
    for page, names in ADDITIONS.items():
        text = (ROOT / page).read_text()
        bad += [f"{page} does not mention {name}" for name in sorted(names) if name not in text]
    assert not bad, "\n".join(bad)
