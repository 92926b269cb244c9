"""The store helpers: a prefixed store from the launcher's address, and a second one beside it."""

import datetime

import pytest
import torch.distributed as dist
import torchcomms
from torchcomms import _store_manager

LIMIT = datetime.timedelta(seconds=5)


@pytest.fixture(autouse=True)
def one_rank(monkeypatch):
    monkeypatch.setenv("TORCHCOMM_RANK", "0")
    monkeypatch.setenv("TORCHCOMM_SIZE", "1")


def test_a_single_rank_gets_a_prefixed_store_without_an_address(monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.delenv("MASTER_PORT", raising=False)
    store = _store_manager._create_prefix_store("a", LIMIT)
    assert isinstance(store, dist.PrefixStore)
    store.set("key", "value")
    assert store.get("key") == b"value"


def test_equal_prefixes_of_a_single_rank_are_one_store():
    first, second, other = (_store_manager._create_prefix_store(p, LIMIT) for p in "bbc")
    first.set("key", "value")
    assert second.get("key") == b"value"
    assert not other.check(["key"])


def test_the_stores_of_a_single_rank_have_the_limit_that_was_given():
    store = _store_manager._create_prefix_store("d", LIMIT)
    assert store.timeout == LIMIT
    twice = 2 * LIMIT
    assert _store_manager._dup_prefix_store("d", store, timeout=twice).timeout == twice
    assert _store_manager._create_prefix_store("d").timeout == datetime.timedelta(seconds=60)


def test_a_duplicate_holds_keys_of_its_own():
    first = dist.HashStore()
    second = _store_manager._dup_prefix_store("b", first, timeout=LIMIT)
    second.set("key", "value")
    assert second.get("key") == b"value"
    assert not first.check(["key"])


def test_a_missing_rank_is_named_within_the_limit(monkeypatch):
    monkeypatch.setenv("TORCHCOMM_SIZE", "2")
    monkeypatch.setenv("TORCHCOMM_RANK", "1")
    with pytest.raises(torchcomms.CommError, match="b"):
        _store_manager._dup_prefix_store(
            "b", dist.HashStore(), timeout=datetime.timedelta(milliseconds=200)
        )
