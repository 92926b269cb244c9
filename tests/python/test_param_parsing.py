"""functional.param_parsing: from parameters to operators' signatures, from calls to values."""

from __future__ import annotations

import pytest
import torch
import torchcomms
from torch import Tensor
from torchcomms.functional.param_parsing import (
    CollectiveParamSchema,
    ParamKind,
    ParamSpec,
    ParsedArgs,
    as_timeout,
    schema_type,
)

INPUT, EXTRA = ParamKind.INPUT, ParamKind.EXTRA
OUT = ParamSpec("output", INPUT, Tensor, write_only=True)
IN = ParamSpec("input", INPUT, Tensor, mutable=False)
LIST = ParamSpec("tensors", INPUT, list[Tensor])
ROOT = ParamSpec("root", EXTRA, int, older=("src",))
ASYNC = ParamSpec("async_op", EXTRA, bool, False)
HINTS = ParamSpec("hints", EXTRA, dict[str, str] | None, None)
NAME = "torchcomms.TorchComm"


def schema(*specs: ParamSpec) -> CollectiveParamSchema:
    return CollectiveParamSchema.from_raw_specs(torchcomms.TorchComm, specs)


class TestTypes:
    @pytest.mark.parametrize(
        ("annotation", "text"),
        [(Tensor, "Tensor"), (list[Tensor], "Tensor[]"), (int, "int"), (bool, "bool"),
         (str, "str"), (float, "float"), (list[int], "int[]"), (torch.dtype, "ScalarType"),
         (torch.device, "Device"), (dict[str, str], "Dict(str, str)"), (int | None, "int?"),
         (list[Tensor] | None, "Tensor[]?"), (dict[str, str] | None, "Dict(str, str)?"),
         (torchcomms.ReduceOp, "torchcomms.ReduceOp"),
         (torchcomms.Timeout | None, "torchcomms.Timeout?")],
    )  # fmt: skip
    def test_as_signatures_spell_them(self, annotation, text):
        assert schema_type(annotation) == text

    @pytest.mark.parametrize("annotation", [object, dict[str, int], list[str], int | str, tuple])
    def test_others_are_refused(self, annotation):
        with pytest.raises(ValueError, match=r"allowed are Tensor, .*ReduceOp"):
            schema_type(annotation)

    @pytest.mark.parametrize("text", ["Tensor", "Tensor[]", "int", "ScalarType?", "SymInt[]"])
    def test_a_text_stays_as_it_is(self, text):
        assert schema_type(text) == text

    def test_kinds_have_the_lower_case_names(self):
        assert [kind.value for kind in ParamKind] == ["class_object", "input", "output", "extra"]


class TestOneParameter:
    def test_what_it_is(self):
        assert OUT.is_tensor()
        assert not OUT.is_tensor_list()
        assert LIST.is_tensor_list()
        assert not LIST.is_tensor()
        assert OUT.is_tensor_like()
        assert LIST.is_tensor_like()
        assert not ROOT.is_tensor_like()
        assert ASYNC.has_default()
        assert HINTS.has_default(), "None is a default, too"
        assert not ROOT.has_default()
        assert (OUT.mutable, OUT.write_only) == (True, True)


