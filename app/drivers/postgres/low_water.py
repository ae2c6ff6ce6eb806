"""The low-water mark: below which sequence number of a queue's rank a process need not look for tokens again.

A snapshot that somebody keeps open keeps every claimed token's index entry alive, and each claim would walk all of
them. Owns the rule that makes skipping them sound. Pure, no SQL; one per process, fed and asked by `claim`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakSet

# Every 10 to 20 s it is looked below the marks, beside the claims: tokens that were passed over because another worker
# held their locks, and then rolled back, are met again. Marks below which nobody has looked for 30 s are forgotten.
_SHORTEST_SECONDS = 10.0
_SPREAD_SECONDS = 10.0
_LONGEST_SECONDS = 30.0

_BEFORE_ALL = -32768
_PAST_ALL = 32767


class Horizon(NamedTuple):
    """Where a claim stands among transactions: those below `xmin` had ended before it looked, `xid` is its own id.

    Not the snapshot's `xmax`: that is one past the last to have *ended*, and what is still under way may lie above it.
    """

    xmin: int
    xid: int


class Stretch(NamedTuple):
    """A part of a queue in claim order: after (`rank`, `seq`), below rank `end`."""

    queue: str
    rank: int
    seq: int
    end: int


class Below(NamedTuple):
    """What a look below the marks is to look for: tokens of (queue, rank) up to a number, and since when."""

    marks: Sequence[tuple[str, int, int]]
    life: int
    began: float


@dataclass(slots=True)
class _Mark:
    """Of one rank of one queue. Nothing at or below `safe` will be met again once `candidate` has been confirmed."""

    candidate: int
    since: int
    safe: int | None = None


@dataclass(slots=True)
class LowWater:
    """The marks of one process.

    Sound because every insert of a token has its transaction id before it draws its number, and numbers grow. When a
    claim that got the id X took number K, every transaction that can still bring a number up to K has an id below X.
    Once a snapshot's xmin has reached X, they have all ended. A claim under that snapshot whose lowest number lies
    above K has met everything up to K: it was gone, of a job type this process does not know, or locked.
    """

    monotonic: Callable[[], float]
    roll: Callable[[], float]
    _marks: dict[str, dict[int, _Mark]] = field(default_factory=dict)
    _names: Hashable = None
    _seen: WeakSet[object] = field(default_factory=WeakSet)
    _look_at: float = 0.0
    _forget_at: float = 0.0
    _life: int = 0
    _is_looking: bool = False

    def begin(self, connection: object, names: Hashable) -> int:
        """Begin a claim on a connection, for job types; forgets everything when the marks may not hold for it.

        On a new connection the server may be another one; other job types have passed over other tokens. Gives the
        life of the marks that the claim looks by.
        """
        if connection not in self._seen or names != self._names or self.monotonic() >= self._forget_at:
            self.forget()
            self._seen.add(connection)
            self._names = names
        return self._life

    def forget(self) -> None:
        """Look at everything again; what claims under way bring is not learnt from."""
        self._marks.clear()
        self._life += 1
        self._wait_from(self.monotonic())

    def below(self) -> Below | None:
        """Give what is to be looked for, when it is time; whoever is given it says by `looked` what came of it."""
        now = self.monotonic()
        if now < self._look_at or self._is_looking:
            return None
        marks = [
            (queue, rank, mark.safe)
            for queue, ranks in self._marks.items()
            for rank, mark in ranks.items()
            if mark.safe is not None
        ]
        self._is_looking = bool(marks)
        return Below(marks, self._life, now) if marks else None

    def looked(self, below: Below, *, is_empty: bool) -> None:
        """Keep the marks for as long again, as there is nothing below them, or forget them: there is, or may be."""
        self._is_looking = False
        if below.life != self._life:
            return
        if is_empty:
            self._wait_from(below.began)
        else:
            self.forget()

    def stretches(self, queues: Iterable[str]) -> Sequence[Stretch]:
        """Give what a claim must look at, in claim order: a stretch per queue, one more for each marked rank."""
        found = []
        for queue in queues:
            rank, seq = _BEFORE_ALL, 0
            for marked, mark in sorted(self._marks.get(queue, {}).items()):
                if mark.safe is not None:
                    found.append(Stretch(queue, rank, seq, marked))
                    rank, seq = marked, mark.safe
            found.append(Stretch(queue, rank, seq, _PAST_ALL))
        return found

    def _wait_from(self, at: float) -> None:
        self._look_at = at + _SHORTEST_SECONDS + _SPREAD_SECONDS * self.roll()
        self._forget_at = at + _LONGEST_SECONDS

    def learn(self, life: int, taken: Iterable[tuple[str, int, int]], horizon: Horizon) -> None:
        """Learn from a claim that took (queue, rank, sequence) and passed over nothing it could take, unless locked."""
        if life != self._life:
            return
        spans: dict[tuple[str, int], tuple[int, int]] = {}
        ordered = sorted(taken)
        if ordered and ordered[0][:2] == ordered[-1][:2]:  # as nearly always: a batch of one rank of one queue
            spans[ordered[0][:2]] = (ordered[0][2], ordered[-1][2])
        else:
            for queue, rank, seq in ordered:
                spans[queue, rank] = (spans.get((queue, rank), (seq, seq))[0], seq)
        for (queue, rank), (low, high) in spans.items():
            ranks = self._marks.setdefault(queue, {})
            mark = ranks.get(rank)
            if mark is None:
                ranks[rank] = _Mark(candidate=high, since=horizon.xid)
            elif low > mark.candidate and horizon.xmin >= mark.since:
                ranks[rank] = _Mark(candidate=high, since=horizon.xid, safe=mark.candidate)
