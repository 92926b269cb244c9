"""Defines the operations of a step: a pure function of the terms and the number of the step.

Every rank computes the same step by itself. This module uses no tensor, clock or process.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace

from torchcomms.soak.lives import SLOTS, lives

# The dtypes, with their bytes per element.
DTYPES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "bool": 1, "complex64": 8, "complex128": 16, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
COMPLEX = ("complex64", "complex128")
# The dtypes that vendor libraries support.
COMMON = (
    "float64", "float32", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "uint32",
    "uint64", "bool",
)  # fmt: skip
BITWISE = ("BAND", "BOR", "BXOR")

REDUCING = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_v", "reduce_scatter_single")
MOVING = (
    "broadcast", "all_gather", "all_gather_v", "all_gather_single", "all_to_all",
    "all_to_all_single", "all_to_all_v_single", "scatter", "gather", "gather_single",
)  # fmt: skip
# "send_recv": a message from one rank to another. "ring": from every rank to the next one. "batch":
# a batch of messages.
MESSAGES = ("send_recv", "ring", "batch")
COLLECTIVES = (*REDUCING, *MOVING, "barrier")
OPERATIONS = (*COLLECTIVES, *MESSAGES)
_IN_PLACE = ("all_gather_single",)  # in addition to operations with a single tensor
_ROOTED = ("broadcast", "reduce", "scatter", "gather", "gather_single")

# A sample repeats after this many elements. The numbers are primes, so that misplaced elements
# differ.
_PERIODS = (127, 251, 509, 1021, 2039)
_MOST_OPERATIONS = 12
_WIDEST_US = 20_000


@dataclass(frozen=True)
class Traits:
    """The properties of a backend that the plan depends on, equal on all ranks."""

    reductions: tuple[str, ...]
    dtypes: tuple[str, ...]  # the dtypes that it reduces
    self_messages: bool  # in batches
    # Asynchronous operations of different communicators, and the two sides of messages, may be
    # called in any order.
    free_order: bool
    streams: int
    graphs: bool
    same_bits: bool  # all ranks get the same bits of sums
    # For each operation the hints of single calls, and their values.
    hint_choices: tuple[tuple[str, tuple[tuple[str, tuple[str, ...]], ...]], ...] = ()
    graphs_alone: bool = True  # communicators of one rank can be captured, too


@dataclass(frozen=True)
class Terms:
    """All inputs of a plan."""

    seed: int
    ranks: int
    most_bytes: int  # of a tensor
    traits: Traits


@dataclass(frozen=True)
class Message:
    """A message between two ranks of a communicator, if it has both."""

    src: int
    dst: int
    numel: int


@dataclass(frozen=True)
class Operation:
    """A call on every rank, in the communicators of a slot. Smaller groups use a part of it."""

    index: int  # index in its step
    name: str
    slot: int
    dtype: str = "float32"
    numel: int = 0  # elements of a rank's part
    reduction: str = ""  # PREMUL_NUMBER and PREMUL_TENSOR mean PREMUL_SUM
    root: int = 0  # modulo the size of the group
    # The elements of each rank's part (*_v), or the rows from rank i to rank j
    # (all_to_all_v_single).
    counts: tuple[tuple[int, ...], ...] = ()
    width: int = 1  # elements of a row
    messages: tuple[Message, ...] = ()
    async_op: bool = False
    offset: int = 0  # elements between an aligned address and the tensors
    in_place: bool = False
    drops: bool = False  # the input tensors are dropped right after the call
    stream: int = 0
    wait_stream: int = 0
    period: int = 127
    hints: tuple[tuple[str, str], ...] = ()

    def root_of(self, size: int) -> int:
        return self.root % size


@dataclass(frozen=True)
class Straggler:
    """A rank that is late for an operation."""

    rank: int
    before: int  # index of the operation
    kind: str  # "host": it sleeps; "device": it computes
    time_us: int


@dataclass(frozen=True)
class Step:
    """Operations that are in flight together, and the events around them."""

    number: int
    operations: tuple[Operation, ...]
    orders: tuple[tuple[int, ...], ...]  # the order of each rank's calls
    waits: tuple[int, ...]  # the order of waiting and checking
    stragglers: tuple[Straggler, ...]
    replays: int  # replays of a graph of the operations; 0: no graph
    compares: bool  # ranks compare the bits of their sums


def step(terms: Terms, number: int) -> Step:
    """The step with this number."""
    chance = random.Random(f"{terms.seed} step {number}")
    traits = terms.traits
    replays = chance.randint(2, 4) if traits.graphs and chance.random() < 0.04 else 0
    # The calls are in any order, so they must be asynchronous.
    mixed = traits.free_order and chance.random() < 0.3
    count = min(1 + int(chance.expovariate(0.4)), _MOST_OPERATIONS)
    budget = terms.most_bytes
    operations = []
    for index in range(count):
        operation, took = _operation(chance, terms, index, budget, mixed)
        operations.append(operation)
        budget -= took
    if replays and not traits.graphs_alone and _is_one_alone(terms, number, operations):
        replays = 0
    waits = chance.sample(range(count), count) if chance.random() < 0.7 else range(count)
    stragglers = _stragglers(chance, terms.ranks, count) if not replays else ()
    return Step(
        number,
        tuple(operations),
        tuple(_order(terms, number, rank, operations, mixed) for rank in range(terms.ranks)),
        tuple(waits),
        stragglers,
        replays,
        compares=traits.same_bits and chance.random() < 0.2,
    )


def _is_one_alone(terms: Terms, number: int, operations: list[Operation]) -> bool:
    """Returns: whether a used communicator has a single rank."""
    alive = lives(terms.seed, terms.ranks, number)
    groups = (group for called in operations for group in alive[called.slot].groups)
    return any(len(group) == 1 for group in groups)


def _operation(
    chance: random.Random, terms: Terms, index: int, budget: int, mixed: bool
) -> tuple[Operation, int]:
    """Returns an operation, and the bytes of its largest tensor."""
    name, ranks, traits = chance.choice(OPERATIONS), terms.ranks, terms.traits
    reduction = ""
    dtypes = tuple(DTYPES)
    if name in REDUCING:
        reduction = chance.choice(traits.reductions)
        dtypes = tuple(d for d in traits.dtypes if is_defined(reduction, d))
    dtype = chance.choice(dtypes)
    parts = ranks if name not in ("all_reduce", "reduce", "broadcast") else 1
    most = max(budget // (DTYPES[dtype] * parts), 1)
    numel = _numel(chance, most)
    called = Operation(
        index,
        name,
        slot=chance.randrange(SLOTS),
        async_op=mixed or chance.random() < 0.6,
        stream=chance.randrange(traits.streams),
        wait_stream=chance.randrange(traits.streams),
    )
    root, offset = chance.randrange(ranks), chance.choice((0, 0, 1, 2, 3, 5, 8))
    drops, in_place = chance.random() < 0.2, chance.random() < 0.3
    period = chance.choice(_PERIODS)
    called = replace(called, hints=_hints(chance, name, traits))
    if name == "barrier":
        return called, 0
    filled = replace(
        called,
        dtype=dtype,
        numel=numel,
        reduction=reduction,
        root=root if name in _ROOTED else 0,
        counts=_counts(chance, name, ranks, numel),
        width=chance.choice((1, 1, 3, 16)) if name == "all_to_all_v_single" else 1,
        messages=_messages(chance, name, ranks, numel, traits.self_messages),
        offset=offset,
        in_place=in_place and name in _IN_PLACE,
        drops=drops,
        period=period,
    )
    return filled, numel * DTYPES[dtype] * parts


def _hints(chance: random.Random, name: str, traits: Traits) -> tuple[tuple[str, str], ...]:
    return tuple(
        (key, chance.choice(values))
        for key, values in dict(traits.hint_choices).get(name, ())
        if chance.random() < 0.4
    )


def is_defined(reduction: str, dtype: str) -> bool:
    """Returns: whether the API defines `reduction` for `dtype`."""
    if dtype in FLOATS:
        return reduction not in BITWISE
    if dtype in COMPLEX:
        return reduction in ("SUM", "PRODUCT", "AVG", "PREMUL_NUMBER")
    if dtype == "bool":
        return not reduction.startswith("PREMUL")
    return reduction != "PREMUL_NUMBER"


def _numel(chance: random.Random, most: int) -> int:
    """0, 1, or spread over orders of magnitude. Few numbers are large, and most are odd."""
    kind = chance.random()
    if kind < 0.05:
        return 0
    if kind < 0.12:
        return 1
    top = min(most, (1 << 12) if kind < 0.75 else (1 << 18) if kind < 0.97 else most)
    power = chance.uniform(0, top.bit_length() - 1)
    numel = 1 << round(power) if chance.random() < 0.3 else int(2**power)
    numel += chance.choice((-1, 0, 0, 1))
    return max(0, min(numel, most))


def _counts(
    chance: random.Random, name: str, ranks: int, numel: int
) -> tuple[tuple[int, ...], ...]:
    def row() -> tuple[int, ...]:
        return tuple(chance.choice((0, numel, chance.randint(0, numel))) for _ in range(ranks))

    if name in ("all_gather_v", "reduce_scatter_v"):
        return (row(),)
    if name == "all_to_all_v_single":
        numel = -(-numel // 16)  # the widest row has 16 elements
        return tuple(row() for _ in range(ranks))
    return ()


def _messages(
    chance: random.Random, name: str, ranks: int, numel: int, to_oneself: bool
) -> tuple[Message, ...]:
    if name == "ring":
        return tuple(Message(r, (r + 1) % ranks, numel) for r in range(ranks))
    if name not in ("send_recv", "batch"):
        return ()
    pairs = [
        pair
        for pair in itertools.product(range(ranks), range(ranks))
        if pair[0] != pair[1] or (to_oneself and name == "batch")
    ]
    if not pairs:
        return ()
    count = 1 if name == "send_recv" else chance.randint(1, 2 * ranks)
    sizes = [numel if i == 0 else chance.randint(0, min(numel, 1 << 12)) for i in range(count)]
    return tuple(Message(*chance.choice(pairs), size) for size in sizes)


def _order(
    terms: Terms, number: int, rank: int, operations: list[Operation], mixed: bool
) -> tuple[int, ...]:
    """The order of calls on a rank: equal on all ranks within one communicator, else random."""
    indices = tuple(range(len(operations)))
    if not mixed:
        return indices
    chance = random.Random(f"{terms.seed} order {number} {rank}")
    queues = [[op.index for op in operations if op.slot == slot] for slot in range(SLOTS)]
    order = []
    while any(queues):
        order.append(chance.choice([queue for queue in queues if queue]).pop(0))
    return tuple(order)


def _stragglers(chance: random.Random, ranks: int, count: int) -> tuple[Straggler, ...]:
    found = []
    while chance.random() < 0.15:
        time_us = int(_WIDEST_US ** chance.random())
        kind = chance.choice(("host", "device"))
        found.append(Straggler(chance.randrange(ranks), chance.randrange(count), kind, time_us))
    return tuple(found)
