"""The library of device functions: Triton links it into a kernel, without a GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torchcomms
import torchcomms.triton

ROOT = Path(__file__).parents[2]
HEADER = ROOT / "include" / "torchcomms" / "device" / "symbols.hpp"
WINDOW = """
    put_block put_block_direct put_warp_chunked_direct self_copy_block signal_block flush_block
    fence barrier_block wait_signal wait_counter wait_counter_block wait_signal_from
    wait_signal_from_block read_signal read_counter reset_signal reset_counter rank num_ranks base
    size get_nvlink_address get_multimem_address
"""
TRANSPORT = "signal wait_signal send recv barrier my_rank n_ranks num_nvl_peers get_type"
SYMBOLS = {f"torchcomms_{name}" for name in WINDOW.split()} | {
    f"torchcomms_transport_{name}" for name in TRANSPORT.split()
}


@pytest.fixture
def library() -> Path:
    try:
        return torchcomms.triton.device_library()
    except torchcomms.Unsupported as e:
        pytest.skip(str(e))


def test_all_functions_are_in_the_header() -> None:
    found = re.findall(r"^TC_SYMBOL .*?\b(torchcomms_\w+)\(", HEADER.read_text(), re.MULTILINE)
    assert set(found) == SYMBOLS


def test_all_functions_are_in_the_library(library: Path) -> None:
    content = library.read_bytes()
    assert [name for name in sorted(SYMBOLS) if name.encode() not in content] == []


def test_triton_links_it(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="no Triton is here")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    from tests.python.triton_kernel import compiled

    code = compiled(str(library))
    assert "red.relaxed.sys" in code, "the signal of a put"
    assert "fence.acq_rel.sys" in code
    assert "bar.sync" in code
