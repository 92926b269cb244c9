"""What the object collectives mean, and that no peer's bytes harm those who read them."""

from __future__ import annotations

import dataclasses
import enum
import math
import os
import pickle
from collections import namedtuple
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from tests.harness.cases import assert_alive, refused

TensorMetadata = namedtuple("TensorMetadata", ["device", "dtype", "size"])


class Phase(enum.Enum):
    PREFILL = 1
    DECODE = 2


@dataclasses.dataclass
class Request:
    tokens: list[int]
    phase: Phase
    weight: torch.Tensor


class Evil:
    """Its pickle touches a file where it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@dataclasses.dataclass
class Counted:
    start: int

    def __post_init__(self):
        self.next = self.start + 1


class Opaque:
    def __init__(self, value):
        self.value = value


def sample(rank):
    """What a program sends: of every size from rank to rank."""
    return {
        "request": Request([rank] * (rank + 1), Phase.DECODE, torch.full((rank, 2), float(rank))),
        "meta": TensorMetadata("cpu", torch.bfloat16, torch.Size([rank, 3])),
        "text": "x" * (1000 * rank),
        rank: (None, 2.5, b"\0", {rank}),
    }


def same(got, want):
    assert repr(got) == repr(want)
    assert type(got) is type(want)
    return True


def gathers_everywhere(comm):
    size = comm.get_size()
    out = ["old"] * size
    objcol().all_gather_object(comm, out, sample(comm.get_rank()))
    assert all(same(got, sample(rank)) for rank, got in enumerate(out))


def objcol():
    from torchcomms import objcol

    return objcol


def gathers_at_every_root(comm):
    rank, size = comm.get_rank(), comm.get_size()
    for root in range(size):
        out = ["old"] * size
        objcol().gather_object(comm, sample(rank), root, out)
        want = [sample(r) for r in range(size)] if rank == root else ["old"] * size
        assert same(out, want)
        objcol().gather_object(comm, rank, root, [None] * size if rank == root else None)


def broadcasts_from_every_root(comm):
    for root in range(comm.get_size()):
        out = [sample(root), root, None] if comm.get_rank() == root else [None, "a", "b"]
        objcol().broadcast_object_list(comm, out, root)
        assert same(out, [sample(root), root, None])


def scatters_from_every_root(comm):
    rank, size = comm.get_rank(), comm.get_size()
    for root in range(size):
        out = [None, "kept"]
        given = [sample(r) for r in range(size)] if rank == root else None
        objcol().scatter_object_list(comm, root, out, given)
        assert same(out, [sample(rank), "kept"])


@pytest.mark.parametrize("function", [gathers_everywhere, broadcasts_from_every_root])
def test_objects_arrive_as_they_were(world, function):
    world.run(function)


@pytest.mark.parametrize("function", [gathers_at_every_root, scatters_from_every_root])
@pytest.mark.worlds(needs=("messages",))
def test_objects_arrive_at_one_rank_or_from_one(world, function):
    world.run(function)


def meets_no_message(comm):
    """A message of the program's is on its way, of the size and dtype of the objects' bytes."""
    from torchcomms.objcol import _encode

    rank, size = comm.get_rank(), comm.get_size()
    raw = _encode.encode("a message", 1 << 20)
    mine = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    got, out = torch.zeros_like(mine), [None] * size
    if rank == 1:
        message = comm.send(mine, 0, True)
    objcol().gather_object(comm, "an object", 0, out if rank == 0 else None)
    if rank == 0:
        comm.recv(got, 1, False)
        assert out == ["an object"] * size
        assert got.equal(mine)
        message = comm.send(mine, 1, True)
    else:
        assert rank != 1 or message.wait() is None
    objcol().scatter_object_list(comm, 0, out, ["an object"] * size if rank == 0 else None)
    assert out[0] == "an object"
    if rank == 1:
        comm.recv(got, 0, False)
        assert got.equal(mine)
    if rank == 0:
        message.wait()


@pytest.mark.worlds(sizes=(2, 3), backends=("gloo", "ctran"))
def test_objects_meet_no_message_of_the_program(world):
    world.run(meets_no_message)


def passes_around_a_ring(comm):
    rank, size = comm.get_rank(), comm.get_size()
    out = [None, None]
    if rank == 0:
        objcol().send_object_list(comm, [sample(0), [0]], 1)
        objcol().recv_object_list(comm, out, size - 1)
        assert same(out, [sample(0), list(range(size))])
        return
    objcol().recv_object_list(comm, out, rank - 1)
    objcol().send_object_list(comm, [out[0], [*out[1], rank]], (rank + 1) % size)


@pytest.mark.worlds(sizes=(2, 3), needs=("messages",))
def test_lists_travel_from_rank_to_rank(world):
    world.run(passes_around_a_ring)


def sends_more_than_a_piece(comm):
    payload = torch.arange(5 << 20, dtype=torch.int32)  # 20 MiB, pieces are 16 MiB
    if comm.get_rank() == 0:
        return objcol().send_object_list(comm, [payload], 1)
    out = [None]
    objcol().recv_object_list(comm, out, 0)
    assert torch.equal(out[0], payload)
    return None


@pytest.mark.worlds(sizes=(2,), needs=("messages",))
def test_a_list_larger_than_a_piece_arrives(world):
    world.run(sends_more_than_a_piece)


# F31: the peer sends what the format would never write.


def hostile(path):
    """Bytes of a malicious peer, by name."""
    from torchcomms.objcol import _format

    one = bytes((_format.LIST,)) + (1).to_bytes(8, "little")
    name = b"os:system"
    return {
        "a pickle": pickle.dumps(Evil(path)),
        "a pickle behind the mark": _format.MAGIC + pickle.dumps(Evil(path)),
        "a call": _format.MAGIC + b"O" + len(name).to_bytes(8, "little") + name + b"N",
        "depth": _format.MAGIC + one * 10_000 + b"N",
        "a huge number": _format.MAGIC + b"I" + (1 << 60).to_bytes(8, "little") + b"\1",
        "a huge list": _format.MAGIC + b"l" + (1 << 60).to_bytes(8, "little") + b"N",
        "a cut object": _format.MAGIC + b"s" + (9).to_bytes(8, "little") + b"abc",
        "nothing": b"",
    }


def with_bytes(raw, state=None):
    """Makes this rank's next messages consist of `raw`. Returns what undoes it."""
    from torchcomms.objcol import _exchange

    originals = {name: getattr(_exchange, name) for name in ("pack", "pack_for_any")}
    told = _exchange.DATA if state is None else state
    for name in originals:
        setattr(_exchange, name, lambda call, value: _exchange.Message(told, raw))
    return lambda: [setattr(_exchange, *original) for original in originals.items()]


