"""The rows that `--pairs` selects: they cover what all rows do."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.harness.pairs import covering_rows


def covered(rows, columns):
    return {(at, tuple(row[i] for i in at)) for row in rows for at in columns}


PRODUCT = list(itertools.product(range(5), range(4), range(3), range(2)))
PAIRS = list(itertools.combinations(range(4), 2))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [1.0, 0.6, 0.1])
def test_every_pair_that_occurs_is_covered(seed, share):
    """Also where some combinations cannot be."""
    rows = random.Random(seed).sample(PRODUCT, round(len(PRODUCT) * share))
    chosen = [rows[index] for index in covering_rows(rows, seed)]
    assert covered(chosen, PAIRS) == covered(rows, PAIRS)
    assert len(chosen) <= len(rows) * (0.6 if share == 1.0 else 1.0)


def test_the_rows_of_a_full_product_are_few():
    """At least the product of its two largest columns, which is 20."""
    assert 20 <= len(covering_rows(PRODUCT, 1)) <= 26


def test_triples_are_covered_where_they_are_asked_for():
    chosen = [PRODUCT[index] for index in covering_rows(PRODUCT, 1, [(0, 1, 2)])]
    assert covered(chosen, [(0, 1, 2)]) == covered(PRODUCT, [(0, 1, 2)])
    assert len(chosen) == 60


def test_a_seed_chooses_always_the_same_and_another_one_others():
    assert covering_rows(PRODUCT, 1) == covering_rows(PRODUCT, 1)
    assert covering_rows(PRODUCT, 1) != covering_rows(PRODUCT, 2)


@pytest.mark.parametrize("rows", [[], [("a",)], [("a",), ("b",), ("c",)], [("a", 1)]])
def test_one_column_or_row_is_kept_whole(rows):
    assert covering_rows(rows, 1) == list(range(len(rows)))
