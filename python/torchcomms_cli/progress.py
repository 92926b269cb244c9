"""A progress bar on stderr, where a person watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str], None]


@contextmanager
def progress_bar(
    total: int, rank: int = 0, begin: str = "starting processes"
) -> Iterator[tuple[Report, Report]]:
    """Gives `progress(label)`, called as each of `total` steps begins, and `note(sentence)`.

    `begin` is shown until the first step. Without a terminal, and on other ranks than 0, there are
    notes only.
    """
    if not sys.stderr.isatty() or rank != 0:
        yield (lambda label: None), (lambda text: print(text, file=sys.stderr))
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(begin, total=total)
        begun = False

        def progress(label: str) -> None:
            nonlocal begun
            bar.update(task, description=label, advance=1 if begun else 0)
            begun = True

        yield progress, bar.console.print


@contextmanager
def status_line(begin: str) -> Iterator[Report]:
    """Gives `report(text)`, which shows a line that the next one replaces, on a terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status(begin) as status:
        yield status.update
