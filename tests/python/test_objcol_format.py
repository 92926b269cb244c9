"""The bytes of objects: what travels comes back, and no bytes make the reader run anything."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import io
import math
import os
import pathlib
import pickle
import random
import struct
import sys
import tracemalloc
import uuid
import zipfile
from typing import ClassVar, NamedTuple

import numpy as np
import pytest
import torch
import torchcomms
from torchcomms import objcol
from torchcomms.objcol import _allowed, _decode, _encode, _format
from torchcomms.objcol._format import Over, Refused

from tests.harness.ports import free_port
from tests.harness.programs import ranks

CAP = 1 << 24
CPU = torch.device("cpu")
TensorMetadata = collections.namedtuple("TensorMetadata", ["device", "dtype", "size"])


class Point(NamedTuple):
    x: int
    y: float = 0.5


class Color(enum.Enum):
    RED = "red"
    BLUE = 7


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


@dataclasses.dataclass
class Config:
    name: str
    sizes: list[int]
    inner: Config | None = None
    derived: int = dataclasses.field(default=3, init=False)
    shared: dataclasses.InitVar[int] = 0

    def __post_init__(self, shared):
        raise AssertionError("a reader called __post_init__")


@dataclasses.dataclass(frozen=True)
class Key:
    text: str


@dataclasses.dataclass(slots=True)
class Slotted:
    a: int
    b: torch.Tensor


@dataclasses.dataclass
class WithDel:
    path: str

    def __del__(self):
        os.environ["OBJCOL_DEL_RAN"] = "1"


@dataclasses.dataclass
class WithProperty:
    path: str

    @property
    def path(self):
        return self._path

    @path.setter
    def path(self, value):
        os.environ["OBJCOL_SETTER_RAN"] = "1"
        self._path = value


class OddTuple(NamedTuple):
    x: int

    def __hash__(self):
        os.environ["OBJCOL_HASH_RAN"] = "1"
        return 1


@dataclasses.dataclass(eq=False)
class Obliging:
    """Records the calls of the methods that a conversion of its data might call."""

    value: object
    calls: ClassVar[list] = []

    def _record(self, *_):
        self.calls.append(1)
        return 1

    __index__ = __int__ = __float__ = __complex__ = __len__ = __hash__ = __eq__ = _record
    __lt__ = __getitem__ = __mul__ = __rmul__ = __bool__ = __repr__ = __str__ = _record

    def __iter__(self):
        self.calls.append("iter")
        return iter((0, 1))

    def __fspath__(self):
        self.calls.append("path")
        return "/"


class Labelled(torch.Tensor):
    pass


class Plain:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return type(other) is Plain and other.value == self.value

    __hash__ = None


@dataclasses.dataclass
class Kept:
    once: int

    @functools.cached_property
    def twice(self):
        return 2 * self.once


class Named(collections.namedtuple("Named", ["a"])):
    pass


def config(name, inner=None):
    """A Config, without the __post_init__ that nobody may call."""
    made = object.__new__(Config)
    made.name, made.sizes, made.inner, made.derived = name, [1, 2], inner, 4
    return made


def through(value, cap=CAP):
    return _decode.decode(memoryview(_encode.encode(value, cap)), cap, CPU)


def raw_name(tag, name):
    """A tag followed by a text without a tag, as names of classes are written."""
    return bytes((tag,)) + struct.pack("<Q", len(name)) + name.encode()


def converted(cls, data):
    """An instance of a class, or of one called so, as its data are written."""
    name = cls
    if type(cls) is not str:
        row = _allowed.by_class.get(cls)
        name = row.name if row else f"{cls.__module__}:{cls.__qualname__}"
    return raw_name(_format.CONVERTED, name) + value_bytes(data)


def tensor_of(raw, about):
    about = about if type(about) is tuple else (about,)
    return bytes((_format.TENSOR,)) + value_bytes((bytearray(raw), *about))


def read(raw, cap=CAP):
    return _decode.decode(memoryview(_format.MAGIC + raw), cap, CPU)


def value_bytes(value):
    return _encode.encode(value, CAP)[len(_format.MAGIC) :]


VALUES = [
    None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, -(2**200), 10**400, 1.5, -0.0, math.inf,
    1j, complex(-0.0, 2), "", "ä\u20ac\U0001f600", "\ud800", b"", b"\0\xff", bytearray(b"xy"),
    [], [1, [2, [3]]], (), (1, "a", None), {}, {"a": 1, 2: (3,), (4, 5): None, None: 0},
    set(), {1, "b"}, frozenset({(1, 2)}), {frozenset({1}): {2}},
    collections.OrderedDict([("b", 1), ("a", 2)]), collections.Counter("abca"),
    collections.defaultdict(list, {1: [2]}), collections.defaultdict(None, {1: 2}),
    collections.deque([1, 2], maxlen=3), range(1, 9, 2), slice(1, None, 2), ...,
    decimal.Decimal("-1.250"), fractions.Fraction(-3, 7),
    datetime.timedelta(days=-1, microseconds=5), datetime.date(2024, 2, 29),
    datetime.datetime(2024, 2, 29, 1, 2, 3, 4, fold=1, tzinfo=datetime.timezone.utc),
    datetime.time(1, 2, 3, 4, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
    uuid.UUID(int=5), pathlib.Path("/a/b"), pathlib.PurePosixPath("c"),
    torch.float8_e4m3fn, torch.bfloat16, torch.strided, torch.channels_last,
    torch.per_tensor_affine,
    torch.Size([2, 3]), torch.device("cuda", 1), torch.device("cpu"), torch.device("meta"),
    TensorMetadata("cpu", torch.float16, torch.Size([4])), Point(1), Color.RED, Color.BLUE,
    Level.HIGH, Access.READ, Access.READ | Access.RUN, {Color.RED: {Level.LOW: 1}},
    {Point(1, 2.0): "a namedtuple is a key"}, config("outer", config("inner")), Key("k"),
    np.float32(1.5), np.int8(-3), np.bool_(True), np.str_("text"), np.datetime64("2024-01-02"),
    np.dtype("float64"), np.dtype([("a", "<i4"), ("b", "<f8", (2,))]),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_a_value_comes_back_as_it_was(value):
    got = through(value)
    assert type(got) is type(value)
    assert got == value
    if not isinstance(value, set):  # they print in no order of their own
        assert repr(got) == repr(value)


def test_attributes_of_dictionaries_come_back():
    """torch.nn.Module.state_dict() has the versions of its modules in one."""
    state = torch.nn.BatchNorm1d(2).state_dict()
    got = through({"inside": state})["inside"]
    assert list(got) == list(state)
    assert got._metadata == state._metadata
    assert type(got._metadata) is collections.OrderedDict
    counted = collections.Counter("ab")
    counted.source = ("a", 1)
    assert vars(through(counted)) == {"source": ("a", 1)}
    counted.source = lambda: 1
    with pytest.raises(Refused, match="function"):
        through(counted)


@pytest.mark.parametrize("data", [({}, {1: 2}), ({}, [("a", 1)]), ({},), ([], {})], ids=repr)
def test_damaged_attributes_of_dictionaries_are_refused(data):
    for cls in (collections.OrderedDict, collections.Counter):
        with pytest.raises(Refused):
            read(converted(cls, data))


TENSORS = [
    torch.arange(6.0).reshape(2, 3),
    torch.arange(6.0).reshape(2, 3).T,
    torch.tensor(3, dtype=torch.int8),
    torch.empty(0, 3),
    torch.ones(1).expand(5),
    torch.tensor([True, False]),
    torch.tensor([1 + 2j]).conj(),
    torch.tensor([1.5], dtype=torch.bfloat16),
    torch.tensor([1.5]).to(torch.float8_e5m2),
    torch.ones(2, requires_grad=True),
    torch.nn.Parameter(torch.ones(2), requires_grad=False),
    torch.arange(4).to(torch.uint16),
]


@pytest.mark.parametrize("tensor", TENSORS, ids=lambda t: f"{t.dtype}-{tuple(t.shape)}")
def test_a_tensor_comes_back_with_its_bits_and_nature(tensor):
    got = through(tensor)
    assert type(got) is type(tensor)
    assert (got.dtype, got.shape, got.requires_grad) == (
        tensor.dtype,
        tensor.shape,
        tensor.requires_grad,
    )
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    assert torch.equal(got.detach().to(wide), tensor.detach().to(wide))
    got.detach().copy_(tensor.detach())  # it can be written to


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3).T,
        torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.arange(24).reshape(2, 3, 4).permute(1, 2, 0),
        torch.nn.Parameter(torch.ones(3, 2).T),
    ],
    ids=lambda t: f"{tuple(t.shape)}",
)
def test_a_dense_tensor_keeps_the_order_of_its_elements_in_memory(tensor):
    got = through(tensor)
    assert torch.equal(got, tensor)
    assert got.stride() == tensor.stride()


def test_a_part_of_a_tensor_travels_without_the_rest_of_its_storage():
    big = torch.zeros(1 << 16)
    assert len(_encode.encode(big[:4], CAP)) < 1000


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(3.5),
        np.zeros((0, 2), np.float16),
        np.array(["ab", "c"]),
        np.array([(1, 2.5)], dtype=[("a", "<i4"), ("b", ">f8")]),
        np.array(["2024-01-01"], dtype="datetime64[s]"),
    ],
    ids=lambda a: str(a.dtype),
)
def test_a_numpy_array_comes_back(array):
    got = through(array)
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, array)
    assert got.flags.writeable


def test_a_dataclass_keeps_what_init_would_change_and_slots_work():
    got = through(Slotted(1, torch.ones(2)))
    assert type(got) is Slotted
    assert got.a == 1
    assert torch.equal(got.b, torch.ones(2))


def test_what_torch_itself_exchanges_travels():
    """The tensor descriptions of torch's checkpoints and graphs."""
    from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
    from torch.fx.passes.shape_prop import TensorMetadata as GraphMetadata

    properties = TensorProperties.create_from_tensor(torch.ones(2))
    assert through(properties) == properties
    index = MetadataIndex("weight", (0, 4))
    assert through(index) == index
    graph = GraphMetadata(torch.Size([1]), torch.float32, False, (1,), None, False, {})
    assert through(graph) == graph


