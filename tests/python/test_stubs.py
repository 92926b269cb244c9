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


def test_every_native_module_has_a_stub():
    installed = Path(torchcomms.__file__).parent
    modules = {file.name.partition(".")[0] for file in installed.glob("_*.so")}
    assert "_comms_gloo" in modules
    for name in modules:
        stub = installed / f"{name}.pyi"
        assert stub.is_file() or (installed / name / "__init__.pyi").is_file(), name
