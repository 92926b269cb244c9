"""`torchcomms trace`: which communicators are one, which are history, and who is still to come."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from torchcomms.analyze import analyze, read, to_text

from tests.harness import rings
from tests.harness.rings import Comm, Op, made_by, worlds


def test_members_that_no_file_lists_say_themselves_where_they_are(tmp_path):
    for rank, at in ((0, 1), (1, 0)):
        comm = Comm("recovers", at, (), entered=1 - rank, membership=7, size=2)
        rings.write(tmp_path, rank, [comm], [Op("barrier", 1, 1)] if rank == 0 else [])
    dumps = read([tmp_path])
    assert dumps[0].members == {"recovers#7": (1, 0)}
    verdict = analyze(dumps)
    assert verdict.culprits == (1,)
    assert "rank 1 has not entered barrier 1 of 'recovers#7'" in verdict.summary


def test_communicators_of_one_name_are_told_apart_by_their_identity(tmp_path):
    """Rank 0 has two pairs, of whose other ranks each has one."""
    pairs = {0: [("pair", (0, 1), 7), ("pair", (0, 2), 8)], 1: [("pair", (0, 1), 7)],
             2: [("pair", (0, 2), 8)]}  # fmt: skip
    for rank, made in pairs.items():
        comms = [
            Comm(name, members.index(rank), members, entered=int(rank == 2), finished=0,
                 identity=identity)
            for name, members, identity in made
        ]  # fmt: skip
        rings.write(tmp_path, rank, comms, [Op("barrier", 1, 3)] if rank == 2 else [])
    verdict = analyze(read([tmp_path]))
    assert verdict.culprits == (0,)
    assert "rank 0 has not entered barrier 1 of 'pair (2)'" in verdict.summary
    differs = [Op("broadcast", 1, 3, None, 8, "float32", None, 0, comm=1)]
    comms = [Comm("pair", 0, (0, 1), identity=7), Comm("pair", 0, (0, 2), entered=1, identity=8)]
    rings.write(tmp_path, 0, comms, differs)
    verdict = analyze(read([tmp_path]))
    assert "operation 1 of 'pair (2)' differs" in verdict.summary
    assert verdict.culprits == (0, 2)


def test_a_number_of_a_name_is_that_of_the_rank_that_has_most_of_them(tmp_path):
    """Rank 0 has only the last of three that rank 1 has: the others were pushed out."""
    first = [Comm("part", 1, (0, 1), identity=n) for n in (5, 6)]
    rings.write(tmp_path, 1, [*first, Comm("part", 1, (0, 1), identity=7)], [])
    last = Comm("part", 0, (0, 1), entered=1, identity=7)
    rings.write(tmp_path, 0, [last, made_by("part", 0, 2)], [Op("barrier", 1, 3)])
    told = [finding.text for finding in analyze(read([tmp_path])).findings]
    assert told == [
        "rank 1 has not entered new_comm of 'part (4)'; rank 0 waits in it",
        "rank 1 has not entered barrier 1 of 'part (3)' (no operation before it is recorded);"
        " rank 0 waits in it",
    ]


def test_numbers_are_in_the_order_of_a_rank_that_has_both(tmp_path):
    """Rank 2 has written down late what rank 1 had before its pair with rank 3."""
    pairs = {1: [(1, 2), (1, 3)], 2: [(1, 2)], 3: [(1, 3)]}
    for rank, made in pairs.items():
        others = [Comm("other", 0, (rank,), identity=10 * rank + n) for n in range(3)]
        comms = [
            Comm("pair", members.index(rank), members, identity=members[1],
                 entered=int(rank == 3), finished=0)
            for members in made
        ]  # fmt: skip
        ring = [*others, *comms] if rank == 2 else comms
        ops = [Op("barrier", 1, 3)] if rank == 3 else []
        rings.write(tmp_path, rank, ring, ops)
    assert "rank 1 has not entered barrier 1 of 'pair (2)'" in analyze(read([tmp_path])).summary


def test_memberships_of_one_uuid_whose_members_no_file_lists_are_two(tmp_path):
    for rank in range(4):
        comm = Comm("ft", rank // 2, (), entered=int(rank == 0), finished=0, membership=1, size=2,
                    identity=7 + rank % 2)  # fmt: skip
        rings.write(tmp_path, rank, [comm], [Op("barrier", 1, 1)] if rank == 0 else [])
    dumps = read([tmp_path])
    assert [dump.members["ft#1"] for dump in dumps] == [(0, 2), (1, 3), (0, 2), (1, 3)]
    assert analyze(dumps).culprits == (2,)
    for rank in range(4):
        inside = Comm("ft", rank // 2, (), membership=1, size=2, being_made=True,
                      identity=7 + rank % 2)  # fmt: skip
        there = Comm("ft", rank // 2, (), membership=1, size=2, identity=7 + rank % 2)
        rings.write(tmp_path, rank, [inside if rank == 0 else there], [])
    assert "rank 0 has entered reconfigure of 'ft#1' and not finished it" in (
        analyze(read([tmp_path])).summary
    )


def test_who_has_a_communicator_with_the_youngest_is_of_its_job_whatever_the_clocks_say(tmp_path):
    """Rank 3's host is ten seconds ahead, and has its files in a folder of its own; of an earlier
    job there are some more."""
    for rank in range(4):
        late = rank == 3
        comm = Comm("world", rank, range(4), entered=2 - late, identity=7)
        ops = [Op("barrier", 1, 1, 2), *([] if late else [Op("all_reduce", 2, 3, None, 8)])]
        folder = tmp_path / ("node1" if late else "node0")
        rings.write(folder, rank, [comm], ops, began_ms=10_000 * late)
        old = Comm("world", rank, range(5), entered=1, identity=6)
        rings.write(tmp_path / "node1", rank, [old], [Op("barrier", 1, 1)], pid=10 + rank)
    rings.write(tmp_path / "node1", 4, [Comm("world", 4, range(5), identity=6)], [], pid=14)
    dumps = read([tmp_path])
    assert [dump.process.pid for dump in dumps] == [1000, 1001, 1002, 1003]
    verdict = analyze(dumps)
    assert verdict.culprits == (3,)
    assert "ranks 0-2 wait in it" in verdict.summary


def recovered(folder: Path, late: int | None, state: Sequence[Op] = ()) -> None:
    """Rank 2 left 'world#1' in the middle, the others went on as 'world#2', where `late` is behind.
    `state`: what rank 2 is in."""
    for rank in range(2):
        comms = [
            Comm("world", rank, (), 1, membership=1, size=3, identity=7, closed=True),
            Comm("world", rank, (), 1 + (late == 1 - rank), 1, membership=2, size=2, identity=8),
        ]
        ops = [
            Op("all_reduce", 1, 1, 2, 8, "float32", "SUM", error="CommTimeout"),
            Op("all_reduce", 1, 3, 4, 8, "float32", "SUM", comm=1),
        ]
        if late is not None and rank != late:
            ops.append(Op("barrier", 2, 5, comm=1))
        rings.write(folder, rank, comms, ops)
    left = Comm("world", 2, (), entered=len(state), finished=0, membership=1, size=3, identity=7)
    rings.write(folder, 2, [left], state)


def test_after_a_reconfigure_the_verdict_is_about_what_is_current(tmp_path):
    recovered(tmp_path, late=None)
    verdict = analyze(read([tmp_path]))
    assert verdict.ok, to_text(verdict)
    assert (verdict.missing, verdict.last[0]) == ((), "finished all_reduce 1 of 'world#2'")
    recovered(tmp_path, late=1)
    verdict = analyze(read([tmp_path]))
    assert verdict.culprits == (1,)
    assert [finding.comm for finding in verdict.findings] == ["world#2"]
    assert verdict.last[0] == "in barrier 2 of 'world#2'"


def test_a_reconfigure_that_failed_leaves_current_what_was_before(tmp_path):
    failed = Op("all_reduce", 1, 1, 2, 8, "float32", "SUM", error="CommTimeout")
    for rank in range(2):
        left = Comm("world", rank, (), 1, membership=1, size=2, identity=7, closed=True)
        rings.write(tmp_path, rank, [left, Comm("world", -1, (), size=-1)], [failed])
    assert analyze(read([tmp_path])).summary == (
        "all_reduce 1 of 'world#1' failed on ranks 0-1 with CommTimeout"
    )


def test_a_rank_that_came_when_the_others_had_given_up_is_the_one(tmp_path):
    for rank in range(3):
        begin_ms, end_ms = (12_000, 12_001) if rank == 1 else (1, 9 + rank)
        op = Op("all_reduce", 1, begin_ms, end_ms, 8, "float32", "SUM", error="CommTimeout")
        rings.write(tmp_path, rank, [Comm("world", rank, range(3), 1)], [op])
    verdict = analyze(read([tmp_path]))
    assert verdict.culprits == (1,)
    assert verdict.summary == (
        "all_reduce 1 of 'world' failed on ranks 0-2 with CommTimeout: rank 1 entered it 12 s after"
        " it had failed on rank 0"
    )


@pytest.mark.parametrize(("state", "told"), [("killed", False), ("running", True)])
def test_who_was_left_out_is_told_where_it_hangs_alone_and_after_what_is_current(
    state, told, tmp_path
):
    recovered(tmp_path, late=1, state=[Op("barrier", 1, 1)])
    dumps = [
        dataclasses.replace(dump, process=dataclasses.replace(dump.process, state=state))
        for dump in read([tmp_path])
    ]
    verdict = analyze(dumps)
    assert verdict.culprits == (1,)
    assert verdict.findings[0].comm == "world#2"
    assert [finding.text for finding in verdict.findings[1:]] == told * [
        "rank 2 waits in barrier 1 of 'world#1', which ranks 0-1 have left by reconfigure()"
    ]


def test_a_member_that_was_killed_and_left_out_is_nobodys_business_any_more(tmp_path):
    recovered(tmp_path, late=None)
    states = ("running", "running", "killed")
    dumps = [
        dataclasses.replace(dump, process=dataclasses.replace(dump.process, state=state))
        for dump, state in zip(read([tmp_path]), states, strict=True)
    ]
    assert analyze(dumps).ok
    states = ("running", "killed", "killed")
    dumps = [
        dataclasses.replace(dump, process=dataclasses.replace(dump.process, state=state))
        for dump, state in zip(dumps, states, strict=True)
    ]
    assert analyze(dumps).summary == "rank 1 was killed or has crashed without finalize()"


def test_a_rank_without_the_communicator_has_left_a_record_all_the_same(tmp_path):
    """It could not connect, and the others have."""
    rings.write(tmp_path, 0, [Comm("world", 0, (0, 1), entered=1, finished=0, identity=7)],
                [Op("barrier", 1, 1)])  # fmt: skip
    rings.write(tmp_path, 1, [made_by("world", 1, 2)], [])
    verdict = analyze(read([tmp_path]))
    assert "rank 0 has entered barrier 1 of 'world' and not finished it" in (
        verdict.findings[1].text
    )
    assert verdict.findings[1].text.endswith("; rank 1 has no record of it")
    assert verdict.culprits == (1,)


@pytest.mark.parametrize(
    ("inside", "told", "culprits"),
    [
        ({0: (0, 2), 3: (1, 2)}, "ranks 0, 3 have entered new_comm of '7' and not finished it", ()),
        (
            {0: (0, 3), 3: (2, 3)},
            "its own rank 1 of 3 has not entered new_comm of '7'; ranks 0, 3 wait in it",
            (),
        ),
        (
            {0: (0, 4), 3: (3, 4)},
            "ranks 1-2 have not entered new_comm of '7'; ranks 0, 3 wait in it",
            (1, 2),
        ),
        (
            {0: (1, 4), 3: (3, 4)},
            "its own ranks 0, 2 of 4 have not entered new_comm of '7'; ranks 0, 3 wait in it",
            (),
        ),
    ],
)
def test_who_has_not_come_to_a_group_is_named_where_it_is_known(inside, told, culprits, tmp_path):
    """A group of some ranks, or of all: of some, only those that are there are known."""
    for rank, world in enumerate(worlds(4)):
        comms = [world, *([made_by("7", *inside[rank])] if rank in inside else [])]
        rings.write(tmp_path, rank, comms, [Op("barrier", 1, 1, 2), Op("barrier", 2, 3, 4)])
    verdict = analyze(read([tmp_path]))
    assert (verdict.summary, verdict.culprits) == (told, culprits)
    assert verdict.last[0] == "in new_comm of '7'"
    assert verdict.last[1] == "finished barrier 2 of 'world'"


def made_by_split(name: str, rank: int, members: Sequence[int]) -> Comm:
    return Comm(name, rank, members, being_made=True, by_split=True)


def test_of_a_split_those_of_its_list_are_waited_for(tmp_path):
    """Two at once under one name."""
    odd, even = (1, 3), (2, 4, 0)
    for rank, world in enumerate(worlds(5)):
        comms = [world]
        if rank == 3:
            comms.append(made_by_split("half", 1, odd))
        if rank in (0, 2):
            comms.append(made_by_split("half", even.index(rank), even))
        rings.write(tmp_path, rank, comms, [Op("barrier", 1, 1, 2), Op("barrier", 2, 3, 4)])
    verdict = analyze(read([tmp_path]))
    assert [finding.text for finding in verdict.findings] == [
        "rank 1 has not entered split of 'half'; rank 3 waits in it",
        "rank 4 has not entered split of 'half'; ranks 0, 2 wait in it",
    ]
    assert verdict.culprits == (1, 4)


def test_who_is_through_is_not_missed_and_names_come_again(tmp_path):
    """Rank 1 has the second 'world' already, rank 2 only the first."""
    first = [Comm("world", rank, range(3)) for rank in range(3)]
    rings.write(tmp_path, 0, [first[0], made_by("world", 0, 3)], [])
    rings.write(tmp_path, 1, [first[1], Comm("world", 1, range(3))], [])
    rings.write(tmp_path, 2, [first[2]], [])
    verdict = analyze(read([tmp_path]))
    assert verdict.summary == ("rank 2 has not entered new_comm of 'world (2)'; rank 0 waits in it")


def test_who_was_killed_before_another_came_is_not_of_an_earlier_job(tmp_path):
    for rank, name in enumerate(("world", "world", "earlier")):
        comms = [made_by(name, rank, 3)]
        rings.write(tmp_path / "job", -1, comms, [], pid=10 + rank, began_ms=500 * (rank == 0))
    assert [dump.rank for dump in read([tmp_path])] == [0, 1]


def test_who_waits_in_reconfigure_is_told_by_its_uuid(tmp_path):
    for rank in range(2):
        rings.write(tmp_path, -1, [made_by("recovers", rank, 3, 7)], [], pid=10 + rank)
    verdict = analyze(read([tmp_path]))
    assert verdict.summary == (
        "rank 2 has not entered reconfigure of 'recovers#7'; ranks 0-1 wait in it;"
        " no record of rank 2"
    )


def test_who_joined_later_takes_no_other_member_s_place(tmp_path):
    """The first of three went, the others went on with a new one: this was the last of three in its
    first membership, as another one was."""
    for rank in range(3):
        first = Comm("world", rank, (), membership=1, size=3, identity=7, closed=rank > 0)
        second = Comm("world", rank - 1, (), rank == 1, 0, membership=2, size=3, identity=8)
        ops = [Op("barrier", 1, 1, comm=1)] if rank == 1 else []
        rings.write(tmp_path, rank, [first, second] if rank else [first], ops)
    joined = Comm("world", 2, (), 1, 0, membership=2, size=3, identity=8)
    rings.write(tmp_path, 2, [joined], [Op("barrier", 1, 1)], pid=9, began_ms=50)
    dumps = read([tmp_path])
    assert [(dump.rank, dump.process.pid) for dump in dumps] == [
        (0, 1000), (1, 1001), (2, 1002), (3, 9)
    ]  # fmt: skip
    verdict = analyze(dumps)
    assert verdict.culprits == (2,)
    assert "ranks 1, 3 wait in it" in verdict.summary


def test_a_membership_that_was_dropped_without_finalize_is_history_too(tmp_path):
    failed = Op("all_reduce", 1, 1, 2, 8, "float32", "SUM", error="CommTimeout")
    path = rings.write(tmp_path, 0, [
        Comm("world", 0, (), 1, membership=1, size=2, identity=7),
        Comm("world", 0, (), membership=1, size=1, identity=8),
    ], [failed])  # fmt: skip
    assert not analyze(read([path])).ok
    data = bytearray(path.read_bytes())
    struct.pack_into("<Q", data, 4096 + 16, rings.STEADY_NS)  # when it ended
    path.write_bytes(data)
    assert analyze(read([path])).ok