SPARSE = torch.eye(3).to_sparse()
QUANTIZED = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)


class TestWhatTorchLoadsAsData:
    @pytest.mark.parametrize(
        "tensor",
        [SPARSE, SPARSE.to_sparse_csr(), QUANTIZED],
        ids=["coo", "csr", "quantized"],
    )
    def test_tensors_that_are_not_dense(self, tensor):
        [got] = through([tensor])
        assert (got.layout, got.dtype) == (tensor.layout, tensor.dtype)
        dense = (lambda t: t.dequantize()) if tensor.is_quantized else (lambda t: t.to_dense())
        assert torch.equal(dense(got), dense(tensor))

    def test_tensors_without_data(self):
        got = through({"a": torch.empty(2, 3, device="meta")})["a"]
        assert (got.device.type, got.shape) == ("meta", (2, 3))

    def test_storages(self):
        storage = torch.arange(3.0).untyped_storage()
        got = through(storage)
        assert type(got) is torch.UntypedStorage
        assert got.tolist() == storage.tolist()
        assert len(through(torch.UntypedStorage(0))) == 0

    def test_classes_that_were_given_to_torch_on_both_sides(self):
        with torch.serialization.safe_globals([Plain, Labelled]):
            value = {"plain": Plain([1]), "tensor": torch.ones(2).as_subclass(Labelled)}
            raw = memoryview(_encode.encode(value, CAP))
            got = _decode.decode(raw, CAP, CPU)
            assert got["plain"] == Plain([1])
            assert type(got["tensor"]) is Labelled
        with pytest.raises(Refused, match="Plain is not among torch's safe globals here"):
            _decode.decode(raw, CAP, CPU)
        with pytest.raises(Refused, match="Plain is not a dataclass"):
            _encode.encode(value, CAP)

    def test_not_as_keys_which_would_run_their_hash(self):
        key = torch.ones(1).as_subclass(Labelled)
        with torch.serialization.safe_globals([Labelled]), pytest.raises(Refused, match="the key"):
            _encode.encode({key: 1}, CAP)

    def test_over_the_cap(self):
        with pytest.raises(Over, match="max_bytes=4096"):
            _encode.encode(torch.ones(64, 64).to_sparse(), 4096)

    def test_a_file_that_is_compressed_or_none_is_refused(self):
        raw = _encode.encode(SPARSE, CAP)
        at = len(_format.MAGIC) + 1 + _format.COUNT.size
        packed = io.BytesIO()
        old = zipfile.ZipFile(io.BytesIO(raw[at:]))
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
            for row in old.infolist():
                new.writestr(row.filename, old.read(row))
        for file, why in ((packed.getvalue(), "compressed"), (b"pickle", "not a file of")):
            wrong = raw[: at - _format.COUNT.size] + _format.COUNT.pack(len(file)) + file
            with pytest.raises(Refused, match=why):
                _decode.decode(memoryview(wrong), CAP, CPU)