def one_of_each(comm, evil_rank):
    """Each collective, `evil_rank` being the one that is read; by name."""
    rank, size = comm.get_rank(), comm.get_size()
    other = (evil_rank + 1) % size

    def pair():
        if rank == evil_rank:
            objcol().send_object_list(comm, [1], other)
        elif rank == other:
            objcol().recv_object_list(comm, [None], evil_rank)

    return {
        "all_gather": (lambda: objcol().all_gather_object(comm, [None] * size, 1), range(size)),
        "gather": (
            lambda: objcol().gather_object(
                comm, 1, other, [None] * size if rank == other else None
            ),
            [other],
        ),
        "broadcast": (
            lambda: objcol().broadcast_object_list(comm, [1], evil_rank),
            [r for r in range(size) if r != evil_rank],
        ),
        "scatter": (
            lambda: objcol().scatter_object_list(
                comm, evil_rank, [None], [1] * size if rank == evil_rank else None
            ),
            range(size),
        ),
        "send": (pair, [other]),
    }


def reads_nothing_of_a_hostile_peer(comm, folder):
    import torchcomms

    rank, evil_rank = comm.get_rank(), comm.get_size() - 1
    marker = os.path.join(folder, f"made_{comm.get_backend()}")
    for name, (call, readers) in one_of_each(comm, evil_rank).items():
        for kind, raw in hostile(marker).items():
            undo = with_bytes(raw) if rank == evil_rank else lambda: None
            try:
                if rank in readers:
                    expected = torchcomms.TooLarge if kind == "depth" else torchcomms.UnsafeObject
                    with refused(expected, "rank"):
                        call()
                else:
                    call()
            except Exception as error:
                raise AssertionError(f"{name}, {kind}: {error!r}") from error
            finally:
                undo()
            assert_alive(comm)
    assert not os.path.exists(marker)


@pytest.mark.worlds(sizes=(3,))
def test_hostile_bytes_are_refused_where_they_are_read_and_the_communicator_goes_on(
    world, tmp_path
):
    world.run(reads_nothing_of_a_hostile_peer, str(tmp_path))


