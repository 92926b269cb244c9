"""What wrong calls get: a typed error before anything is sent, and a communicator that goes on.

Each test makes its wrong calls on rank 0 alone; had anything been sent, the collective that all
ranks run afterwards would hang or be wrong.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torchcomms import RedOpType, ReduceOp

from tests.harness.cases import Failures, assert_alive, check, refused, row_of
from tests.harness.operations import (
    COLLECTIVES,
    MESSAGES,
    ONE,
    OPERATIONS,
    REDUCING,
    arguments,
    call,
    stated_by,
    tensor_slots,
    zeros,
)

pytestmark = pytest.mark.worlds(sizes=(2, 3))

RANK_PARAMETERS = {"send": "dst", "recv": "src", "broadcast": "root", "reduce": "root",
                   "scatter": "root", "gather": "root", "gather_single": "root"}  # fmt: skip
LIST_PARAMETERS = {
    "all_gather": ("tensor_list",), "all_gather_v": ("tensor_list",),
    "reduce_scatter": ("input_list",), "reduce_scatter_v": ("input_list",),
    "all_to_all": ("output_tensor_list", "input_tensor_list"),
    "scatter": ("input_tensor_list",), "gather": ("output_tensor_list",),
}  # fmt: skip
# Slots whose element count follows from the others, as rank 0 sees them.
COUNTED_SLOTS = {
    "all_gather": ("tensor_list[0]", "tensor_list[1]", "tensor"),
    "all_gather_v": ("tensor_list[0]", "tensor"),
    "all_gather_single": ("output", "input"),
    "reduce_scatter": ("output", "input_list[0]", "input_list[1]"),
    "reduce_scatter_v": ("output", "input_list[0]"),
    "reduce_scatter_single": ("output", "input"),
    "all_to_all_single": ("output", "input"),
    "scatter": ("output_tensor", "input_tensor_list[0]", "input_tensor_list[1]"),
    "gather": ("output_tensor_list[0]", "output_tensor_list[1]", "input_tensor"),
    "gather_single": ("output", "input"),
}


def instead_of(slot, replacement):
    """A `make` that gives `replacement(shape)` for one slot."""
    return lambda name, shape: replacement(shape) if name == slot else zeros(name, shape)


def wrong(comm, cases):
    """Rank 0 makes the wrong calls; then everybody checks the communicator."""
    failures = Failures()
    if comm.get_rank() == 0:
        cases(comm, failures)
    assert_alive(comm)
    return failures.texts


def ranks_outside(comm, failures):
    size = comm.get_size()
    for name, value, mode in itertools.product(
        stated_by(row_of(comm)), (size, size + 5, -1, -size), (False, True)
    ):
        parameter = RANK_PARAMETERS.get(name)
        if parameter is None:
            continue
        with (
            failures.case(name, parameter, value),
            refused(RuntimeError, name, parameter, value, size),
        ):
            call(comm, name, mode, **{parameter: value})


def test_a_rank_outside_of_the_communicator_is_refused(world):
    """The message names the operation, the parameter, its value and the largest allowed one."""
    check(world, wrong, ranks_outside)


def ranks_of_wrong_type(comm, failures):
    for (name, parameter), value in itertools.product(
        RANK_PARAMETERS.items(), ("0", None, 0.5, torch.zeros(2))
    ):
        with failures.case(name, parameter, repr(value)), refused(TypeError):
            call(comm, name, False, **{parameter: value})
    for name, parameter in RANK_PARAMETERS.items():
        with failures.case(name, parameter, "2**40"), refused((TypeError, RuntimeError)):
            call(comm, name, False, **{parameter: 2**40})


def test_a_rank_that_is_no_int_is_a_type_error(world):
    check(world, wrong, ranks_of_wrong_type)


def list_lengths(comm, failures):
    size = comm.get_size()
    for name, parameters in LIST_PARAMETERS.items():
        for parameter, length in itertools.product(parameters, (0, size - 1, size + 1)):
            wrong_list = [torch.zeros(ONE) for _ in range(length)]
            with (
                failures.case(name, parameter, f"length {length}"),
                refused(RuntimeError, name, length, size),
            ):
                call(comm, name, False, **{parameter: wrong_list})


def test_a_list_of_the_wrong_length_is_refused(world):
    """Lists that only the root uses are checked there: rank 0 is the root of these calls."""
    check(world, wrong, list_lengths)


def element_counts(comm, failures):
    for name, slots in COUNTED_SLOTS.items():
        for slot, extra in itertools.product(slots, (-1, 1)):

            def odd(shape, extra=extra):
                return torch.zeros(torch.Size(shape).numel() + extra)

            with failures.case(name, slot, f"{extra:+d} element"), refused(RuntimeError, name):
                call(comm, name, False, instead_of(slot, odd))


def test_a_tensor_of_the_wrong_size_is_refused(world):
    check(world, wrong, element_counts)


def indivisible(comm, failures):
    count = 3 * comm.get_size() + 1
    with (
        failures.case("all_to_all_single"),
        refused(RuntimeError, "all_to_all_single", count, comm.get_size()),
    ):
        comm.all_to_all_single(torch.zeros(count), torch.zeros(count), False)


def test_all_to_all_single_refuses_a_count_that_the_ranks_cannot_share(world):
    check(world, wrong, indivisible)


def every_slot(comm, failures, replacement, *fragments):
    for name in stated_by(row_of(comm)):
        for slot in tensor_slots(name, comm.get_size()):
            with failures.case(name, slot), refused(RuntimeError, name, *fragments):
                call(comm, name, False, instead_of(slot, replacement))


def strided(shape):
    return torch.zeros((*shape[:-1], shape[-1] * 2))[..., ::2]


def strided_everywhere(comm, failures):
    every_slot(comm, failures, strided, "not contiguous", "copy the result back")


def test_a_tensor_with_gaps_is_refused_in_every_place(world):
    check(world, wrong, strided_everywhere)


def on_meta(shape):
    return torch.zeros(shape, device="meta")


def meta_everywhere(comm, failures):
    every_slot(comm, failures, on_meta, "meta", comm.get_device().type)


def test_a_tensor_on_another_device_is_refused_in_every_place(world):
    check(world, wrong, meta_everywhere)


def sparse(shape):
    return torch.zeros(shape).to_sparse()


def sparse_everywhere(comm, failures):
    every_slot(comm, failures, sparse)


def test_a_sparse_tensor_is_refused_in_every_place(world):
    check(world, wrong, sparse_everywhere)


def lazy(shape):
    return torch._neg_view(torch.zeros(shape))


SAYS_LAZY = "resolve_neg"


def lazy_everywhere(comm, failures):
    every_slot(comm, failures, lazy, SAYS_LAZY)


def test_a_tensor_that_torch_has_not_negated_yet_is_refused_in_every_place(world):
    check(world, wrong, lazy_everywhere)


def lazy_in_a_batch(comm, failures):
    batch = comm.batch_op_create()
    batch.send(torch.zeros(3), 1)
    batch.send(lazy(3), 1)
    with failures.case("batch_op_issue"), refused(ValueError, "batch_op_issue", SAYS_LAZY):
        batch.issue(False)


@pytest.mark.worlds(needs=("messages",))
def test_a_tensor_that_torch_has_not_negated_yet_is_refused_in_a_batch(world):
    check(world, wrong, lazy_in_a_batch)


class Wrapper(torch.Tensor):
    """A tensor whose memory is in another one, as that of a DTensor is."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} was called")


