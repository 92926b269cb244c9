"""The report: Markdown for people, JSON for programs, and pictures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

from .each_test import BEGUN, lines_of, read
from .parts import POINTS, ROOT, Machine
from .run import Result

TEXT_LINES = 6  # of what a failed test said


def tests_of(result: Result, out: Path) -> list[dict[str, Any]]:
    return read(lines_of(out, result.name))


def counted(tests: Sequence[dict[str, Any]]) -> str:
    counts = Counter(test["outcome"] for test in tests)
    words = ("passed", "failed", BEGUN, "skipped")
    return ", ".join(f"{counts[word]} {word}" for word in words if counts[word])


@cache
def described_commit() -> str:
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or "unknown"


@cache
def facts(machine: Machine) -> dict[str, Any]:
    stand_ins = None if machine.stand_ins is None else str(machine.stand_ins)
    known = {"gpus": machine.gpus, "stand-ins": stand_ins}
    try:
        from torchcomms.bench.result import machine as described
    except ImportError as error:  # the package was not built
        return {**known, "torchcomms": f"none: {error}"}
    return {**described(machine.device), **known}


def pictures(out: Path, where: Path, stem: str) -> list[Path]:
    """Of the benchmarks' points; none of one that was not reached, or where there is no matplotlib
    or no package."""
    made: list[Path] = []
    for file in POINTS:
        lines = out / file
        if not lines.exists():
            continue
        try:
            made += pictures_of(lines, where, f"{stem}-{lines.stem}")
        except Exception as error:  # the report is worth more than its pictures
            print(f"no pictures of {file}: {error}", file=sys.stderr)
    return made


def pictures_of(lines: Path, where: Path, stem: str) -> Iterator[Path]:
    from torchcomms.bench import Point, plot

    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    points = [Point(**row) for row in rows if "measure" not in row]
    for mode in sorted({point.mode for point in points}):
        path = where / f"{stem}-{mode}.svg"
        plot([point for point in points if point.mode == mode], path)
        yield path


def last_words(result: Result, out: Path) -> list[str]:
    """Of a part that failed and has no tests to say why."""
    log = out / result.log
    if result.outcome not in ("failed", "over time") or tests_of(result, out) or not log.is_file():
        return []
    return log.read_text(errors="replace").splitlines()[-TEXT_LINES:]


def markdown(
    about: dict[str, Any], results: Sequence[Result], out: Path, drawn: Sequence[Path], title: str
) -> str:
    is_dry = about.get("stand-ins") is not None
    text = ["# A dry run on the CPU, over stand-ins" if is_dry
            else f"# Backends on {about['gpus']} GPUs", ""]  # fmt: skip
    text += [title, ""]
    text += [f"- {key}: {value}" for key, value in about.items() if value not in (None, "")]
    text += ["", "## What ran", "", "| part | result | tests | seconds |", "|---|---|---|---|"]
    for result in results:
        tests = counted(tests_of(result, out))
        text.append(
            f"| {result.title} | {result.outcome} | {tests or '-'} | {result.seconds:.0f} |"
        )
    failed = [
        test
        for result in results
        for test in tests_of(result, out)
        if test["outcome"] in ("failed", BEGUN)
    ]
    if failed:
        text += ["", "## Failures", ""]
    for test in failed:
        last = test["text"].splitlines()[-TEXT_LINES:]
        if test["outcome"] == BEGUN:
            text += [f"`{test['test']}` {BEGUN}.", ""]
        else:
            text += [f"`{test['test']}`:", "", "```text", *last, "```", ""]
    table = out / "benchmarks.md"
    if table.exists():
        text += ["", "## Against NCCL alone and torch.distributed", "", table.read_text().strip()]
    for result in results:
        said = last_words(result, out)
        if said:
            text += ["", f"`{result.name}` ended with:", "", "```text", *said, "```"]
    tuned = out / "tuning.txt"
    if tuned.exists():
        text += ["", "## What was tuned", "", "```text", tuned.read_text().strip(), "```"]
    for path in drawn:
        text += ["", f"![{path.stem}]({path.name})"]
    return "\n".join(text) + "\n"


def write(
    machine: Machine,
    results: Sequence[Result],
    *,
    out: Path,
    where: Path,
    command: str,
    commit: str,
    draws: bool = True,
) -> Path:
    """Returns the Markdown file. Pictures take seconds: those of before stay where it does not draw
    them."""
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    stem = f"gpu-{date}"
    where.mkdir(parents=True, exist_ok=True)
    about = facts(machine)
    drawn = pictures(out, where, stem) if draws else sorted(where.glob(f"{stem}-*.svg"))
    rows = {
        "machine": about, "commit": commit, "date": date,
        "parts": [
            {**vars(result), "tests": tests_of(result, out)} for result in results
        ],
    }  # fmt: skip
    (where / f"{stem}.json").write_text(json.dumps(rows, indent=1) + "\n")
    page = where / f"{stem}.md"
    title = f"`{command}`, commit {commit}, {date}."
    page.write_text(markdown(about, results, out, drawn, title))
    return page
