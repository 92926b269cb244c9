"""The report: Markdown for people, JSON for programs, and pictures."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .each_test import read
from .parts import POINTS, ROOT, Machine
from .run import Result

TEXT_LINES = 6  # of what a failed test said


def tests_of(result: Result, out: Path) -> list[dict[str, Any]]:
    return read(out / f"{result.name}.jsonl")


def counted(tests: Sequence[dict[str, Any]]) -> str:
    counts = Counter(test["outcome"] for test in tests)
    return ", ".join(
        f"{counts[word]} {word}" for word in ("passed", "failed", "skipped") if counts[word]
    )


def commit() -> str:
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or "unknown"


def facts(machine: Machine) -> dict[str, Any]:
    from torchcomms.bench.result import machine as described

    return {**described(machine.device), "gpus": machine.gpus, "library": machine.library}


def pictures(out: Path, where: Path, stem: str) -> list[Path]:
    """Of the benchmark's points; none where it was not reached, or matplotlib is not there."""
    lines = out / POINTS
    if not lines.exists():
        return []
    from torchcomms.bench import BenchError, Point, plot

    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    points = [Point(**row) for row in rows if "measure" not in row]
    made = []
    try:
        for mode in sorted({point.mode for point in points}):
            path = where / f"{stem}-{mode}.svg"
            plot([point for point in points if point.mode == mode], path)
            made.append(path)
    except BenchError as error:
        print(f"no pictures: {error}")
    return made


def markdown(
    about: dict[str, Any], results: Sequence[Result], out: Path, drawn: Sequence[Path], title: str
) -> str:
    text = [f"# Backend `nccl` on {about['gpus']} GPUs" if about["library"] is None
            else "# Backend `nccl` on the CPU, over a stand-in", ""]  # fmt: skip
    text += [title, ""]
    text += [f"- {key}: {value}" for key, value in about.items() if value not in (None, "")]
    text += ["", "## What ran", "", "| part | result | tests | seconds |", "|---|---|---|---|"]
    for result in results:
        tests = counted(tests_of(result, out))
        text.append(
            f"| {result.title} | {result.outcome} | {tests or '-'} | {result.seconds:.0f} |"
        )
    failed = [
        test for result in results for test in tests_of(result, out) if test["outcome"] == "failed"
    ]
    if failed:
        text += ["", "## Failures", ""]
    for test in failed:
        last = test["text"].splitlines()[-TEXT_LINES:]
        text += [f"`{test['test']}`:", "", "```text", *last, "```", ""]
    table = out / "benchmarks.md"
    if table.exists():
        text += ["", "## Against NCCL alone and torch.distributed", "", table.read_text().strip()]
    for path in drawn:
        text += ["", f"![{path.stem}]({path.name})"]
    return "\n".join(text) + "\n"


def write(
    machine: Machine, results: Sequence[Result], *, out: Path, where: Path, command: str
) -> Path:
    """Returns the Markdown file."""
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    stem = f"gpu-{date}"
    where.mkdir(parents=True, exist_ok=True)
    about = facts(machine)
    drawn = pictures(out, where, stem)
    rows = {
        "machine": about, "commit": commit(), "date": date,
        "parts": [
            {**vars(result), "tests": tests_of(result, out)} for result in results
        ],
    }  # fmt: skip
    (where / f"{stem}.json").write_text(json.dumps(rows, indent=1) + "\n")
    page = where / f"{stem}.md"
    title = f"`{command}`, commit {commit()}, {date}."
    page.write_text(markdown(about, results, out, drawn, title))
    return page
