"""Fixtures of all suites: `world` (every backend and size), and the marks that narrow it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.harness import ports, selection
from tests.harness.backends import BACKENDS, LACKS, USUAL_RANKS, Backend
from tests.harness.environment import drop_foreign
from tests.harness.shared_objects import answer_lookups_at_once
from tests.harness.world import World, Worlds

# Ranks share few cores: one computing thread each, also in everything they start.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
drop_foreign()


_selected = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    selection.add_option(parser)
    parser.addoption(
        "--backends",
        metavar="NAME,NAME...",
        help="worlds of these backends alone; tests that need no world run as ever",
    )


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[_selected] = selection.deselect(config, items)


def pytest_report_collectionfinish(config: pytest.Config) -> str:
    return config.stash.get(_selected, "")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist inherits it
        answer_lookups_at_once()
    known = {row.name for row in BACKENDS}
    if unknown := sorted({*(_wanted_backends(config) or ())} - known):
        allowed = ", ".join(sorted(known))
        raise pytest.UsageError(f"--backends: no {', '.join(unknown)}; allowed: {allowed}")
    config.addinivalue_line("markers", "slow: takes minutes; runs in `./dev check` only")
    config.addinivalue_line(
        "markers",
        "worlds(sizes=None, backends=None, device=None, data=True, needs=()): narrows the `world` "
        "fixture; data=False adds the backends that move no data; needs: what a backend must not "
        "lack",
    )
    config.addinivalue_line("markers", "crowd: worlds of many ranks are no slow tests of it")


def _wanted_backends(config: pytest.Config) -> list[str] | None:
    """What --backends says; None: all."""
    words = config.getoption("--backends")
    return None if words is None else words.split(",")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "world" not in metafunc.fixturenames:
        return
    # What a test's own mark does not say, its module's may.
    marks = list(metafunc.definition.iter_markers("worlds"))
    narrowed = {key: value for mark in reversed(marks) for key, value in mark.kwargs.items()}
    module = metafunc.module.__name__.rpartition(".")[2].removeprefix("test_")
    names = _wanted_backends(metafunc.config)
    chosen = [
        (row, size)
        for row, size in _choose(module, **narrowed)
        if names is None or row.name in names
    ]
    needs = narrowed.get("needs", ())
    crowd = metafunc.definition.get_closest_marker("crowd") is not None
    cases = [
        pytest.param(
            (row, size),
            id=f"{row.label}-{size}",
            marks=[*_skips(row, needs), *_slow(row, size, crowd)],
        )
        for row, size in chosen
    ]
    metafunc.parametrize("world", cases, indirect=True)


def _choose(
    module: str,
    sizes: tuple[int, ...] | None = None,
    backends: tuple[str, ...] | None = None,
    device: str | None = None,
    data: bool = True,
    needs: tuple[str, ...] = (),
) -> list[tuple[Backend, int]]:
    rows = [b for b in BACKENDS if backends is None or b.name in backends]
    rows = [b for b in rows if b.moves_data or not data or backends is not None]
    rows = [b for b in rows if b.device == (device or b.device)]
    # An accelerator's own tests are for all of its backends.
    all_modules = device not in (None, "cpu")
    rows = [b for b in rows if all_modules or b.modules is None or module in b.modules]
    rows = [b for b in rows if b.tells_lacks or not b.lacks.intersection(needs)]
    every = [(b, size) for b in rows for size in b.sizes + b.slow_sizes]
    return [(b, size) for b, size in every if sizes is None or size in sizes]


def _slow(backend: Backend, size: int, crowd: bool) -> list[pytest.MarkDecorator]:
    quick = size not in backend.slow_sizes or (crowd and size > USUAL_RANKS)
    return [] if quick else [pytest.mark.slow]


def _skips(backend: Backend, needs: tuple[str, ...]) -> list[pytest.MarkDecorator]:
    return [
        pytest.mark.skip(reason=f"{backend.label}: {LACKS[lacking]}")
        for lacking in needs
        if lacking in backend.lacks
    ]


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    """All worlds of this session; ended, and checked to end cleanly, with it."""
    session = Worlds(tmp_path_factory.mktemp("worlds"))
    yield session
    session.close()


@pytest.fixture
def world(request: pytest.FixtureRequest, worlds: Worlds) -> World:
    """A running world; the test runs once for each backend and size (see the mark `worlds`)."""
    backend, size = request.param
    if reason := backend.missing(size):
        pytest.skip(reason)
    return worlds.get(backend, size)


@pytest.fixture
def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    return ports.free_port()
