"""The stub files: installed beside what they describe, and naming what programs use."""

from __future__ import annotations

from pathlib import Path

import torchcomms

ROOT = Path(__file__).parents[2]


def test_stubs_name_what_programs_use():
    text = (ROOT / "python" / "torchcomms" / "_comms" / "__init__.pyi").read_text()
    for name in (
        "class TorchComm",
        "def all_reduce",
        "class TorchWork",
        "class ReduceOp",
        "class CommOptions",
        "def register_backend",
    ):
        assert name in text, name


def test_installed_stubs_are_the_committed_ones():
    installed = Path(torchcomms.__file__).parent
    sources = ROOT / "python" / "torchcomms"
    stubs = list(sources.rglob("*.pyi"))
    assert stubs
    for stub in stubs:
        name = stub.relative_to(sources)
        assert (installed / name).read_text() == stub.read_text(), name
