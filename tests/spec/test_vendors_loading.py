"""Vendors' backends and libraries: what is loaded, and what is said where that cannot be."""

from __future__ import annotations

import pytest
import torch
import torchcomms

from tests.harness.backends import NCCL
from tests.harness.programs import python

VENDORS = ("nccl", "ncclx", "rccl", "rcclx", "xccl")


@pytest.mark.parametrize("backend", VENDORS)
def test_importing_needs_no_library_and_no_driver(backend):
    if not torchcomms.is_backend_built(backend):
        pytest.skip(f"backend {backend} is not part of this build")
    python(f"""
        import torchcomms
        torchcomms._load_backend("{backend}")
        assert torchcomms._comms._is_backend_registered("{backend}")
    """).expect_success()


def one_error(device: str, library: str) -> str:
    return f"""
        import os, torch, torchcomms
        os.environ.update(RANK="0", WORLD_SIZE="1", TORCHCOMM_NCCL_LIBRARY={library!r})
        try:
            torchcomms.new_comm("nccl", torch.device("{device}"), "c")
        except torchcomms.BackendUnavailable as error:
            assert "nccl" in str(error) and "\\n" not in str(error), error
            print(error)
        except torchcomms.Unsupported as error:
            print(error)
    """


def test_a_library_that_is_not_there_is_one_error_that_names_it():
    if not torchcomms.is_backend_built("nccl"):
        pytest.skip("backend nccl is not part of this build")
    run = python(one_error("cuda", "no_such_library.so"))
    run.expect_success()
    assert "no_such_library.so" in run.out
    assert "TORCHCOMM_NCCL_LIBRARY" in run.out


def test_a_device_that_the_library_does_not_work_on_is_refused():
    if reason := NCCL.missing():
        pytest.skip(reason)
    (library,) = NCCL.environment.values()
    run = python(one_error("cuda", library))
    run.expect_success()
    assert "works on device cpu" in run.out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_new_comm_is_one_error():
    if not torchcomms.is_backend_built("nccl"):
        pytest.skip("backend nccl is not part of this build")
    run = python(one_error("cuda", ""))
    run.expect_success()
    assert "nccl" in run.out
