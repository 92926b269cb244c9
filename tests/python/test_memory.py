"""Allocators: who has none says so."""

from __future__ import annotations

import pytest
import torchcomms


@pytest.mark.parametrize("backend", ["fake", "gloo", "no_such_backend"])
def test_a_backend_without_allocator_is_named(backend):
    with pytest.raises(RuntimeError, match=backend):
        torchcomms.get_mem_allocator(backend)


def test_a_communicator_without_allocator_names_its_backend(comm):
    with pytest.raises(RuntimeError, match="fake"):
        comm.get_mem_allocator()
    with pytest.raises(RuntimeError, match="fake"):
        comm.mem_allocator  # noqa: B018


def test_the_name_must_be_text():
    with pytest.raises(TypeError):
        torchcomms.get_mem_allocator(5)
