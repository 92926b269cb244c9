"""Objects that travel as files of torch.save: what these may hold, and what they take."""

from __future__ import annotations

import codecs
import collections
import io
import pickle
import struct
import tracemalloc
import warnings
import zipfile

import pytest
import torch
from torchcomms.objcol import _decode, _encode, _format
from torchcomms.objcol._format import Over, Refused

CAP = 1 << 16
CPU = torch.device("cpu")
HUGE = 1 << 30
AT = len(_format.MAGIC) + 1 + _format.COUNT.size


def sparse(size=3):
    return torch.eye(size).to_sparse()


def through(value, cap=CAP):
    return _decode.decode(memoryview(_encode.encode(value, cap)), cap, CPU)


class Call:
    """Is pickled as a call."""

    def __init__(self, function, *arguments):
        self.all = function, arguments

    def __reduce__(self):
        return self.all


class Stored:
    """Is pickled as a storage of floats, of which the file has one."""

    elements = 1


class Pickler(pickle.Pickler):
    def persistent_id(self, value):
        if type(value) is Stored:
            return "storage", torch.FloatStorage, "0", "cpu", value.elements
        return None


def pickled(value):
    out = io.BytesIO()
    Pickler(out, 2).dump(value)
    return out.getvalue()


def message(pkl, before=b""):
    """With a file whose pickle is this."""
    whole, out = io.BytesIO(), io.BytesIO()
    torch.save(torch.ones(1), whole)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(out, "w") as new:
        for row in old.infolist():
            name = row.filename
            new.writestr(name, pkl if name.endswith("data.pkl") else old.read(row))
    file = before + out.getvalue()
    tag = bytes((_format.TORCH_FILE,))
    return memoryview(_format.MAGIC + tag + _format.COUNT.pack(len(file)) + file)


def read(pkl, cap=CAP):
    return _decode.decode(message(pkl), cap, CPU)


def tensor(elements=1, stride=1):
    rebuild = torch._utils._rebuild_tensor_v2
    return Call(rebuild, Stored(), 0, (elements,), (stride,), False, collections.OrderedDict())


def test_the_messages_of_these_tests_are_read_where_nothing_is_wrong():
    assert read(pickled([tensor(), Call(bytearray, b"ab"), {1, 2}]))[1:] == [
        bytearray(b"ab"),
        {1, 2},
    ]


from_type = torch._tensor._rebuild_from_type_v2
to_device = torch._utils._rebuild_device_tensor_from_cpu_tensor
quantized = torch._utils._rebuild_qtensor
WRONG = {
    "a bytearray": Call(bytearray, HUGE),
    "a storage": Call(torch.UntypedStorage, HUGE),
    "a tensor": Call(torch.Tensor, HUGE),
    "an old kind of tensor": Call(torch.FloatTensor, HUGE),
    "a call in a call": Call(from_type, bytearray, torch.Tensor, (HUGE,), {}),
    "a tensor in a call": Call(from_type, torch.Tensor, torch.Tensor, (HUGE,), {}),
    "a tensor for a device": Call(to_device, tensor(100, 0), torch.float64, "cpu", False),
    "a set of a tensor": Call(set, tensor(100, 0)),
    "a dictionary of pairs": Call(collections.OrderedDict, [[(1,), 2]]),
    "another encoding": Call(codecs.encode, "ab", "utf-32"),
    "no tuple of a size": Call(quantized, Stored(), 0, 5, (1,), (), False, {}),
}