def does_not_read_a_pickle_that_was_announced_late(comm, folder):
    """A peer that says "data" when all agree, and "pickle" beside its bytes."""
    import torchcomms
    from torchcomms.objcol import _exchange

    marker = os.path.join(folder, f"late_{comm.get_backend()}")
    if comm.get_rank() == 1:
        original, numbers = _exchange.numbers, [_exchange.PICKLE, len(pickle.dumps(Evil(marker)))]
        undo = with_bytes(pickle.dumps(Evil(marker)))
        _exchange.numbers = lambda call, values: original(call, numbers if any(values) else values)
    with refused(torchcomms.UnsafeObject):
        objcol().all_gather_object(comm, [None, None], 1)
    if comm.get_rank() == 1:
        _exchange.numbers = original
        undo()
    assert not os.path.exists(marker)
    assert_alive(comm)


@pytest.mark.worlds(sizes=(2,))
def test_a_peer_cannot_announce_a_pickle_late(world, tmp_path):
    world.run(does_not_read_a_pickle_that_was_announced_late, str(tmp_path))


# F32: sizes.


def refuses_the_oversized_everywhere(comm):
    import torchcomms

    rank, size = comm.get_rank(), comm.get_size()
    big = b"x" * 5000
    limit = {"max_bytes": 4096}
    many = [None] * size
    calls = {
        "all_gather": lambda **k: objcol().all_gather_object(
            comm, many, big if rank == 0 else b"", **k
        ),
        "gather": lambda **k: objcol().gather_object(
            comm, big, 0, many if rank == 0 else None, **k
        ),
        "broadcast": lambda **k: objcol().broadcast_object_list(comm, [big], 0, **k),
        "scatter": lambda **k: objcol().scatter_object_list(
            comm, 0, [None], [b""] * (size - 1) + [big] if rank == 0 else None, **k
        ),
    }
    for call in calls.values():
        for caps in (limit, limit if rank == size - 1 else {}):  # everyone's cap, or the last one's
            with refused(torchcomms.TooLarge, "max_bytes", "4096"):
                call(**caps)
            assert_alive(comm)
        call()
    assert many == ([big] * size if rank == 0 else [big, *[b""] * (size - 1)])


@pytest.mark.worlds(sizes=(1, 3))
def test_an_object_over_the_smallest_cap_is_too_large_on_all_ranks(world):
    world.run(refuses_the_oversized_everywhere)


def memory_kib(field):
    (line,) = [s for s in Path("/proc/self/status").read_text().splitlines() if s.startswith(field)]
    return int(line.split()[1])


def takes_a_refused_list_off_the_wire(comm):
    import torchcomms

    big = torch.ones(96 << 20, dtype=torch.uint8) if comm.get_rank() == 0 else None
    if comm.get_rank() == 0:
        objcol().send_object_list(comm, [big], 1)
        with refused(torchcomms.TooLarge, "max_bytes=100"):
            objcol().send_object_list(comm, [big], 1, max_bytes=100)
        objcol().send_object_list(comm, [1, 2], 1)
        objcol().send_object_list(comm, ["next"], 1)
    else:
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        before = memory_kib("VmRSS")
        with refused(torchcomms.TooLarge, f"max_bytes={1 << 20}"):
            objcol().recv_object_list(comm, [None], 0, max_bytes=1 << 20)
        grown = memory_kib("VmHWM") - before
        assert grown < 65 << 10, f"{grown} KiB more for a list that was refused"
        with refused(torchcomms.TooLarge):
            objcol().recv_object_list(comm, [None], 0)
        with refused(torchcomms.Mismatch, "2 objects"):
            objcol().recv_object_list(comm, [None], 0)
        out = [None]
        objcol().recv_object_list(comm, out, 0)
        assert out == ["next"]
    assert_alive(comm)


@pytest.mark.worlds(sizes=(2,), needs=("messages",))
def test_a_refused_list_does_not_disturb_the_next(world):
    world.run(takes_a_refused_list_off_the_wire)


# Pickle, by the argument.


def pickles_only_when_all_say_so(comm):
    import torchcomms

    rank, size = comm.get_rank(), comm.get_size()
    mine = Opaque(rank) if rank == 0 else rank
    out = [None] * size
    with refused(torchcomms.UnsafeObject, "Opaque" if rank == 0 else "not data"):
        objcol().all_gather_object(comm, out, mine)
    assert out == [None] * size
    if size > 1:
        with refused(torchcomms.UnsafeObject, "weights_only=True" if rank == 0 else "not data"):
            objcol().all_gather_object(comm, out, mine, weights_only=rank != 0)
        data = [{"rank": rank}] * 2  # goes as such where one rank reads no pickle
        objcol().all_gather_object(comm, out, data, weights_only=rank != 0)
        assert out == [[{"rank": r}] * 2 for r in range(size)]
    objcol().all_gather_object(comm, out, mine, weights_only=False)
    assert (out[0].value, out[1:]) == (0, list(range(1, size)))
    one = [mine] if rank == 0 else [None]
    objcol().broadcast_object_list(comm, one, 0, weights_only=False)
    assert one[0].value == 0
    assert_alive(comm)