def wrapper(shape):
    return Wrapper(torch.zeros(shape))


def awaited(shape):
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    return AsyncCollectiveTensor(torch.zeros(shape))


def subclasses_everywhere(comm, failures):
    every_slot(comm, failures, wrapper, "Wrapper", "no memory", "to_local()")
    every_slot(comm, failures, awaited, "AsyncCollectiveTensor", "wait()")


@pytest.mark.worlds(device="cpu")
def test_a_tensor_subclass_without_memory_is_refused_by_its_name(world):
    check(world, wrong, subclasses_everywhere)


def double(shape):
    return torch.zeros(shape, dtype=torch.float64)


def mixed_dtypes(comm, failures):
    for name in COLLECTIVES:
        slots = tensor_slots(name, comm.get_size())
        for slot in slots if len(slots) > 1 else []:
            with failures.case(name, slot), refused(RuntimeError, name, "float"):
                call(comm, name, False, instead_of(slot, double))


def test_tensors_of_different_dtypes_are_refused(world):
    """Also by all_gather, where the reference converts in silence."""
    check(world, wrong, mixed_dtypes)


def no_tensors(comm, failures):
    for name, value in itertools.product(OPERATIONS, (None, 3.0, [1.0, 2.0], "tensor")):
        for slot in tensor_slots(name, comm.get_size()):
            with failures.case(name, slot, repr(value)), refused(TypeError):
                call(comm, name, False, instead_of(slot, lambda _shape, value=value: value))
    for name, parameters in LIST_PARAMETERS.items():
        for parameter, value in itertools.product(parameters, (None, 3)):
            with failures.case(name, parameter, repr(value)), refused(TypeError):
                call(comm, name, False, **{parameter: value})