def test_a_variable_makes_everything_a_pickle():
    program = """
        import functools, torch, torchcomms
        from torchcomms import objcol
        comm = torchcomms.new_comm("gloo", torch.device("cpu"), "pickles")
        value, rank = functools.partial(int, "7", base=8), comm.get_rank()
        everyone = [None] * 2
        objcol.all_gather_object(comm, everyone, value)
        assert [made() for made in everyone] == [7, 7]
        if rank == 0:
            objcol.send_object_list(comm, [value], 1)
        else:
            objcol.recv_object_list(comm, everyone[:1], 0)
        both = [[1]] * 2
        objcol.broadcast_object_list(comm, both, 0)
        assert both[0] is both[1]  # which a pickle keeps, and the other format does not
        comm.finalize()
        """
    for finished in ranks(program, 2, free_port(), 60.0, TORCHCOMMS_SERIALIZATION="pickle"):
        finished.expect_success()
    # Off, nothing is read that runs code.
    refused = ranks(program, 2, free_port(), 60.0, TORCHCOMMS_SERIALIZATION="")
    assert all("UnsafeObject" in finished.err for finished in refused)


class TestWhatIsNotDataIsRefusedWhereItIsSent:
    @pytest.mark.parametrize(
        "value",
        [
            lambda: 1,
            len,
            object(),
            int,
            Plain(1),
            collections.defaultdict(lambda: 1),
            np.array([object()]),
            torch.ones(2).as_subclass(Labelled),
            WithDel("x"),
            {Key("a"): 1},
            {(1, Key("a"))},
            datetime.datetime(2024, 1, 1, tzinfo=type("Z", (datetime.tzinfo,), {})()),
            type("int", (int,), {})(3),
            torch.nn.Linear(1, 1),
            ValueError("x"),
        ],
        ids=lambda v: type(v).__name__,
    )
    def test_refused(self, value):
        with pytest.raises(Refused):
            _encode.encode([value], CAP)

    def test_a_local_class_is_refused_by_its_name(self):
        local = dataclasses.make_dataclass("Local", ["a"])
        with pytest.raises(Refused, match="Local"):
            _encode.encode(local(1), CAP)

    def test_what_is_no_field_is_not_lost(self):
        kept = Kept(2)
        assert through(kept).twice == kept.twice == 4  # what a class keeps is computed anew
        kept.note = "x"
        with pytest.raises(Refused, match="'note', which is not a field"):
            _encode.encode(kept, CAP)
        named = Named(1)
        assert through(named) == named
        named.note = "x"
        with pytest.raises(Refused, match="'note', which is not a field"):
            _encode.encode({"a": [named]}, CAP)

    def test_a_cycle_ends_at_the_depth_limit(self):
        loop: list = []
        loop.append(loop)
        with pytest.raises(Over, match="nested deeper than 128"):
            _encode.encode(loop, CAP)

    def test_a_small_object_that_unfolds_is_over_the_cap_before_it_is_written(self):
        value: list = [0]
        for _ in range(60):
            value = [value, value]
        with pytest.raises(Over, match=f"max_bytes={CAP}"):
            _encode.encode(value, CAP)


