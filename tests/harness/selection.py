"""`--pairs SEED`: runs those cases of a module that cover all pairs of tests and parameters."""

from __future__ import annotations

import functools
import zlib
from collections import defaultdict
from collections.abc import Hashable

import pytest

from .backends import Backend
from .pairs import covering_rows

# Three values of these meet in every way, where a test has all of them: reductions are different
# code for each.
TRIPLE = ("backend", "ranks", "dtype")


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--pairs",
        type=int,
        metavar="SEED",
        help="of each module's cases, run some that cover every pair of values of two parameters "
        f"(the test is one), and every triple of {', '.join(TRIPLE)}; another seed chooses others; "
        "0, the default: all",
    )


def deselect(config: pytest.Config, items: list[pytest.Item]) -> str:
    """Leaves in `items` what `--pairs` selects. Returns a line that says so, empty without it."""
    seed = config.getoption("--pairs")
    if not seed:
        return ""
    modules: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        modules[item.nodeid.partition("::")[0]].append(item)
    kept = {id(item) for name, cases in modules.items() for item in _selected(name, cases, seed)}
    left_out = [item for item in items if id(item) not in kept]
    total = len(items)
    items[:] = [item for item in items if id(item) in kept]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    return f"pairs: {len(items)} of {total} cases, chosen with seed {seed}"


def _selected(name: str, cases: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Of the cases of one module, whose test functions are one more parameter."""
    # One that is skipped covers nothing, and costs nothing.
    run = [item for item in cases if not _is_skipped(item)]
    skipped = [item for item in cases if _is_skipped(item)]
    table = [_values(item) for item in run]
    columns = sorted({column for row in table for column in row})
    if len(columns) < 2:
        return cases
    rows = [tuple(row.get(column) for column in columns) for row in table]
    triples = [tuple(map(columns.index, TRIPLE))] if set(TRIPLE) <= set(columns) else []
    # Not hash(): it differs from process to process, and all workers must choose alike.
    chosen = covering_rows(rows, seed ^ zlib.crc32(name.encode()), triples)
    return skipped + [run[index] for index in chosen]


def _is_skipped(item: pytest.Item) -> bool:
    if item.get_closest_marker("skip") is not None:
        return True
    call = getattr(item, "callspec", None)
    if call is None or "world" not in call.params:
        return False
    backend, size = call.params["world"]
    return _missing(backend, size) is not None


@functools.cache
def _missing(backend: Backend, size: int) -> str | None:
    return backend.missing(size)


def _values(item: pytest.Item) -> dict[str, Hashable]:
    """The parameters of a case, by name; its test is one, its world is two of them."""
    values: dict[str, Hashable] = {"test": item.nodeid.partition("[")[0]}
    call = getattr(item, "callspec", None)
    if call is None:
        return values
    for name, value in call.params.items():
        if name == "world":
            backend, size = value
            values.update(backend=backend.label, ranks=size)
        else:
            # The object: all cases have the one in the list that the test is parametrized with, and
            # some of these cannot be hashed.
            values[name] = id(value)
    return values
