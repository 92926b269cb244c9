"""The stub files: installed beside what they describe, and naming what programs use."""

from __future__ import annotations

from pathlib import Path

import torchcomms

ROOT = Path(__file__).parents[2]


def test_stubs_name_what_programs_use():
    text = (ROOT / "python" / "torchcomms" / "_comms.pyi").read_text()
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
    for stub in (ROOT / "python" / "torchcomms").glob("*.pyi"):
        assert (installed / stub.name).read_text() == stub.read_text(), stub.name
