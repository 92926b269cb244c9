"""What holds for the shape and layout of tensors in every operation: only counts matter.

The sweeps of each operation's own file use views inside a larger storage throughout (they fail
when something beside the view is written); here every operation meets the corner cases.
"""

from __future__ import annotations

import math

import torch
from torchcomms import ReduceOp

from tests.harness.cases import Failures, assert_alive, check, check_context, refused
from tests.harness.operations import call, operations_for


def start_all(context, make):
    """Every operation async, in the same order everywhere, then all waits."""
    failures, works = Failures(), []
    for name in operations_for(context):
        with failures.case(name):
            splits = {}
            if name == "all_to_all_v_single":
                rows = make("input", (2, 3)).shape[0]
                splits = dict.fromkeys(
                    ("output_split_sizes", "input_split_sizes"), [rows] * context.size
                )
            works.append((name, call(context.comm, name, True, make, **splits)))
    for name, work in works:
        with failures.case(name, "wait"):
            work.wait()
    assert_alive(context.comm)
    return failures.texts


def empty(_slot, shape):
    return torch.zeros(0, *shape[1:])


def start_empty(context):
    return start_all(context, empty)


def test_zero_elements_are_legal_in_every_operation(world):
    check_context(world, start_empty)


def flat(_slot, shape):
    return torch.zeros(math.prod(shape))


def start_flat_and_deep(context):
    """Outputs are flat where inputs have three dimensions: element counts agree."""

    def mixed(slot, shape):
        return flat(slot, shape) if "output" in slot else torch.zeros(shape).unsqueeze(1)

    failures, works = Failures(), []
    for name in operations_for(context):
        if name == "all_to_all_v_single":  # counts rows of dimension 0, so shapes do matter there
            continue
        with failures.case(name):
            works.append((name, call(context.comm, name, True, mixed)))
    for name, work in works:
        with failures.case(name, "wait"):
            work.wait()
    return failures.texts


def test_input_and_output_may_differ_in_shape(world):
    check_context(world, start_flat_and_deep)


def written_beside(context):
    """A lazy clone is reduced while what it was cloned of is written to."""
    failures, comm, count = Failures(), context.comm, 1 << 20
    total = float(sum(range(1, context.size + 1)))
    reductions = {
        "all_reduce": lambda tensor: comm.all_reduce(tensor, ReduceOp.SUM, True),
        "reduce": lambda tensor: comm.reduce(tensor, 0, ReduceOp.SUM, True),
    }
    for name, reduce in reductions.items():
        original = torch.full((count,), float(context.rank + 1))
        tensor = torch._lazy_clone(original)
        if context.rank == 0:
            work = reduce(tensor)
            original.fill_(100.0)
        context.meet(f"{name} of a lazy clone")
        if context.rank != 0:
            work = reduce(tensor)
        work.wait()
        with failures.case(name):
            if name == "all_reduce" or context.rank == 0:
                assert tensor.unique().tolist() == [total]
            assert original.unique().tolist() == [100.0 if context.rank == 0 else context.rank + 1]
    return failures.texts


def test_tensors_that_are_copied_on_write_are_moved_as_they_were(world):
    check_context(world, written_beside)


def rows_of_a_matrix(comm):
    """Tensors that are rows of one matrix: neighbours in one storage, each with its own offset."""
    rank, size = comm.get_rank(), comm.get_size()
    matrix = torch.zeros(size + 2, 5)
    comm.all_gather(list(matrix[1:-1]), torch.full((5,), float(rank + 1)), False)
    failures = Failures()
    with failures.case("all_gather into rows"):
        assert matrix[:, 0].tolist() == [0.0, *(r + 1.0 for r in range(size)), 0.0]
    columns = torch.zeros(5, size + 2).t()  # a transposed storage: row slices are not contiguous
    with failures.case("rows of a transposed matrix"), refused(RuntimeError, "contiguous"):
        comm.all_gather(list(columns[1:-1]), torch.zeros(5), False)
    assert_alive(comm)
    return failures.texts


def test_views_of_one_storage_are_legal_and_strided_ones_are_not(world):
    check(world, rows_of_a_matrix)


def channels_last(comm):
    """Dense but permuted memory is not contiguous, whatever its strides are called."""
    tensor = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    with refused(RuntimeError, "contiguous"):
        comm.broadcast(tensor, 0, False)
    return []


def test_permuted_memory_formats_are_refused(world):
    check(world, channels_last)


def large_offset(comm):
    """A view that begins beyond 4 GiB of its storage: offsets are 64 bits wide."""
    storage = torch.empty((1 << 32) + 64, dtype=torch.uint8)  # never touched but for the end
    view = storage[-32:]
    view.fill_(comm.get_rank() + 1)
    comm.broadcast(view, comm.get_size() - 1, False)
    return [] if view.tolist() == [comm.get_size()] * 32 else [f"{view.tolist()}"]


def test_a_view_far_into_a_storage_is_legal(world):
    check(world, large_offset)