def keeps_what_pickle_keeps(comm):
    import torchcomms

    rank, size = comm.get_rank(), comm.get_size()
    weight = torch.arange(6.0).reshape(2, 3).t()
    cyclic = {"weight": weight, "tied": weight, "part": weight[:2], "counted": Counted(3)}
    cyclic["self"] = cyclic
    box = [cyclic] if rank == 0 else [None]
    objcol().broadcast_object_list(comm, box, 0, weights_only=False)
    everyone = [None] * size
    objcol().all_gather_object(comm, everyone, cyclic, weights_only=False)
    for got in (*box, *everyone):
        assert got["self"] is got
        assert got["tied"] is got["weight"]
        assert got["part"].data_ptr() == got["weight"].data_ptr()
        assert torch.equal(got["weight"], weight)
        assert got["weight"].stride() == (1, 3)
        assert (got["counted"].start, got["counted"].next) == (3, 4)
    with refused(torchcomms.UnsafeObject, "next" if rank == 0 else "not data"):
        objcol().broadcast_object_list(comm, [Counted(1) if rank == 0 else None], 0)
    assert_alive(comm)


@pytest.mark.worlds(sizes=(2,))
def test_an_object_arrives_as_pickle_has_it_where_all_say_so(world):
    world.run(keeps_what_pickle_keeps)


@pytest.mark.worlds(sizes=(1, 2))
def test_a_pickle_is_read_only_by_calls_that_say_so(world):
    world.run(pickles_only_when_all_say_so)


def sends_a_pickle_that_the_receiver_judges(comm):
    import torchcomms

    if comm.get_rank() == 0:
        objcol().send_object_list(comm, [Opaque(1)], 1)
        objcol().send_object_list(comm, [Opaque(2)], 1)
        return
    out = [None]
    with refused(torchcomms.UnsafeObject, "pickle", "weights_only=False"):
        objcol().recv_object_list(comm, out, 0)
    objcol().recv_object_list(comm, out, 0, weights_only=False)
    assert out[0].value == 2


@pytest.mark.worlds(sizes=(2,), needs=("messages",))
def test_the_receiver_of_a_list_decides_about_pickles(world):
    world.run(sends_a_pickle_that_the_receiver_judges)


# Wrong calls.


def refuses_wrong_calls(comm):
    import torchcomms

    size, rank = comm.get_size(), comm.get_rank()
    module = objcol()
    invalid = torchcomms.InvalidArgument
    with refused(invalid, "object_list", str(size)):
        module.all_gather_object(comm, [None] * (size + 1), 1)
    with refused(TypeError, "object_list"):
        module.all_gather_object(comm, (None,) * size, 1)
    for root in (-1, size):
        with refused(invalid, f"root={root}"):
            module.gather_object(comm, 1, root, [None] * size)
    with refused(AssertionError, "object_gather_list"):
        module.gather_object(comm, 1, rank)
    with refused(ValueError, "non-empty"):
        module.scatter_object_list(comm, rank, [], [1] * size)
    with refused(ValueError, "scatter_object_input_list"):
        module.scatter_object_list(comm, rank, [None])
    with refused(ValueError, "scatter_object_input_list"):
        module.scatter_object_list(comm, rank, [None], [1] * (size + 1))
    with refused(invalid, "object_list"):
        module.broadcast_object_list(comm, [], 0)
    with refused(invalid, f"dst={size}"):
        module.send_object_list(comm, [1], size)
    with refused(invalid, "src=-1"):
        module.recv_object_list(comm, [1], -1)
    with refused(invalid, "max_bytes=0"):
        module.broadcast_object_list(comm, [1], 0, max_bytes=0)
    for wrong in ({"timeout": 3}, {"timeout": "soon"}, {"max_bytes": "many"}):
        with refused(TypeError, "all_gather_object", next(iter(wrong))):
            module.all_gather_object(comm, [None] * size, 1, **wrong)
    with refused(TypeError, "root", "int"):
        module.broadcast_object_list(comm, [1], "first")
    with pytest.raises(invalid) as raised:
        module.all_gather_object(comm, [], 1)
    about = (raised.value.op, raised.value.comm, raised.value.rank)
    assert about == ("all_gather_object", comm.get_name(), rank)
    assert_alive(comm)


@pytest.mark.worlds(sizes=(1, 2))
def test_wrong_calls_raise_and_the_communicator_goes_on(world):
    world.run(refuses_wrong_calls)