class TestSignatures:
    def test_what_is_changed_has_letters_in_order(self):
        made = schema(OUT, ParamSpec("more", INPUT, list[Tensor]), IN, ROOT, ASYNC, HINTS)
        rest = "Tensor input, int root, bool async_op=False, Dict(str, str)? hints=None)"
        assert made.signature == (
            f"({NAME} self, Tensor(a!) output, Tensor(b!)[] more, {rest} -> (Tensor(a!),"
            " Tensor(b!)[])"
        )
        assert made.functional_signature == (
            f"({NAME} self, Tensor output, Tensor[] more, {rest} -> (Tensor, Tensor[])"
        )
        assert [param.name for param in made.mutable_params] == ["output", "more"]
        assert made.mutable_indices == [1, 2]
        assert not made.needs_async_dummy_return
        assert made.inplace_return_type == "(Tensor(a!), Tensor(b!)[])"
        assert made.functional_return_type == "(Tensor, Tensor[])"

    def test_texts_give_the_signature_of_the_types(self):
        specs = {
            False: (OUT, LIST, IN, ROOT, HINTS),
            True: (
                ParamSpec("output", INPUT, "Tensor", write_only=True),
                ParamSpec("tensors", INPUT, "Tensor[]"),
                ParamSpec("input", INPUT, "Tensor", mutable=False),
                ParamSpec("root", EXTRA, "int", older=("src",)),
                ParamSpec("hints", EXTRA, "Dict(str, str)?", None),
            ),
        }
        of_types, of_texts = (schema(*specs[as_text]) for as_text in (False, True))
        assert of_texts.signature == of_types.signature
        assert of_texts.functional_signature == of_types.functional_signature
        assert of_texts.all_params == of_types.all_params
        assert [param.torch_type for param in of_types.all_params[1:]] == [
            "Tensor", "Tensor[]", "Tensor", "int", "Dict(str, str)?",
        ]  # fmt: skip
        dtype = schema(ParamSpec("dtype", EXTRA, "ScalarType?", None))
        assert dtype.signature == f"({NAME} self, ScalarType? dtype=None) -> ()"
        own = ParamSpec("self", ParamKind.CLASS_OBJECT, "__torch__.torch.classes.mine.Group")
        assert schema(own).signature == "(__torch__.torch.classes.mine.Group self) -> ()"

    def test_inputs_come_before_all_else(self):
        made = schema(ASYNC, ROOT, IN)
        assert [param.name for param in made.all_params] == ["self", "input", "async_op", "root"]
        assert made.object_param.torch_type is torchcomms.TorchComm
        assert [param.name for param in made.input_params] == ["input"]
        assert [param.name for param in made.extra_params] == ["async_op", "root"]

    def test_what_changes_nothing_returns_a_tensor_to_wait_for(self):
        made = schema(IN, ROOT, ASYNC)
        assert made.needs_async_dummy_return
        assert made.return_type == made.functional_return_type == "Tensor"
        assert made.signature == made.functional_signature
        assert not schema(IN, ROOT).needs_async_dummy_return
        assert schema(IN, ROOT).return_type == "()"

    def test_outputs_are_returned_and_no_parameters(self):
        made = schema(ROOT, ParamSpec("out", ParamKind.OUTPUT, Tensor))
        assert made.signature == f"({NAME} self, int root) -> Tensor"
        assert [param.name for param in made.output_params] == ["out"]

    def test_there_is_one_object(self):
        own = ParamSpec("comm", ParamKind.CLASS_OBJECT, torchcomms.TorchComm)
        assert schema(own, ASYNC).all_params[0] is own
        with pytest.raises(ValueError, match="2 parameters are the object"):
            schema(own, own)

    def test_a_default_must_be_a_constant(self):
        made = schema(ParamSpec("op", EXTRA, torchcomms.ReduceOp, torchcomms.ReduceOp.SUM))
        with pytest.raises(ValueError, match=r"SUM.*'op'.*allowed"):
            _ = made.signature
        text = schema(ParamSpec("name", EXTRA, str, "all")).signature
        assert text == f'({NAME} self, str name="all") -> ()'


