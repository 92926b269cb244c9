"""Backends in shared libraries: found by a variable, checked before the first call.

The libraries are those of the C++ tests: one that is right, and three that are wrong in one way.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torchcomms

from tests.harness.programs import forked

LIBRARIES = Path(torchcomms.__file__).parents[2] / "test_libraries"
VARIABLE = "TORCHCOMMS_BACKEND_LIB_PATH_FAKE_TEST"

REFUSED = """
    import torch, torchcomms
    try:
        torchcomms.new_comm("fake_test", torch.device("cpu"), "n")
    except RuntimeError as error:
        assert isinstance(error, torchcomms.BackendUnavailable), repr(error)
        print(error)
    else:
        raise SystemExit("accepted")
"""


def library(variant):
    path = LIBRARIES / f"libfake_test_{variant}.so"
    if not path.exists():
        pytest.skip("the C++ tests are not built beside this package")
    return str(path)


def test_a_library_is_found_by_its_variable_and_serves_several_communicators():
    forked(
        """
        import gc, torch, torchcomms
        from torchcomms import ReduceOp
        comms = [torchcomms.new_comm("fake_test", torch.device("cpu"), f"n{i}") for i in range(3)]
        for i, comm in enumerate(comms):
            assert comm.get_backend() == "fake_test"
            assert comm.get_name() == f"n{i}"
            assert (comm.get_rank(), comm.get_size()) == (0, 1)
            comm.all_reduce(torch.ones(2), ReduceOp.SUM, True).wait()
        child = comms[0].split([0], "child")
        child.barrier(False)
        comms[0].finalize()
        del comms, comm, child
        gc.collect()
        assert "libfake_test_right" in open("/proc/self/maps").read(), "the library was unloaded"
        torchcomms.new_comm("fake_test", torch.device("cpu"), "again").barrier(False)
        """,
        **{VARIABLE: library("right")},
    ).expect_success()


def test_the_variable_may_be_set_after_the_import():
    forked(
        """
        import os, sys, torch, torchcomms
        try:
            torchcomms.new_comm("fake_test", torch.device("cpu"), "n")
        except ModuleNotFoundError as error:
            assert "failed to find backend" in str(error), error
        else:
            raise SystemExit("accepted")
        os.environ["TORCHCOMMS_BACKEND_LIB_PATH_FAKE_TEST"] = sys.argv[1]
        torchcomms.new_comm("fake_test", torch.device("cpu"), "n").barrier(False)
        """,
        library("right"),
    ).expect_success()


@pytest.mark.parametrize(
    ("variant", "fragments"),
    [
        ("no_symbol", ["create_dynamic_loader_fake_test"]),
        ("null_pointer", ["null"]),
        ("wrong_version", ["tc0+torch1.0", "tc1+torch"]),
    ],
)
def test_a_library_that_is_wrong_is_refused_saying_how(variant, fragments):
    path = library(variant)
    text = forked(REFUSED, **{VARIABLE: path}).expect_success().out
    for fragment in (path, VARIABLE, *fragments):
        assert fragment in text, text


@pytest.mark.parametrize("content", [None, b"", b"no library", b"\x7fELF"])
def test_a_file_that_is_no_library_is_refused_naming_it(tmp_path, content):
    path = tmp_path / "library.so"
    if content is not None:
        path.write_bytes(content)
    text = forked(REFUSED, **{VARIABLE: str(path)}).expect_success().out
    assert str(path) in text
    assert VARIABLE in text


def test_an_installed_backend_wins_over_the_variable():
    forked(
        """
        import torch, torchcomms
        comm = torchcomms.new_comm("fake", torch.device("cpu"), "n")
        assert "libfake_test" not in open("/proc/self/maps").read()
        """,
        TORCHCOMMS_BACKEND_LIB_PATH_FAKE=library("right"),
    ).expect_success()
