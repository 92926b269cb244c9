"""How Python values become arguments: what converts, what does not."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest
import torch
import torchcomms
from torchcomms import ReduceOp

from tests.harness.environment import environment
from tests.harness.operations import OPERATIONS, arguments, call, tensor_slots

LISTS = {
    "all_gather": ["tensor_list"], "all_gather_v": ["tensor_list"],
    "reduce_scatter": ["input_list"], "reduce_scatter_v": ["input_list"],
    "all_to_all": ["output_tensor_list", "input_tensor_list"],
    "all_to_all_v_single": ["output_split_sizes", "input_split_sizes"],
    "scatter": ["input_tensor_list"], "gather": ["output_tensor_list"],
}  # fmt: skip


@pytest.mark.parametrize("value", [1, 0, None, "x", "", [], [0], 2.5, ...], ids=repr)
def test_async_op_is_anything_with_a_truth_value(comm, value):
    for name in OPERATIONS:
        assert call(comm, name, value).is_completed()


class Unknown:
    def __bool__(self):
        raise ArithmeticError("neither")


def test_async_op_without_a_truth_value_raises_what_it_raises(comm):
    with pytest.raises(ArithmeticError, match="neither"):
        comm.barrier(Unknown())


class Sequence:
    """A sequence that is neither list nor tuple."""

    def __init__(self, items):
        self._items = items

    def __len__(self):
        return len(self._items)

    def __getitem__(self, index):
        return self._items[index]


class Broken(Sequence):
    def __getitem__(self, index):
        raise ArithmeticError("no items")


def test_a_sequence_that_raises_raises_that(comm):
    for name, parameters in LISTS.items():
        given = arguments(name, 0, 1)
        for parameter in parameters:
            with pytest.raises(ArithmeticError, match="no items"):
                call(comm, name, False, **{parameter: Broken(given[parameter])})


def test_an_entry_may_change_the_list_that_it_is_in(comm):
    class Emptying:
        def __index__(self):
            splits.clear()
            return 0

    splits = [Emptying() for _ in range(1000)]
    call(comm, "all_to_all_v_single", False, output_split_sizes=splits)
    assert splits == []


@pytest.mark.parametrize("kind", [tuple, list, Sequence])
def test_lists_may_be_any_sequence(comm, kind):
    for name, parameters in LISTS.items():
        given = arguments(name, 0, 1)
        for parameter in parameters:
            call(comm, name, False, **{parameter: kind(given[parameter])})


@pytest.mark.parametrize("value", [None, 5, "text", b"bytes", {"a": 1}, torch.zeros(2)], ids=repr)
def test_other_things_are_no_lists(comm, value):
    for name, parameters in LISTS.items():
        for parameter in parameters:
            with pytest.raises(TypeError):
                call(comm, name, False, **{parameter: value})


@pytest.mark.parametrize("rank", [0, np.int64(0), np.uint8(0), False], ids=repr)
def test_ranks_may_be_anything_that_is_an_index(comm, rank):
    for name, parameter in (("send", "dst"), ("recv", "src"), ("broadcast", "root")):
        call(comm, name, False, **{parameter: rank})


@pytest.mark.parametrize("rank", ["0", 0.0, None, torch.tensor(0.0), np.float32(0)], ids=repr)
def test_other_things_are_no_ranks(comm, rank):
    for name, parameter in (("send", "dst"), ("recv", "src"), ("broadcast", "root")):
        with pytest.raises(TypeError):
            call(comm, name, False, **{parameter: rank})


@pytest.mark.parametrize("value", [None, 3.0, [1.0], np.zeros(2)], ids=repr)
def test_other_things_are_no_tensors(comm, value):
    for name in ("send", "broadcast", "all_reduce"):
        with pytest.raises(TypeError, match="tensor"):
            call(comm, name, False, tensor=value)
    with pytest.raises(TypeError):
        comm.all_gather([value], torch.zeros(1), False)


def test_parameters_and_subclasses_of_tensors_are_tensors(comm):
    class Mine(torch.Tensor):
        pass

    class Guarded(torch.Tensor):
        """Its memory is its own; operations ask its class nothing."""

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise AssertionError(f"{func} was called")

    class Dispatched(torch.Tensor):
        @staticmethod
        def __new__(cls, data):
            return torch.Tensor._make_subclass(cls, data)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise AssertionError(f"{func} was called")

    with environment(TORCHCOMM_RANK="0", TORCHCOMM_SIZE="1"):
        own = torchcomms.new_comm("gloo", torch.device("cpu"), "subclasses")
    for tensor in (
        torch.nn.Parameter(torch.zeros(2)),
        torch.nn.Buffer(torch.zeros(2)),
        torch.zeros(2).as_subclass(Mine),
        torch.zeros(2).as_subclass(Guarded),
        Dispatched(torch.zeros(2)),
    ):
        for used in (comm, own):
            used.all_reduce(tensor, ReduceOp.SUM, False)
    own.finalize()


LAZY = [torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer]


@pytest.mark.parametrize("lazy", LAZY)
def test_what_has_no_shape_yet_is_refused_by_its_name(comm, lazy):
    """It has no elements, so that an operation would do nothing and say nothing."""
    for name in OPERATIONS:
        for slot in tensor_slots(name, 1):
            with pytest.raises(TypeError) as caught:
                call(comm, name, False, lambda one, shape, slot=slot: lazy() if one == slot
                     else torch.zeros(shape))  # fmt: skip
            argument = slot.split("[")[0]
            for word in (f"{name}()", f"'{argument}'", lazy.__name__, "materialize()"):
                assert word in str(caught.value)
    batch, window = comm.batch_op_create(), comm.new_window()
    for refused in (
        lambda: batch.send(lazy(), 0),
        lambda: batch.recv(lazy(), 0),
        lambda: torchcomms.P2POp(torchcomms.P2POpType.SEND, lazy(), 0),
        lambda: window.tensor_register(lazy()),
        lambda: window.put(lazy(), 0, 0, False),
        lambda: comm.new_window(lazy()),
        lambda: comm.tensor_register(lazy()),
    ):
        with pytest.raises(TypeError, match=rf"tensor.*{lazy.__name__}.*materialize\(\)"):
            refused()
    made = lazy()
    made.materialize((2,))
    comm.all_reduce(made, ReduceOp.SUM, False)


@pytest.mark.parametrize("hints", [{"a": 1}, {"a": None}, {1: "a"}, "a", ["a"], 5], ids=repr)
def test_hints_are_text_to_text(comm, hints):
    for name in OPERATIONS:
        with pytest.raises(TypeError):
            call(comm, name, False, hints=hints)


@pytest.mark.parametrize("limit", [5, "5", [5.0], ...], ids=repr)
def test_limits_are_timedeltas_or_floats(comm, limit):
    for name in OPERATIONS:
        with pytest.raises(TypeError):
            call(comm, name, False, timeout=limit)


def test_a_type_error_names_operation_and_argument(comm):
    with pytest.raises(TypeError) as caught:
        comm.broadcast(torch.zeros(1), "0", False)
    assert "broadcast" in str(caught.value)
    assert "root" in str(caught.value)


def test_a_refused_call_leaves_no_trace(comm):
    """Reference counts after many refused calls are what they were."""
    tensor = torch.zeros(2)
    before = sys.getrefcount(tensor)
    for _, bad in itertools.product(range(100), ({"hints": 5}, {"timeout": "x"}, {"x": 1})):
        with pytest.raises(TypeError):
            comm.broadcast(tensor, 0, False, **bad)
    assert sys.getrefcount(tensor) == before


def test_an_accepted_call_leaves_no_trace(comm):
    tensor, tensors = torch.zeros(2), [torch.zeros(2)]
    before = sys.getrefcount(tensor), sys.getrefcount(tensors), sys.getrefcount(tensors[0])
    for _ in range(100):
        comm.broadcast(tensor, 0, False)
        comm.all_gather(tensors, tensor, True)
        comm.all_gather(tensor_list=tensors, tensor=tensor, async_op=True, hints={"a": "b"})
    assert before == (
        sys.getrefcount(tensor),
        sys.getrefcount(tensors),
        sys.getrefcount(tensors[0]),
    )