class TestWhatIsRefused:
    @pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
    def test_calls_that_torch_load_allows_and_torch_save_does_not_write(self, wrong):
        with pytest.raises(Refused, match=r"torch\.save"):
            read(pickled(wrong))

    def test_a_new_instance_instead_of_a_call(self):
        size = b"J" + struct.pack("<i", HUGE)
        for cls in (b"ctorch.storage\nUntypedStorage\n", b"cbuiltins\nbytearray\n"):
            with pytest.raises(Refused):
                read(b"\x80\x02" + cls + size + b"\x85\x81.")

    def test_names_without_python_2s_spelling(self):
        with pytest.raises(Refused, match="bytearray"):
            read(b"\x80\x02cbuiltins\nbytearray\nJ" + struct.pack("<i", HUGE) + b"\x85R.")

    def test_a_state_that_would_change_what_the_count_is_made_of(self):
        rebuild = pickled(torch._utils._rebuild_tensor_v2)[2:-1]
        storage = pickled(Stored())[2:-1]
        state = pickled((None, {"elements": HUGE}))[2:-1]
        with pytest.raises(Refused, match="of a Storage"):
            read(b"\x80\x02" + rebuild + storage + state + b"b\x85R.")

    @pytest.mark.parametrize(
        "pkl", [b"\x80\x04N.", b"N.", b"\x80\x02\x8f.", b"\x80\x02", b"\x80\x02q\0.", b""]
    )
    def test_steps_that_torch_save_does_not_write(self, pkl):
        with pytest.raises(Refused, match=r"torch\.save"):
            read(pkl)

    def test_a_file_of_an_older_torch_before_the_archive(self):
        old = io.BytesIO()
        torch.save(torch.ones(1), old, _use_new_zipfile_serialization=False)
        with pytest.raises(Refused, match="not a file of"):
            _decode.decode(message(pickled(None), old.getvalue()), CAP, CPU)


OFTEN = 200
MANY = 1000


KEY = (1,) * MANY


def repeated(function, argument):
    """The pickle of a list of calls, for each of which five bytes are enough."""
    once = pickled(function)[2:-1] + b"q\xf0" + pickled((argument,))[2:-1] + b"q\xf1R"
    return b"\x80\x02](" + once + b"h\xf0h\xf1R" * OFTEN + b"e."


class TestWhatIsCounted:
    def test_more_elements_than_there_are(self):
        scheme = (torch.per_tensor_affine, 1.0, 0)
        for wrong in (
            tensor(HUGE, 0),
            Call(quantized, Stored(), 0, (HUGE,), (0,), scheme, False, collections.OrderedDict()),
        ):
            with pytest.raises(Over, match=f"max_bytes={CAP}"):
                read(pickled(wrong))

    def test_every_step(self):
        pkl = b"\x80\x02](" + b"}" * MANY + b"e."
        assert read(pkl, 2 * CAP) == [{}] * MANY
        with pytest.raises(Over, match=f"max_bytes={CAP}"):
            read(pkl)

    @pytest.mark.parametrize(
        ("function", "argument"),
        [
            (set, list(range(MANY))),
            (bytearray, b"x" * MANY),
            (collections.Counter, dict.fromkeys(range(MANY), 1)),
            (collections.OrderedDict, dict.fromkeys(range(MANY), 1)),
            (torch.Size, (1,) * MANY),
        ],
        ids=lambda v: getattr(v, "__name__", ""),
    )
    def test_copies_of_what_came_once(self, function, argument):
        pkl = repeated(function, argument)
        cap = 2 * MANY * _format.VALUE_BYTES
        with pytest.raises(Over, match=f"max_bytes={cap}"):
            read(pkl, cap)

    def test_the_number_of_an_object_takes_no_memory(self):
        tracemalloc.start()
        assert read(b"\x80\x02Nr\xff\xff\xff\x7f.") is None
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1 << 20

    @pytest.mark.parametrize(
        ("begin", "end"), [(b"}", b"Ns."), (b"c__builtin__\nset\n]", b"a\x85R.")]
    )
    def test_elements_of_tuples_that_contain_each_other(self, begin, end):
        """The hash of the last one, a key, would take years."""
        doubled = [b"q%ch%c\x86" % (n, n) for n in range(60)]
        assert len(read(b"\x80\x02" + begin + b"K\1" + b"".join(doubled[:4]) + end)) == 1
        with pytest.raises(Over, match=f"max_bytes={CAP}"):
            read(b"\x80\x02" + begin + b"K\1" + b"".join(doubled) + end)

    @pytest.mark.parametrize(
        ("function", "argument"),
        [(set, [KEY]), (collections.Counter, {KEY: 1})],
        ids=["set", "Counter"],
    )
    def test_elements_of_keys_that_are_copied(self, function, argument):
        cap = 2 * MANY * _format.VALUE_BYTES + CAP
        with pytest.raises(Over, match=f"max_bytes={cap}"):
            read(repeated(function, argument), cap)

    def test_elements_of_sizes_that_are_many_keys(self):
        size = pickled(Call(torch.Size, (1,) * MANY))[2:-1] + b"q\xf0"
        pkl = b"\x80\x02}(" + size + b"N" + b"h\xf0N" * 9 + b"u."
        assert list(read(pkl, 16 * CAP)) == [torch.Size((1,) * MANY)]
        with pytest.raises(Over, match=f"max_bytes={8 * CAP}"):
            read(pkl, 8 * CAP)

    def test_the_same_where_it_is_sent_and_where_it_is_read(self):
        """So that the sender's cap decides, before anything is sent."""
        value = sparse()
        caps = range(500, 20_000, 64)
        enough = next(cap for cap in caps if self.fits(_encode.encode, value, cap))
        raw = memoryview(_encode.encode(value, CAP))
        assert self.fits(_decode.decode, raw, enough, CPU)
        assert not self.fits(_decode.decode, raw, enough - 64, CPU)

    @staticmethod
    def fits(call, *arguments):
        try:
            call(*arguments)
        except Over:
            return False
        return True


