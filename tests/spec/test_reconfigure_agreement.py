"""What members of a reconfigure learn when they do not agree, and those that are left out."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
import torchcomms

from tests.harness.cases import Failures, barrier_until_refused, check_context, refused
from tests.harness.party import Party

several = pytest.mark.worlds(backends=("gloo", "ctran", "nccl"), sizes=(2, 3, 4))
# A mismatch is seen in a quarter of a second; the limit of each call is a minute.
SOON_S = 10.0
MINUTE = timedelta(seconds=60)


def everybody(context):
    return list(range(context.size))


def fails(party, handles, uuid, limit, kind, *words):
    """The call's work is a failed one, soon, and the communicator has no members then."""
    begin = time.monotonic()
    work = party.reconfigure(handles, uuid, timeout=limit)
    took = time.monotonic() - begin
    assert took < SOON_S, f"it took {took:.1f} s"
    assert not work.is_completed()
    with refused(kind, "reconfigure", *words):
        work.wait()
    party.is_of_nobody()
    with refused(torchcomms.CommFinalized, "the last reconfigure() failed", *words):
        party.comm.barrier(False)
    print(f"{kind.__name__} after {took:.2f} s", flush=True)


def disagree(context):
    party, n = Party(context), context.size
    party.form(everybody(context))
    handles = party.handles()
    # The last rank thinks that the first one is gone; the others do not.
    mine = handles[1:] if context.rank == n - 1 and n > 2 else handles
    if n == 2:
        mine = handles[:: -1 if context.rank == 1 else 1]
    party.meet("about to call")
    fails(party, mine, 20, MINUTE, torchcomms.Mismatch, "disagree")
    party.uuid = 20
    party.form(everybody(context))
    party.comm.finalize()
    return []


@several
def test_members_that_disagree_all_learn_it_soon(world):
    check_context(world, disagree)


def race(context):
    party = Party(context)
    handles = party.handles()
    if context.rank == 0:  # has given up on uuid 5, and calls 6
        party.meet("the others wait")
        party.reconfigure(handles, 6, timeout=MINUTE).wait()
    else:
        # Each member's call is seen at the store before the newer one is made.
        seen = threading.Thread(target=_once_called, args=(party, handles[context.rank]))
        seen.start()
        fails(party, handles, 5, MINUTE, torchcomms.Mismatch, "uuid=6")
        seen.join()
        party.reconfigure(handles, 6, timeout=MINUTE).wait()
    party.works(everybody(context))
    party.comm.finalize()
    return []


def _once_called(party, handle):
    """Says that the others wait when this member's call is at the store."""
    context, identity = party.context, int(handle.split(":")[-1], 16)
    store = context.store(party.name, own_connection=True)
    store.underlying_store.wait([f"torchcomms/reconfigure/claim/{identity}"])
    store.set(f"the others wait/{context.rank}", "here")


@several
def test_of_two_reconfigures_that_race_the_newest_wins(world):
    check_context(world, race)


def absent(context):
    party, n = Party(context), context.size
    party.form(everybody(context))
    handles = party.handles()
    if context.rank != n - 1:
        limit = timedelta(seconds=4.0)
        words = [f"rank {n - 1} of {n}", "4 s", "timeout= of"]
        fails(party, handles, 30, limit, torchcomms.CommTimeout, *words)
    party.meet("given up")
    party.uuid = 40
    party.form(everybody(context))
    party.comm.finalize()
    return []


@several
def test_who_does_not_come_is_named_and_a_later_one_recovers(world):
    check_context(world, absent)


def aborted(context):
    party = Party(context)
    handles = party.handles()
    if context.rank == 0:  # the others never come
        ends = threading.Thread(target=_abort_when_called, args=(party, handles[0]))
        ends.start()
        fails(party, handles, 20, MINUTE, torchcomms.Aborted, "abort() was called")
        ends.join()
        assert party.comm.is_aborted()
    party.meet("aborted")
    party.uuid = 20
    party.form(everybody(context))
    party.comm.finalize()
    return []


def _abort_when_called(party, handle):
    _once_called(party, handle)
    party.comm.abort()


@pytest.mark.worlds(backends=("ctran", "nccl"), sizes=(2, 3))
def test_an_abort_ends_a_reconfigure_that_waits_and_a_later_one_recovers(world):
    check_context(world, aborted)


def left_out(context):
    party, n = Party(context), context.size
    party.form(everybody(context))
    party.form(everybody(context)[:-1])
    party.meet("done")
    failures = Failures()
    if context.rank == n - 1:
        with failures.case("sync"), refused(torchcomms.StaleGeneration, "uuid=2", "uuid=1"):
            _until_stale(party.comm)
        with failures.case("again"), refused(torchcomms.StaleGeneration):
            party.comm.barrier(True).wait()
    party.form(everybody(context))
    party.comm.finalize()
    return failures.texts


def _until_stale(comm):
    """The first call finds the links gone, at the latest."""
    limit = timedelta(seconds=2)
    try:
        barrier_until_refused(comm, timeout=limit)
    except torchcomms.PeerFailed:
        barrier_until_refused(comm, timeout=limit)


@several
def test_a_member_that_was_left_out_is_stale(world):
    check_context(world, left_out)
