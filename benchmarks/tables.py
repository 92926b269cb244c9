"""JSON lines of measurements as Markdown tables, and as a plot: one side beside another.

python benchmarks/tables.py FILE... --ours ctran --theirs c10d:gloo [--plot FILE.svg]

Reads what `torchcomms bench --json`, bench_versus_mpi_openmpi, bench_versus_mpi_mpich and
window_memory.py write. A cell is `ours / theirs (how many times as fast)`, medians in us of the
slowest rank; one table for each number of ranks and kind of memory. Lines of `torchcomms bench`
name no kind of memory, so that a file may have them beside those of the other programs.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

from torchcomms import _output

Key = tuple[int, str, str, int]  # ranks, memory, operation, bytes


def read(files: list[Path]) -> dict[str, dict[Key, float]]:
    """By backend, the median of each point; the last one counts."""
    found: dict[str, dict[Key, float]] = defaultdict(dict)
    for file in files:
        for line in file.read_text().splitlines():
            row = json.loads(line)
            key = (row["ranks"], row.get("memory", ""), row["op"], row["bytes"])
            found[row["backend"]][key] = row["p50_us"]
    return found


def group_text(ranks: int, memory: str) -> str:
    return f"{ranks} ranks" + (f", {memory} memory" if memory else "")


def size_text(size: int) -> str:
    for unit, name in ((1 << 20, "MB"), (1 << 10, "KB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return "least"  # 8 bytes, or an element a rank


def table(ours: dict[Key, float], theirs: dict[Key, float], ranks: int, memory: str) -> str:
    points = {key[2:]: (ours[key], theirs[key]) for key in ours.keys() & theirs.keys()
              if key[:2] == (ranks, memory)}  # fmt: skip
    columns = list(dict.fromkeys(size_text(size) for _, size in sorted(points, key=lambda p: p[1])))
    lines = [f"| operation | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for op in dict.fromkeys(key[2] for key in ours):
        cells = {size_text(size): pair for (name, size), pair in points.items() if name == op}
        if not cells:
            continue
        texts = [
            f"{cells[c][0]:.4g} / {cells[c][1]:.4g} ({cells[c][1] / cells[c][0]:.2f}x)"
            if c in cells else ""
            for c in columns
        ]  # fmt: skip
        lines.append(f"| {op} | {' | '.join(texts)} |")
    return "\n".join(lines)


def plot(ours: dict[Key, float], theirs: dict[Key, float], names: list[str], file: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    groups = sorted({key[:2] for key in ours.keys() & theirs.keys()})
    figure, axes = plt.subplots(1, len(groups), figsize=(6 * len(groups), 4.5), squeeze=False)
    for place, (ranks, memory) in zip(axes[0], groups, strict=True):
        for op in dict.fromkeys(key[2] for key in ours):
            keys = sorted(key for key in ours if key[:3] == (ranks, memory, op) and key in theirs)
            if len(keys) > 1:
                ratios = [theirs[key] / ours[key] for key in keys]
                place.plot([key[3] for key in keys], ratios, marker="o", label=op)
        place.axhline(1, color="grey", linewidth=1)
        place.set(xscale="log", yscale="log", xlabel="bytes", title=group_text(ranks, memory))
        place.set_ylabel(f"{names[1]} / {names[0]}, above 1: {names[0]} is faster")
        place.legend()
    figure.tight_layout()
    with _output.writing(file):
        figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--ours", default="ctran")
    parser.add_argument("--theirs", required=True, help="a backend's name as the files have it")
    parser.add_argument("--plot", type=Path, help="ratios by size, to this .svg or .png")
    arguments = parser.parse_args()
    found = read(arguments.files)
    missing = {arguments.ours, arguments.theirs} - found.keys()
    if missing:
        parser.error(f"no lines of {sorted(missing)}; there are those of {sorted(found)}")
    ours, theirs = found[arguments.ours], found[arguments.theirs]
    for ranks, memory in sorted({key[:2] for key in ours.keys() & theirs.keys()}):
        print(f"{group_text(ranks, memory)}:\n\n{table(ours, theirs, ranks, memory)}\n")
    if arguments.plot:
        plot(ours, theirs, [arguments.ours, arguments.theirs], arguments.plot)


if __name__ == "__main__":
    main()