def test_what_is_no_tensor_is_a_type_error(world):
    check(world, wrong, no_tensors)


def splits(comm, failures):
    size, name = comm.get_size(), "all_to_all_v_single"
    rows = ONE[0] * size
    for parameter in ("output_split_sizes", "input_split_sizes"):
        for label, value in {
            "empty": [],
            "short": [1] * (size - 1),
            "long": [1] * (size + 1),
        }.items():
            with failures.case(parameter, label), refused(RuntimeError, name, len(value), size):
                call(comm, name, False, **{parameter: value})
        too_many = [rows] + [1] * (size - 1)
        with failures.case(parameter, "sum"), refused(RuntimeError, name, rows):
            call(comm, name, False, **{parameter: too_many})
        huge = [2**63 - 1] * size
        with failures.case(parameter, "overflow"), refused(RuntimeError, name):
            call(comm, name, False, **{parameter: huge})
        rank = comm.get_rank()
        fewer = [int(r != rank) for r in range(size)]
        with (
            failures.case(parameter, "own block"),
            refused(ValueError, name, f"{parameter}[{rank}] is 0", "must be the same"),
        ):
            call(comm, name, False, **{parameter: fewer})
        for label, value in {
            "negative": [-1] + [1] * (size - 1),
            "float": [0.5] * size,
            "text": ["1"] * size,
            "None": None,
        }.items():
            with failures.case(parameter, label), refused(TypeError):
                call(comm, name, False, **{parameter: value})


def test_split_sizes_that_do_not_fit_are_refused(world):
    """A negative size is a TypeError, as any value that is no unsigned integer."""
    check(world, wrong, splits)


def split_of_a_scalar(comm, failures):
    with failures.case("0-dimensional"), refused(RuntimeError, "all_to_all_v_single"):
        comm.all_to_all_v_single(
            torch.tensor(1.0),
            torch.tensor(1.0),
            [1, 1, 1][: comm.get_size()],
            [1, 1, 1][: comm.get_size()],
            False,
        )


def test_a_scalar_has_no_rows_to_split(world):
    check(world, wrong, split_of_a_scalar)


def reduce_ops(comm, failures):
    for name, value in itertools.product(REDUCING, (RedOpType.SUM, "sum", 0, None, ReduceOp)):
        said = "must be torchcomms.ReduceOp, such as torchcomms.ReduceOp.SUM, not"
        with failures.case(name, repr(value)), refused(TypeError, name, said):
            call(comm, name, False, op=value)


def test_what_is_no_reduce_op_is_a_type_error(world):
    check(world, wrong, reduce_ops)


def to_oneself(comm, failures):
    for name in MESSAGES:
        with failures.case(name), refused(RuntimeError, name):
            call(comm, name, False, **{RANK_PARAMETERS[name]: comm.get_rank()})


@pytest.mark.worlds(sizes=(1, 2), backends=("gloo",))
def test_gloo_refuses_messages_to_oneself(world):
    check(world, wrong, to_oneself)


def missing_and_surplus(comm, failures):
    for name in OPERATIONS:
        with failures.case(name, "without async_op"), refused(TypeError):
            getattr(comm, name)(*arguments(name, comm.get_rank(), comm.get_size()).values())
        with failures.case(name, "unknown keyword"), refused(TypeError):
            call(comm, name, False, asynchronous=True)
        with failures.case(name, "one too many"), refused(TypeError):
            getattr(comm, name)(
                *arguments(name, comm.get_rank(), comm.get_size()).values(), False, None, None, None
            )


def test_missing_and_surplus_arguments_are_type_errors(world):
    check(world, wrong, missing_and_surplus)