def hears_of_another_ranks_wrong_argument(comm):
    """Rank 1 calls each wrongly, and the others must not wait for what it does not send."""
    import torchcomms

    module, size, rank = objcol(), comm.get_size(), comm.get_rank()
    wrong = rank == 1
    slots = [None] * (size + wrong)
    at_root = [None] * size if rank == 1 else None
    calls = [
        (lambda: module.all_gather_object(comm, slots, rank), "object_list"),
        (lambda: module.all_gather_object(comm, [None] * size, 1, max_bytes=-wrong or 900), "-1"),
        (lambda: module.all_gather_object(comm, slots[:size], 1, -1.0 if wrong else None), "-1.0"),
        (lambda: module.broadcast_object_list(comm, [1], 0, math.nan if wrong else 9.0), "nan"),
        (lambda: module.gather_object(comm, 1, 2, slots[:size],
                                      timedelta(seconds=-2) if wrong else None), "timeout"),
        (lambda: module.gather_object(comm, rank, 1), "object_gather_list"),
        (lambda: module.gather_object(comm, rank, -1 if wrong else 0, slots[:size]), "root=-1"),
        (lambda: module.broadcast_object_list(comm, [] if wrong else [1], 0), "object_list"),
        (lambda: module.scatter_object_list(comm, 0, () if wrong else [None], at_root or slots),
         "scatter_object_output_list"),
    ]  # fmt: skip
    for call, named in calls:
        if wrong:
            with refused(torchcomms.InvalidArgument, named):
                call()
            continue
        with pytest.raises(torchcomms.Mismatch, match="wrong argument") as raised:
            call()
        assert raised.value.peer == 1
    assert_alive(comm)


@pytest.mark.worlds(sizes=(3,))
def test_a_wrong_argument_is_told_to_those_who_would_wait(world):
    world.run(hears_of_another_ranks_wrong_argument)


def hears_of_a_senders_wrong_argument(comm):
    import torchcomms

    if comm.get_rank() == 0:
        wrong = torchcomms.InvalidArgument
        for objects, kind in (([], wrong), ((1,), TypeError)):
            with refused(kind, "object_list"):
                objcol().send_object_list(comm, objects, 1)
        with refused(wrong, "send_object_list", "timeout is -1.0", "0 or more"):
            objcol().send_object_list(comm, [1], 1, timeout=-1.0)
        with refused(wrong, "max_bytes=0"):
            objcol().send_object_list(comm, [1], 1, max_bytes=0)
    else:
        with refused(torchcomms.InvalidArgument, "recv_object_list", "timeout", "0 or more"):
            objcol().recv_object_list(comm, [None], 0, timeout=timedelta(seconds=-1))
        for _ in range(4):
            with pytest.raises(torchcomms.Mismatch, match="wrong argument") as raised:
                objcol().recv_object_list(comm, [None], 0)
            assert raised.value.peer == 0
    assert_alive(comm)


@pytest.mark.worlds(sizes=(2,), needs=("messages",))
def test_a_receiver_hears_of_its_senders_wrong_argument(world):
    world.run(hears_of_a_senders_wrong_argument)


def names_the_argument_where_nobody_else_comes(context):
    import torchcomms

    comm = context.new_comm()
    if context.rank == 0:
        with pytest.raises(torchcomms.InvalidArgument, match="object_list") as raised:
            objcol().all_gather_object(comm, [], 1, timeout=0.2)
        assert isinstance(raised.value.__cause__, torchcomms.CommTimeout)
    context.meet("after the call")


@pytest.mark.worlds(sizes=(2,))
def test_a_wrong_argument_is_raised_where_nobody_else_makes_the_call(world):
    world.run_context(names_the_argument_where_nobody_else_comes)


def notices_lists_of_different_lengths(comm):
    import torchcomms

    with refused(torchcomms.Mismatch, "1 to 2"):
        objcol().broadcast_object_list(comm, [0] * (1 + comm.get_rank()), 0)
    assert_alive(comm)


@pytest.mark.worlds(sizes=(2,))
def test_lists_of_different_lengths_are_a_mismatch_on_all_ranks(world):
    world.run(notices_lists_of_different_lengths)


def passes_the_timeout_on(context):
    import torchcomms

    comm = context.new_comm()
    if context.rank == 0:
        with refused(torchcomms.CommTimeout):
            objcol().all_gather_object(comm, [None, None], 1, timeout=0.2)
    context.meet("after the timeout")


@pytest.mark.worlds(sizes=(2,))
def test_the_timeout_limits_the_wait_for_a_rank_that_does_not_come(world):
    world.run_context(passes_the_timeout_on)