class TestHostileBytes:
    def test_a_pickle_is_not_read(self):
        with pytest.raises(Refused, match="magic number"):
            _decode.decode(memoryview(pickle.dumps([1])), CAP, CPU)

    def test_nothing_is_imported(self):
        assert "antigravity" not in sys.modules
        for data in ({}, [], None):
            with pytest.raises(Refused, match="has not imported"):
                read(converted("antigravity:Thing", data))
        assert "antigravity" not in sys.modules

    @pytest.mark.parametrize(
        "name",
        ["os:system", "builtins:eval", "builtins:dict", "os:path", "subprocess:Popen", "os:",
         ":", "", "os", "torch:nn.Module", "collections:OrderedDict", "torchcomms:TorchComm",
         "enum:Enum.__class__", "torch:Tensor", "types:FunctionType"],
    )  # fmt: skip
    @pytest.mark.parametrize("data", [[], {}, ()], ids=repr)
    def test_only_data_classes_can_be_named(self, name, data):
        with pytest.raises(Refused):
            read(converted(name, data))

    @pytest.mark.parametrize(
        ("cls", "trace"),
        [(WithDel, "OBJCOL_DEL_RAN"), (WithProperty, "OBJCOL_SETTER_RAN")],
    )
    def test_code_of_a_class_does_not_run(self, cls, trace):
        os.environ.pop(trace, None)
        with pytest.raises(Refused):
            read(converted(cls, {"path": "x"}))
        assert trace not in os.environ

    @pytest.mark.parametrize(
        ("cls", "data"),
        [
            (range, lambda evil: (evil,)), (range, lambda evil: evil),
            (torch.Size, lambda evil: (evil,)), (datetime.timedelta, lambda evil: (evil,)),
            (complex, lambda evil: (evil,)), (torch.device, lambda evil: (evil,)),
            (collections.deque, lambda evil: ([], evil)), (collections.deque, lambda evil: evil),
            (collections.defaultdict, lambda evil: (evil, {})), (Color, lambda evil: [evil]),
            (Point, lambda evil: evil),
            (pathlib.PosixPath, lambda evil: (evil,)), (fractions.Fraction, lambda evil: (evil, 1)),
            (collections.Counter, lambda evil: (evil, {})), (decimal.Decimal, lambda evil: (evil,)),
            (np.ndarray, lambda evil: (bytearray(1), (evil,), "|u1")),
            (np.dtype, lambda evil: ([("a", evil)],)), (np.dtype, lambda evil: ([evil],)),
        ],
        ids=lambda v: getattr(v, "__name__", ""),
    )  # fmt: skip
    def test_a_conversion_calls_no_method_of_its_data(self, cls, data):
        for evil in (Obliging(1), (Obliging(1),)):
            with pytest.raises(Refused):
                read(converted(cls, data(evil)))
        assert Obliging.calls == []

    @pytest.mark.parametrize("at", range(6))
    def test_a_tensor_calls_no_method_of_its_description(self, at):
        about = ["torch.int8", (1, 1), "cpu", False, False, (0, 1)]
        about[at] = Obliging(1) if at < 3 else (Obliging(0), 1)
        if at not in (3, 4):  # which are compared with True
            with pytest.raises(Refused):
                read(tensor_of(b"x", tuple(about)))
        else:
            assert read(tensor_of(b"x", tuple(about))).shape == (1, 1)
        assert Obliging.calls == []

    def test_the_hash_of_a_class_does_not_run(self):
        os.environ.pop("OBJCOL_HASH_RAN", None)
        key = converted(OddTuple, [1])
        one = bytes((_format.DICT,)) + struct.pack("<Q", 1)
        with pytest.raises(Refused, match="would run"):
            read(one + key + value_bytes(None))
        assert through(OddTuple(1)) == (1,)
        assert "OBJCOL_HASH_RAN" not in os.environ

    @pytest.mark.parametrize(
        "content", [{"name": "a"}, {"name": "a", "sizes": [], "inner": None, "evil": 1}, [], None]
    )
    def test_a_dataclass_has_exactly_its_fields(self, content):
        with pytest.raises(Refused):
            read(converted(Config, content))

    def test_announced_sizes_do_not_allocate(self):
        """Tensors, arrays, texts, lists that claim much more than came."""
        huge = struct.pack("<Q", 1 << 40)
        shape = (1 << 20, 1 << 20)
        tensor = ("torch.float32", shape, "cpu", False, False)
        claims = [
            *(bytes((tag,)) + huge for tag in b"sbBIldtSZOV"),
            tensor_of(b"", tensor),
            converted(np.ndarray, (bytearray(), shape, "<f8")),
            tensor_of(b"abcd", ("torch.float32", (2**62, 4), "cpu", 0, 0)),
        ]
        tracemalloc.start()
        for claim in claims:
            with pytest.raises(Refused):
                read(claim)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1 << 20

    def test_many_small_containers_count_what_they_take(self):
        bomb = (
            bytes((_format.LIST,)) + struct.pack("<Q", 1 << 20) + bytes((_format.NONE,)) * (1 << 20)
        )
        with pytest.raises(Over, match="max_bytes=2097152"):
            read(bomb, cap=1 << 21)

    def test_depth_is_bounded(self):
        one = bytes((_format.LIST,)) + struct.pack("<Q", 1)
        with pytest.raises(Over, match="nested"):
            read(one * 100_000 + bytes((_format.NONE,)))

    @pytest.mark.parametrize(
        ("cls", "data"),
        [
            (collections.deque, None), (collections.deque, ([1], -1)),
            (collections.deque, ({}, None)), (fractions.Fraction, (1, 0)),
            (fractions.Fraction, (10**20000, 3)), (fractions.Fraction, ("1", 2)),
            (datetime.datetime, []), (datetime.datetime, (2024, 13)), (datetime.datetime, (1, 2)),
            (datetime.date, ("2024-13-01",)), (datetime.time, (25, 0, 0, 0, None, 0)),
            (torch.device, (1,)), (torch.device, ("cuda", 1)),
            (torch.device, ("no such",)), (torch.Size, "x"), (torch.Size, (1.5,)),
            (collections.Counter, "abc"), (collections.defaultdict, ("eval", {})),
            (uuid.UUID, (b"1",)), (uuid.UUID, (1 << 128,)), (torch.dtype, ("torch.Tensor",)),
            (torch.dtype, (["torch.int8"],)), (range, (1, 2, 0)), (pathlib.PosixPath, (b"/a",)),
            (decimal.Decimal, ("x",)), ("nothing", None),
        ],
        ids=lambda v: getattr(v, "__name__", None),
    )  # fmt: skip
    def test_conversions_refuse_what_they_do_not_expect(self, cls, data):
        with pytest.raises(Refused):
            read(converted(cls, data))

    @pytest.mark.parametrize(
        "about",
        [
            ("torch.quint8", (4,), "cpu", False, False),
            ("torch.float64", (4,), "cpu", False, False),
            ("torch.float32", [1], "cpu", False, False),
            ("torch.float32", (-1,), "cpu", False, False),
            ("torch.int32", (1,), "cpu", True, False),
            ("torch.float32", (1,)),
            ("torch.int8", (2, 2), "cpu", False, False, (0, 0)),
            ("torch.int8", (2, 2), "cpu", False, False, (0, 1, 2)),
            ("torch.int8", (2, 2), "cpu", False, False, [1, 0]),
            ("torch.int8", (2, 2), "cpu", False, False, ("a", 0)),
            None,
        ],
    )
    def test_descriptions_of_tensors_that_do_not_fit_are_refused(self, about):
        with pytest.raises(Refused):
            read(tensor_of(b"abcd", about))

    @pytest.mark.parametrize(
        "about",
        [("|O", (0,)), ("|S0", (1 << 40,)), ([("a", "|O")], (0,)), ("<f4", (2,)), ("x", (1,))],
    )
    def test_descriptions_of_arrays_that_do_not_fit_are_refused(self, about):
        raw = b"" if about[1] != (2,) else b"abcd"
        with pytest.raises(Refused):
            read(converted(np.ndarray, (bytearray(raw), *reversed(about))))

    def test_a_bool_is_true_or_false_whatever_its_byte(self):
        tensor = read(tensor_of(b"\x02", ("torch.bool", (1,), "cpu", 0, 0)))
        array = read(converted(np.ndarray, (bytearray(b"\x02"), (1,), "|b1")))
        assert tensor.view(torch.uint8).tolist() == [1]
        assert array.view(np.uint8).tolist() == [1]


