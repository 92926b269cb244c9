"""Messages and batches of one communicator: finds peers that have not posted, and hangs."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from torchcomms.analyze.finding import Finding, ranks_text
from torchcomms.analyze.record import Operation

if TYPE_CHECKING:
    from torchcomms.analyze.group import Group


def _amount(sizes: tuple[tuple[int, ...], ...], op: Operation) -> str:
    return " ".join([f"{sum(math.prod(size) for size in sizes)} elements", *op.dtypes])


_COUNT_BITS = 20  # bits of the count in a message's number; its two ranks are above them
_ANSWERS = {"send": "recv", "recv": "send"}


class Messages:
    def __init__(self, group: Group) -> None:
        self._group = group
        self._sides: dict[int, dict[str, tuple[int, Operation]]] = defaultdict(dict)
        self._newest: dict[tuple[int, str], int] = {}  # by (pair of ranks, side)
        for rank, ops in group.own.items():
            for op in ops:
                if op.is_message:
                    self._sides[op.sequence][op.name] = (rank, op)
                    side = op.sequence >> _COUNT_BITS, op.name
                    self._newest[side] = max(self._newest.get(side, 0), op.sequence)

    def unposted(self) -> list[Finding]:
        """Findings about messages whose peer has not posted its side."""
        found = []
        for rank, ops in sorted(self._group.own.items()):
            for op in ops:
                if not op.is_message or op.done or op.peer is None:
                    continue
                partner = self._group.at(op.peer)
                if partner < 0 or self._is_answered(op):
                    continue
                why = f"for which rank {partner} has posted no {_ANSWERS[op.name]}"
                found.append(self._missing(rank, op, partner, why, "of"))
        return [*found, *self._unanswered_batches()]

    def unequal(self) -> list[Finding]:
        """Findings about sends and receives that match, but differ in size or dtype."""
        found = []
        pairs = [(pair["send"], pair["recv"]) for pair in self._sides.values() if len(pair) == 2]
        for (sender, send), (receiver, recv) in pairs:
            sent, wanted = _amount(send.input_sizes, send), _amount(recv.output_sizes, recv)
            if sent == wanted or (send.done and recv.done):
                continue
            found.append(
                self._group.find(
                    "mismatch",
                    send,
                    [sender, receiver],
                    [],
                    f"a message in '{self._group.name}' differs: rank {sender} sends {sent},"
                    f" rank {receiver} receives {wanted}",
                )
            )
        return found

    def _missing(
        self, rank: int, op: Operation, partner: int, why: str, preposition: str
    ) -> Finding:
        """The finding that `rank` waits for `partner`.

        Args:
            why: the reason if `partner` left a record.
            preposition: the preposition before the rank if `partner` left no record.
        """
        if partner not in self._group.own:
            why = f"{preposition} rank {partner}, which left no record"
        text = f"rank {rank} waits in {op} of '{self._group.name}', {why}"
        return self._group.find("message", op, [partner], [rank], text)

    def _is_answered(self, op: Operation) -> bool:
        """Returns: whether the peer has posted its side.

        A later post implies it: records are overwritten.
        """
        return self._newest.get((op.sequence >> _COUNT_BITS, _ANSWERS[op.name]), 0) >= op.sequence

    def _has_failed(self, number: int) -> bool:
        return any(op.failed for _, op in self._sides[number].values())

    def posted(self) -> list[Finding]:
        """Findings about messages that both sides have posted and that have not arrived.

        There is one finding per pair of ranks. Receives from any source are included.
        """
        found = [
            self._group.find(
                "stuck", op, [rank], [rank], f"rank {rank} waits in {op} of '{self._group.name}'"
            )
            for rank, ops in self._group.own.items()
            for op in ops
            if op.is_message and op.peer is None and op.pending and not op.failed
        ]
        pending: dict[tuple[int, int], list[Operation]] = defaultdict(list)
        for number, pair in self._sides.items():
            for rank, op in pair.values():
                if op.peer is None or not op.pending or self._has_failed(number):
                    continue
                if (partner := self._group.at(op.peer)) >= 0 and self._is_answered(op):
                    ends = (rank, partner) if op.name == "send" else (partner, rank)
                    pending[ends].append(op)
        for (sender, receiver), ops in sorted(pending.items()):
            oldest = min(ops, key=lambda op: op.created_ns)
            what, have_not = "a message", "has not"
            if (count := len({op.sequence for op in ops})) > 1:
                what, have_not = f"{count} messages", "have not"
            both = {sender, receiver}
            found.append(
                self._group.find(
                    "stuck", oldest, both, both,
                    f"{what} from rank {sender} to rank {receiver} in '{self._group.name}', which"
                    f" both have posted, {have_not} arrived",
                )
            )  # fmt: skip
        return [*found, *self._answered_batches()]

    def _unanswered_batches(self) -> list[Finding]:
        """Findings about batches whose only peer rank is in no message with this rank."""
        found = []
        for rank, op in self._open_batches().items():
            if (partner := self._missed_partner(rank, op)) is None:
                continue
            why = f"with rank {partner}, which has posted no message with it"
            found.append(self._missing(rank, op, partner, why, "with"))
        return found

    def _answered_batches(self) -> list[Finding]:
        """One finding about all ranks that wait in batches: batches have no common number."""
        batches = self._open_batches()
        if not batches:
            return []
        rank, op = min(batches.items(), key=lambda item: item[1].created_ns)
        peers = {self._group.at(peer) for each in batches.values() for peer in each.peers}
        if len(batches) == 1:
            beside = f" with {ranks_text(peers)}" if peers and -1 not in peers else ""
            text = f"rank {rank} waits in {op} of '{self._group.name}'{beside}"
        else:
            beside = " with each other" if peers == set(batches) else ""
            text = (
                f"{ranks_text(batches)} wait in batches of messages of '{self._group.name}'{beside}"
            )
        return [self._group.find("stuck", op, batches, batches, text)]

    def _open_batches(self) -> dict[int, Operation]:
        """The oldest unfinished batch of each rank."""
        found: dict[int, Operation] = {}
        for rank, ops in self._group.own.items():
            for op in ops:
                if op.is_batch and op.pending and not op.failed:
                    found.setdefault(rank, op)
        return found

    def _missed_partner(self, rank: int, batch: Operation) -> int | None:
        """The only peer rank of `batch`, if that rank is in no message with this one; else None."""
        if len(batch.peers) != 1 or (partner := self._group.at(batch.peers[0])) in (-1, rank):
            return None
        if partner not in self._group.own:
            return partner if partner not in self._group.known else None
        place = self._group.members.index(rank)
        answers = any(
            op.pending
            and (
                (op.is_message and op.peer in (None, place))
                or (op.is_batch and (not op.peers or place in op.peers))
            )
            for op in self._group.own[partner]
        )
        return None if answers else partner
