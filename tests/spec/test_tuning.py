"""A tuning file with rows of kernels decides how they run an operation, on the GPU it is of."""

from __future__ import annotations

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp, algorithms

from tests.harness.cases import Failures, check_context

pytestmark = pytest.mark.worlds(
    backends=("ctran", "ncclx"), sizes=(2, 3, 4), needs=("kernel_tuning",)
)

ROW = (
    "kernel all_reduce gpu {gpu} ranks 2..8 bytes 0..4096 kind any mode any "
    "algorithm two_shot_line blocks 8\n"
)
LIBRARYS = (
    "kernel broadcast gpu {gpu} ranks 2..8 bytes 0..4096 kind any mode any "
    "algorithm nccl blocks 0\n"
)


def first(comm, operation):
    entry = comm.describe()["algorithms"][operation][0]
    return entry["algorithm"], entry["why"]


def works(context, comm):
    values = torch.full((256,), float(context.rank), device=comm.get_device())
    comm.all_reduce(values, ReduceOp.SUM, False)
    comm.broadcast(values, context.size - 1, False)
    return set(values.tolist()) == {context.size * (context.size - 1) / 2}


def tuned(context, path, text):
    """All ranks name the file; rank 0's counts, so it alone is there."""
    failures = Failures()
    hint = f"{context.backend}::tuning_file"
    gpu = algorithms.gpu_word(context.device)
    if context.rank == 0:
        with open(path, "w") as file:
            file.write("torchcomms tuning 1\n" + text.format(gpu=gpu))
    named = {hint: path if context.rank == 0 else path + ".none"}
    comm = context.new_comm("tuned", hints=named)
    with failures.case("a row of this GPU"):
        assert first(comm, "all_reduce") == ("two_shot_line", "tuning file")
        assert works(context, comm)
    with failures.case("a row for the library"):
        who, why = first(comm, "broadcast")
        assert (who, why) == ("nccl", "tuning file") or context.backend == "ctran", (who, why)
    child = comm.split(list(range(context.size)), "child")
    with failures.case("a split"):
        assert works(context, child)
        assert first(child, "all_reduce") == ("two_shot_line", "tuning file")
    child.finalize()
    comm.finalize()
    return failures.texts


def test_the_file_of_rank_0_decides_for_all(world, tmp_path):
    check_context(world, tuned, str(tmp_path / "tuning.txt"), ROW + LIBRARYS)


def elsewhere(context, path):
    failures = Failures()
    hint = f"{context.backend}::tuning_file"
    if context.rank == 0:
        with open(path, "w") as file:
            file.write("torchcomms tuning 1\n" + ROW.format(gpu="another-gpu"))
    plain = context.new_comm("plain", hints={hint: "/dev/null"})
    comm = context.new_comm("elsewhere", hints={hint: path})
    with failures.case("the built-in table"):
        assert comm.describe()["algorithms"] == plain.describe()["algorithms"]
        assert works(context, comm)
    for each in (comm, plain):
        each.finalize()
    return failures.texts


def test_rows_of_another_gpu_change_nothing(world, tmp_path):
    check_context(world, elsewhere, str(tmp_path / "tuning.txt"))


def refused(context, path):
    failures = Failures()
    if context.rank == 0:
        with open(path, "w") as file:
            file.write("torchcomms tuning 1\nkernel all_reduce gpu x ranks 1..1\n")
    with (
        failures.case("a file that is wrong"),
        pytest.raises(torchcomms.InvalidArgument, match=r"line 2, ranks: '1\.\.1'"),
    ):
        context.new_comm("refused", hints={f"{context.backend}::tuning_file": path})
    with failures.case("afterwards"):
        assert works(context, context.comm)
    return failures.texts


def test_a_file_that_is_wrong_is_an_error_of_all_ranks(world, tmp_path):
    check_context(world, refused, str(tmp_path / "tuning.txt"))


def missing(context, path):
    failures = Failures()
    hint = f"{context.backend}::tuning_file"
    with (
        failures.case("a file that is not there"),
        pytest.raises(torchcomms.InvalidArgument, match=f"hint {hint}: .*{path} cannot be read"),
    ):
        context.new_comm("missing", hints={hint: path})
    with failures.case("afterwards"):
        assert works(context, context.comm)
    return failures.texts


def test_a_named_file_that_is_missing_is_an_error_of_all_ranks(world, tmp_path):
    check_context(world, missing, str(tmp_path / "none.txt"))


def wished(context):
    """The hint of a call goes before everything, and one that cannot be changes nothing."""
    failures = Failures()
    knob = "ncclx::algorithm" if context.backend == "ncclx" else "ctran::kernel_algorithm"
    for word in ("one_shot_ll", "one_shot_line/4", "two_shot_line/8"):
        for count in (1, 1000, 100_000):
            values = torch.full((count,), 1.0, device=context.comm.get_device())
            with failures.case(word, count):
                context.comm.all_reduce(values, ReduceOp.SUM, False, hints={knob: word})
                assert set(values.tolist()) == {float(context.size)}
    values = torch.ones(4, device=context.comm.get_device())
    with failures.case("wrong"), pytest.raises(torchcomms.InvalidArgument, match="one_shot_line"):
        context.comm.all_reduce(values, ReduceOp.SUM, False, hints={knob: "fast"})
    return failures.texts


def test_a_call_may_ask_for_an_algorithm_of_the_kernels(world):
    check_context(world, wished)
