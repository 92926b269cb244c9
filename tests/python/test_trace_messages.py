"""`torchcomms trace`: messages and batches that hang, by made-up files."""

from __future__ import annotations

import pytest
from torchcomms.analyze import analyze, read

from tests.harness import rings
from tests.harness.rings import Comm, Op, worlds


def test_a_message_of_two_sizes_is_a_mismatch(tmp_path):
    number = (1 << 60) + (1 << 20)
    sides = (Op("send", number, 1, None, 4, "float32", None, 1),
             Op("recv", number, 1, None, 5, "float32", None, 0))  # fmt: skip
    for rank, comm in enumerate(worlds(2)):
        rings.write(tmp_path, rank, [comm], [sides[rank]])
    verdict = analyze(read([tmp_path]))
    assert "rank 0 sends 4 elements float32, rank 1 receives 5 elements float32" in verdict.summary


BATCH = 1 << 59


def message(kind: str, count: int, sender: int, receiver: int, begin_ms: float, **more) -> Op:
    """Between two ranks of two."""
    number = (1 << 60) + ((2 * sender + receiver) << 20) + count
    other = receiver if kind == "send" else sender
    return Op(kind, number, begin_ms, elements=4, dtype="float32", root_or_peer=other, **more)


def test_messages_that_both_have_posted_and_that_do_not_arrive_are_told_by_pairs(tmp_path):
    world = worlds(2)
    rings.write(tmp_path, 0, [world[0]], [
        message("send", 0, 0, 1, 1, end_ms=2), message("send", 1, 0, 1, 3, end_ms=4),
        message("send", 2, 0, 1, 5), message("recv", 0, 1, 0, 6),
    ])  # fmt: skip
    rings.write(tmp_path, 1, [world[1]], [
        message("recv", 0, 0, 1, 1, end_ms=3), message("recv", 1, 0, 1, 4),
        message("recv", 2, 0, 1, 7), message("send", 0, 1, 0, 8),
    ])  # fmt: skip
    verdict = analyze(read([tmp_path]))
    assert [(f.kind, f.waiting, f.text) for f in verdict.findings] == [
        ("stuck", (0, 1), "2 messages from rank 0 to rank 1 in 'world', which both have posted,"
         " have not arrived"),
        ("stuck", (0, 1), "a message from rank 1 to rank 0 in 'world', which both have posted,"
         " has not arrived"),
    ]  # fmt: skip
    assert verdict.findings[0].since_ns == rings.WALL_NS + 4_000_000
    assert verdict.culprits == ()


def test_a_send_whose_record_is_overwritten_was_posted_where_a_later_one_was(tmp_path):
    world = worlds(2)
    rings.write(tmp_path, 0, [world[0]], [message("send", 5, 0, 1, 9, end_ms=10)])
    rings.write(tmp_path, 1, [world[1]], [message("recv", 3, 0, 1, 4)])
    verdict = analyze(read([tmp_path]))
    assert verdict.summary == (
        "a message from rank 0 to rank 1 in 'world', which both have posted, has not arrived"
    )
    assert verdict.culprits == ()


def test_a_receive_from_whoever_sends_is_told_where_it_hangs(tmp_path):
    world = worlds(2)
    number = (1 << 60) + ((2 * 2 + 0) << 20)
    rings.write(tmp_path, 0, [world[0]], [Op("recv", number, 3, None, 4, "float32")])
    rings.write(tmp_path, 1, [world[1]], [])
    assert analyze(read([tmp_path])).summary == "rank 0 waits in recv from any rank of 'world'"


@pytest.mark.parametrize(
    ("batches", "told", "culprits"),
    [
        ({0: (1,)}, ["rank 0 waits in batch_op_issue 1 of 'world', with rank 1,"], (1,)),
        ({0: (1, 2)}, ["rank 0 waits in batch_op_issue 1 of 'world' with ranks 1-2"], ()),
        ({0: ()}, ["rank 0 waits in batch_op_issue 1 of 'world'"], ()),
        ({0: (1,), 1: (0,)}, ["ranks 0-1 wait in batches of messages of 'world' with each other"],
         ()),
        ({0: (1,), 1: (2,)}, [
            "rank 0 waits in batch_op_issue 1 of 'world', with rank 1,",
            "rank 1 waits in batch_op_issue 1 of 'world', with rank 2,",
        ], (2,)),
        ({0: (1,), 1: ()}, ["ranks 0-1 wait in batches of messages of 'world'"], ()),
        ({0: (3,)}, ["rank 0 waits in batch_op_issue 1 of 'world', with rank 3, which left no"
                     " record"], (3,)),
    ],
)  # fmt: skip
def test_batches_that_hang_are_told_with_whom(batches, told, culprits, tmp_path):
    for rank in range(3):
        ops = [Op("barrier", 1, 1, 2), Op("batch_op_issue", BATCH + 1, 3, 4, peers=(0, 1))]
        if rank in batches:
            ops[1] = Op("batch_op_issue", BATCH + 1, 5 + rank, peers=batches[rank])
        comm = Comm("world", rank, range(4 if 3 in batches[0] else 3), entered=1)
        rings.write(tmp_path, rank, [comm], ops)
    verdict = analyze(read([tmp_path]))
    assert len(verdict.findings) == len(told)
    for finding, beginning in zip(verdict.findings, told, strict=True):
        assert finding.text.startswith(beginning)
    assert (verdict.culprits, verdict.decisive.since_ns) == (
        culprits, rings.WALL_NS + (5_000_000 if len(told) == 1 else 6_000_000)
    )  # fmt: skip


def test_who_waits_for_a_rank_in_a_batch_is_not_the_one_to_look_at(tmp_path):
    first = Comm("dp", 0, (0, 1), entered=1, finished=0)
    rings.write(tmp_path, 0, [first], [Op("all_reduce", 1, 3, None, 8, "float32", "SUM")])
    second = [Comm("dp", 1, (0, 1)), Comm("pp", 0, (1, 2))]
    rings.write(tmp_path, 1, second, [Op("batch_op_issue", BATCH + 1, 3, peers=(1,), comm=1)])
    rings.write(tmp_path, 2, [Comm("pp", 1, (1, 2))], [])
    assert analyze(read([tmp_path])).culprits == (2,)
