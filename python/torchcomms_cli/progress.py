"""A progress bar on stderr, if stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str], None]


@contextmanager
def progress_bar(
    total: int, rank: int = 0, begin: str = "starting processes"
) -> Iterator[tuple[Report, Report]]:
    """Yields `progress(label)`, to call as each of `total` steps begins, and `note(sentence)`.

    `begin` is shown until the first step. Without a terminal, and on ranks other than 0, only notes
    are printed.
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
    """Yields `report(text)`, which replaces the text of one line on the terminal.

    Without a terminal, `report` does nothing.
    """
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status(begin) as status:
        yield status.update
