"""What one turn of an admission comes to: who is let in, who is parked where, and what is left of the keys.

Owns no statement and does no I/O: `gate` counts, under the locks of the keys, and stores what is decided here.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from ...domain.job import LimitKey
from ...domain.limit import RATE, Bucket, LimitRule, reason_of
from .database import Row


class Candidate(NamedTuple):
    """A job in the gate that may be next, and its keys by their hashes, in the order they were declared.

    `is_limited`: its queue lets only so many of its jobs run. `tenant` is whose turn it is in a fair queue, and `start`
    when that begins; without one it takes no turn.
    """

    job_id: UUID
    queue: str
    name: str
    keys: dict[UUID, LimitKey]
    is_limited: bool
    tenant: str = ""
    start: float = 0.0

    @property
    def slots(self) -> list[UUID]:
        """Give the keys of which it holds a slot while it runs; under a rate it only begins."""
        return [hash_ for hash_, limit in self.keys.items() if limit.limit != RATE]


class Move(NamedTuple):
    """Starts of a tenant in a fair queue, the first of which began at `start`."""

    queue: str
    tenant: str
    start: float
    starts: int


class Key:
    """One key while it is decided about: how many more may start, and what is left of a rate."""

    def __init__(self, row: Row, limit: LimitKey) -> None:
        self.limit = limit
        self.at: datetime = row["at"]
        self.bucket: Bucket | None = None
        self.free: float = float("inf")
        self.rule: LimitRule | None = None
        if row["n"] is None:
            return
        self.rule = LimitRule(limit=limit.limit, n=row["n"], per=row["per"])
        if row["per"] is None:
            self.free = row["n"] - row["held"]
            return
        known = row["tokens"]
        bucket = Bucket(float(row["n"]) if known is None else known, row["filled_at"] or self.at)
        self.bucket = bucket.filled(self.rule, self.at)

    @property
    def has_room(self) -> bool:
        """Say whether one more may start."""
        return self.free > 0 if self.bucket is None else self.bucket.has_one

    def take(self) -> None:
        """Let one start."""
        self.free -= 1
        self.bucket = None if self.bucket is None else self.bucket.takes()

    @property
    def open_at(self) -> datetime | None:
        """Give from when on it may have room; None: once somebody gives a slot back."""
        if self.has_room:
            return self.at
        return None if self.bucket is None or self.rule is None else self.bucket.next_at(self.rule)


class Decision:
    """What one turn comes to."""

    def __init__(self, room: int, rooms: dict[str, int]) -> None:
        self.room = room
        self._rooms = dict(rooms)
        self.admitted: list[Candidate] = []
        self.parked: list[tuple[Candidate, UUID, Key]] = []
        self.touched: dict[UUID, Key] = {}
        self.is_contended = False
        self.is_void = False  # nothing of it is kept: look again

    @property
    def has_come_to_any(self) -> bool:
        """Say whether there is anything to store."""
        return bool(self.admitted or self.parked)

    def places(self, places: dict[str, int]) -> None:
        """Let no more of these queues' jobs in than their queue has places for."""
        self._rooms = {queue: min(free, places.get(queue, free)) for queue, free in self._rooms.items()}

    def about(self, candidate: Candidate, keys: dict[UUID, Key], *, is_here: bool) -> None:
        """Decide about the next in order: admitted, parked at the first key it lacks, or left where it is.

        One that is not here any more, or in somebody's hands, uses up nothing; of those without keys that means that
        somebody else is deciding.
        """
        if not candidate.keys.keys() <= keys.keys():
            self.is_contended = True
            return
        if not is_here:
            has_room = len(self.admitted) < self.room and self._rooms[candidate.queue] > 0
            self.is_contended |= has_room and not candidate.keys
            return
        lacking = next((hash_ for hash_ in candidate.keys if not keys[hash_].has_room), None)
        if lacking is not None:
            self.parked.append((candidate, lacking, keys[lacking]))
        elif len(self.admitted) < self.room and self._rooms[candidate.queue] > 0:
            self._rooms[candidate.queue] -= 1
            self.admitted.append(candidate)
            for hash_ in candidate.keys:
                keys[hash_].take()
        else:
            return
        self.touched.update((hash_, keys[hash_]) for hash_ in candidate.keys)

    def binds(self) -> tuple[list[Any], ...]:
        """Give the binds of `ADMIT` behind the worker."""
        slots = [(candidate.job_id, hash_) for candidate in self.admitted for hash_ in candidate.slots]
        return (
            [candidate.job_id for candidate in self.admitted],
            [job_id for job_id, _ in slots],
            [hash_ for _, hash_ in slots],
            [candidate.job_id for candidate, _, _ in self.parked],
            [hash_ for _, hash_, _ in self.parked],
            [reason_of(key.limit).value for _, _, key in self.parked],
            list(self.touched),
            [None if key.bucket is None else key.bucket.tokens for key in self.touched.values()],
            [None if key.bucket is None else key.bucket.at for key in self.touched.values()],
            [key.open_at for key in self.touched.values()],
        )

    @property
    def moves(self) -> list[Move]:
        """Give whose turns these were: of whom in which queue, from when on, and how many."""
        starts = Counter((one.queue, one.tenant, one.start) for one in self.admitted if one.tenant)
        return [Move(queue, tenant, start, count) for (queue, tenant, start), count in sorted(starts.items())]

    def next_in(self) -> timedelta | None:
        """Give when a rate lets the next of those parked at it start."""
        waits = [key.open_at - key.at for _, _, key in self.parked if key.open_at is not None]
        return min(waits) if waits else None