def random_value(source, depth=0):
    """Any value that can travel; `hashable` ones for keys."""
    simple = [
        lambda: None,
        lambda: source.random() < 0.5,
        lambda: source.randint(-(2**70), 2**70),
        lambda: source.gauss(0, 1e9),
        lambda: "".join(chr(source.randrange(1, 0x3000)) for _ in range(source.randrange(9))),
        lambda: source.randbytes(source.randrange(9)),
        lambda: source.choice([Color.RED, Level.LOW, Access.READ | Access.WRITE, torch.int8]),
        lambda: Point(source.randint(0, 9), source.random()),
        lambda: torch.device("cuda", source.randrange(8)),
    ]
    nested = [
        lambda: [random_value(source, depth + 1) for _ in range(source.randrange(5))],
        lambda: tuple(random_value(source, depth + 1) for _ in range(source.randrange(5))),
        lambda: {source.choice(simple)(): random_value(source, depth + 1) for _ in range(3)},
        lambda: config("c", random_value(source, depth + 1)),
        lambda: collections.deque([random_value(source, depth + 1)]),
    ]
    return source.choice(simple if depth > 4 else simple + nested)()


def test_random_values_come_back():
    for seed in range(400):
        value = random_value(random.Random(seed))
        assert repr(through(value)) == repr(value), f"seed {seed}"