class TestCalls:
    made = schema(OUT, IN, ROOT, ASYNC, HINTS)
    out, inp = torch.zeros(2), torch.ones(2)

    def test_of_a_method(self):
        for args, kwargs in (
            ((self.out, self.inp, 3, True), {}),
            ((self.out,), {"root": 3, "input": self.inp, "async_op": True}),
            ((self.out, self.inp), {"src": 3, "async_op": True}),
        ):
            parsed = self.made.parse_method_args("me", args, kwargs)
            assert parsed.to_values() == ["me", self.out, self.inp, 3, True, None]

    @pytest.mark.parametrize(
        ("args", "kwargs", "why"),
        [((1, 2, 3, 4, 5, 6), {}, "at most 5 arguments, 6"), ((1, 2), {}, "missing .*'root'"),
         ((1, 2, 3), {"rot": 1}, "unexpected .*'rot'"),
         ((1, 2, 3), {"root": 3}, "multiple .*'root'"),
         ((1, 2, 3), {"src": 3}, "multiple .*'root'"),
         ((1, 2), {"src": 3, "root": 3}, "multiple .*'root'")],
    )  # fmt: skip
    def test_wrong_ones_of_a_method(self, args, kwargs, why):
        with pytest.raises(TypeError, match=rf"^gather\(\).*{why}"):
            self.made.parse_method_args("me", args, kwargs, "gather")

    def test_of_an_operator_which_leaves_defaults_out(self):
        parsed = self.made.parse_lib_args(("me", self.out, self.inp, 3))
        assert parsed.to_values() == ["me", self.out, self.inp, 3, False, None]
        with pytest.raises(TypeError, match="'root'"):
            self.made.parse_lib_args(("me", self.out, self.inp))
        with pytest.raises(TypeError, match="at most 6"):
            self.made.parse_lib_args((1,) * 7)

    def test_what_is_asked_of_them(self):
        lists = [torch.zeros(1), torch.zeros(3)]
        parsed = ParsedArgs.from_lib_args(
            ("me", lists, self.inp, 3), schema(LIST, IN, ROOT).all_params
        )
        assert parsed.get_value("root") == 3
        assert parsed.get_value("input") is self.inp
        assert parsed.get_value("timeout") is None
        assert parsed.get_tensor_input_indices() == [1, 2]
        assert parsed.get_mutable_tensor_indices() == [1]
        assert parsed.get_mutable_outputs() == [lists]
        assert parsed.get_mutable_outputs_flat() == lists
        assert parsed.get_tensor_inputs() == [lists, self.inp]
        assert parsed.get_tensor_inputs_flat_with_mutable_mask() == (
            [*lists, self.inp],
            [True, True, False],
        )

    def test_texts_find_the_tensors_of_a_call(self):
        lists = [torch.zeros(1), torch.zeros(3, requires_grad=True)]
        params = [
            ParamSpec("self", ParamKind.CLASS_OBJECT, NAME),
            ParamSpec("tensors", INPUT, "Tensor[]"),
            ParamSpec("input", INPUT, "Tensor", mutable=False),
            ParamSpec("root", EXTRA, "int"),
        ]
        parsed = ParsedArgs(params, ["me", lists, self.inp, 3])
        assert parsed.get_value("self") == "me"
        assert parsed.get_tensor_input_indices() == [1, 2]
        assert parsed.get_mutable_tensor_indices() == [1]
        assert parsed.get_mutable_outputs_flat() == lists
        assert parsed.get_tensor_inputs() == [lists, self.inp]
        assert parsed.get_tensor_inputs_flat_with_mutable_mask()[1] == [True, True, False]
        assert parsed.has_requires_grad()

    def test_what_their_tensors_are(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        def parsed(tensor):
            return self.made.parse_lib_args((None, self.out, tensor, 0))

        plain = parsed(self.inp)
        assert not plain.has_requires_grad()
        assert not plain.has_meta()
        assert not plain.has_fake_or_functional_tensor()
        assert parsed(torch.ones(1, requires_grad=True)).has_requires_grad()
        assert parsed(torch.ones(1, device="meta")).has_meta()
        with FakeTensorMode():
            assert parsed(torch.ones(1)).has_fake_or_functional_tensor()
        functional = torch._to_functional_tensor(torch.ones(1))
        assert parsed(functional).has_fake_or_functional_tensor()

    def test_limits_become_timeouts(self):
        import datetime

        limit = torchcomms.Timeout(seconds=2)
        assert as_timeout(limit) is limit
        assert as_timeout(None) is None
        for other in (datetime.timedelta(seconds=2), 2, 2.0):
            assert as_timeout(other) == limit
            assert type(as_timeout(other)) is torchcomms.Timeout
