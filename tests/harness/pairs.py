"""Which rows of a table of test cases cover all pairs of values, so that the rest may be left out.

Most faults that depend on parameters depend on two of them: see D. R. Kuhn, D. R. Wallace and
A. M. Gallo, "Software Fault Interactions and Implications for Software Testing", IEEE Transactions
on Software Engineering 30(6), 2004.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Collection, Hashable, Iterator, Sequence

Row = Sequence[Hashable]


def covering_rows(
    rows: Sequence[Row], seed: int, triples: Collection[tuple[int, int, int]] = ()
) -> list[int]:
    """The indices, in order, of some rows that cover what all of them do.

    Covered are each two values of two columns that occur together in a row, and each three values
    of the columns in `triples`. The rows have one length; equal seeds choose equal rows.
    """
    if not rows:
        return []
    columns = list(itertools.combinations(range(len(rows[0])), 2)) or [(0,)]
    columns += triples
    missing = {each for row in rows for each in _tuples(row, columns)}
    # Greedy: the row next that covers most. What a row covers only falls, so that an old number
    # bounds it: most rows are counted a few times.
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    queue = [(-len(columns), place, index) for place, index in enumerate(order)]
    heapq.heapify(queue)
    chosen = []
    while missing:
        bound, place, index = heapq.heappop(queue)
        covers = missing.intersection(_tuples(rows[index], columns))
        if -bound != len(covers):
            heapq.heappush(queue, (-len(covers), place, index))
            continue
        missing -= covers
        chosen.append(index)
    return sorted(chosen)


def _tuples(row: Row, columns: Sequence[tuple[int, ...]]) -> Iterator[Hashable]:
    for positions in columns:
        yield positions, tuple(row[at] for at in positions)