def test_damaged_bytes_give_a_value_or_are_refused_and_nothing_else():
    """Flipped, cut, doubled and inserted bytes of messages with every kind of value in them."""
    messages = [
        _encode.encode([v, random_value(random.Random(i))], CAP) for i, v in enumerate(VALUES)
    ]
    messages += [_encode.encode(t, CAP) for t in TENSORS]
    loaded = set(sys.modules)
    refused = 0
    for seed in range(6000):
        source = random.Random(seed)
        raw = bytearray(source.choice(messages))
        for _ in range(source.randrange(1, 4)):
            at = source.randrange(len(_format.MAGIC), len(raw))
            change = source.randrange(4)
            if change == 0:
                raw[at] = source.randrange(256)
            elif change == 1:
                del raw[at : at + source.randrange(1, 9)]
            elif change == 2:
                raw[at:at] = raw[at : at + source.randrange(1, 40)]
            else:
                raw[at:at] = source.randbytes(source.randrange(1, 9))
            if len(raw) <= len(_format.MAGIC):
                break
        try:
            _decode.decode(memoryview(raw), CAP, CPU)
        except (Refused, Over):
            refused += 1
    assert refused > 2000, "the damage was too small to be noticed"
    assert set(sys.modules) == loaded, "damaged bytes caused an import"


