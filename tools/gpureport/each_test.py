"""A pytest plugin: one JSON line a test, as soon as it has ended.

So that a run which is cut off has told what it did, and the next one leaves that out. The file is
named by GPU_REPORT_TESTS; tests whose line is there already are not run, nor those of
another world than GPU_REPORT_WORLD. A test that has begun has a line, too, so that one which ends
the process, or is still there when its time is over, is known by name.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

VARIABLE, WORLD = "GPU_REPORT_TESTS", "GPU_REPORT_WORLD"


BEGUN = "did not end"
KEPT_CHARACTERS = 40_000  # what all ranks of a test were at


def lines_of(folder: Path, part: str) -> Path:
    return folder / f"{part}.tests.jsonl"


def read(path: Path) -> list[dict[str, Any]]:
    """Of each test the last line. Whole lines alone: the last one may have been cut off."""
    text = path.read_text() if path.exists() else ""
    rows = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return list({row["test"]: row for row in rows}.values())


def write(row: dict[str, Any]) -> None:
    with Path(os.environ[VARIABLE]).open("a") as out:
        out.write(json.dumps(row) + "\n")


def _world_of(item: pytest.Item) -> str:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if "world" in parameters:
        backend, size = parameters["world"]
        return f"{backend.label}-{size}"
    # Programs that make their own world, on GPUs.
    if "backend" in parameters:
        return f"{parameters['backend']}-cuda-{parameters.get('size', 2)}"
    return ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lines = read(Path(os.environ[VARIABLE]))
    begun = {line["test"] for line in lines if line["outcome"] == BEGUN}
    done = {line["test"] for line in lines} - begun
    wanted = os.environ[WORLD]
    kept = [item for item in items if item.nodeid not in done and _world_of(item) == wanted]
    kept.sort(key=lambda item: item.nodeid in begun)  # what may end the process again comes last
    left = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in left])
    items[:] = kept


class _Line:
    """What is known of the test that runs."""

    def __init__(self) -> None:
        self.outcome, self.text, self.seconds = "passed", "", 0.0

    def add(self, report: pytest.TestReport) -> None:
        self.seconds += report.duration
        if report.failed:
            self.outcome = "failed"
            self.text = str(report.longrepr)[-KEPT_CHARACTERS:]
        elif report.skipped and self.outcome == "passed":
            self.outcome = "skipped"
            where = report.longrepr
            self.text = str(where[2] if isinstance(where, tuple) else where)


_lines: dict[str, _Line] = {}


def pytest_runtest_logstart(nodeid: str) -> None:
    write({"test": nodeid, "outcome": BEGUN, "seconds": 0.0, "text": ""})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    line = _lines.setdefault(report.nodeid, _Line())
    line.add(report)
    if report.when != "teardown":
        return
    del _lines[report.nodeid]
    write({"test": report.nodeid, "outcome": line.outcome, "seconds": round(line.seconds, 3),
           "text": line.text})  # fmt: skip