class Everything:
    """An instance of a class that torch is told to trust, with what else torch reads."""

    def __init__(self):
        self.texts = [b"\xff\0", bytearray(b"\xff"), bytearray(), "text", 2**70, 1j, 0.5, None]
        self.sets = [{1, "a"}, collections.Counter("aab"), collections.OrderedDict(a=1), {}]
        self.about = [torch.Size([2]), CPU, torch.float8_e5m2, torch.uint16, (True, False)]
        self.sets[2].note = "an attribute"


class Labelled(torch.Tensor):
    pass


def with_attribute(tensor):
    tensor.note = ["a note"]
    return tensor


KINDS = {
    "bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "csc": lambda: torch.eye(4).to_sparse_csc(),
    "values once": lambda: torch.sparse_coo_tensor([[0, 2]], torch.ones(1).expand(2), (4,)),
    "per channel": lambda: torch.quantize_per_channel(
        torch.ones(2, 2), torch.ones(2), torch.zeros(2), 0, torch.quint8
    ),
    "attribute": lambda: with_attribute(torch.ones(2)),
    "parameter": lambda: with_attribute(torch.nn.Parameter(torch.ones(2))),
    "subclass": lambda: with_attribute(torch.ones(2).as_subclass(Labelled)),
}


class TestWhatIsRead:
    @pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
    def test_tensors(self, make):
        value = make()
        with torch.serialization.safe_globals([Labelled]):
            got = through([value])[0]
        assert (type(got), got.layout, got.dtype) == (type(value), value.layout, value.dtype)
        plain = (lambda t: t.dequantize()) if value.is_quantized else (lambda t: t.to_dense())
        assert torch.equal(plain(got), plain(value))

    def test_what_instances_hold(self):
        value = Everything()
        value.tensors = [torch.ones(2, dtype=torch.cfloat).conj(), torch.nn.Parameter(sparse())]
        value.tensors += [torch.ones(2, dtype=t) for t in (torch.uint16, torch.float8_e5m2)]
        with torch.serialization.safe_globals([Everything]):
            got = through(value)
        assert type(got) is Everything
        for name in ("texts", "sets", "about"):
            assert getattr(got, name) == getattr(value, name)
        assert got.sets[2].note == "an attribute"
        for mine, theirs in zip(value.tensors, got.tensors, strict=True):
            wide = [t.detach().to_dense().to(torch.complex64) for t in (mine, theirs)]
            assert torch.equal(*wide)

    def test_a_class_by_the_name_that_python_2_had_for_its_module(self):
        with torch.serialization.safe_globals([collections.UserDict]):
            assert through(collections.UserDict(a=1)) == {"a": 1}

    def test_in_silence(self):
        raw = memoryview(_encode.encode(sparse(), CAP))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert torch.equal(_decode.decode(raw, CAP, CPU).to_dense(), torch.eye(3))