class TestRegisteredTypes:
    @pytest.fixture(autouse=True)
    def _clean(self):
        before = dict(_allowed.by_class), dict(_allowed.by_name)
        yield
        for table, content in zip((_allowed.by_class, _allowed.by_name), before, strict=True):
            table.clear()
            table.update(content)

    def test_a_class_travels_by_its_own_functions(self):
        objcol.register_type(Plain, to_data=lambda p: p.value, from_data=Plain)
        assert through([Plain(3), Plain(Plain("x"))]) == [Plain(3), Plain(Plain("x"))]

    def test_a_local_dataclass_travels_by_a_name(self):
        local = dataclasses.make_dataclass("Local", ["a"])
        objcol.register_type(local, name="tests/local")
        assert through(local([1])) == local([1])

    def test_a_registered_dataclass_can_be_a_key(self):
        objcol.register_type(Key)
        assert through({Key("a"): 1}) == {Key("a"): 1}

    def test_a_later_registration_replaces_an_earlier_one(self):
        objcol.register_type(Plain, name="a", to_data=lambda p: p.value, from_data=Plain)
        objcol.register_type(
            Plain, name="b", to_data=lambda p: [p.value], from_data=lambda d: Plain(d[0])
        )
        raw = _encode.encode(Plain(1), CAP)
        assert b"b" in raw
        assert _decode.decode(memoryview(raw), CAP, CPU) == Plain(1)

    def test_a_class_that_is_no_data_needs_functions(self):
        with pytest.raises(torchcomms.InvalidArgument, match="to_data and from_data"):
            objcol.register_type(Plain)
        with pytest.raises(torchcomms.InvalidArgument, match="both"):
            objcol.register_type(Plain, to_data=lambda p: p.value)
        with pytest.raises(TypeError):
            objcol.register_type(Plain(1))
        with pytest.raises(Refused):
            _encode.encode(Plain(1), CAP)

    def test_a_function_that_raises_on_foreign_data_is_a_refusal(self):
        def strict(data):
            raise KeyError(data)

        objcol.register_type(Plain, to_data=lambda p: p.value, from_data=strict)
        with pytest.raises(Refused, match="KeyError"):
            through(Plain(1))


def test_the_environment_does_not_switch_the_format(monkeypatch):
    monkeypatch.setenv("TORCHCOMMS_SERIALIZATION", "pickle")
    assert _encode.encode([1], CAP).startswith(_format.MAGIC)
    with pytest.raises(Refused):
        _encode.encode(Plain(1), CAP)
