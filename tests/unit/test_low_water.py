"""The low-water mark against a small model of the server: inserters that stall, snapshots, locks and rollbacks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.drivers.postgres.low_water import Horizon, LowWater, Stretch

QUEUE = "default"
RANKS = (10, 11)


class Connection:
    """Something with an identity."""


class Clock:
    """A clock that is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def low_water(clock: Clock | None = None, *, roll: float = 0.0) -> LowWater:
    return LowWater(monotonic=clock or Clock(), roll=lambda: roll)


def stretches(water: LowWater) -> list[Stretch]:
    return list(water.stretches([QUEUE]))


def took(water: LowWater, life: int, *seqs: int, xmin: int, xid: int, rank: int = 11) -> None:
    water.learn(life, [(QUEUE, rank, seq) for seq in seqs], Horizon(xmin, xid))


WHOLE = [Stretch(QUEUE, -32768, 0, 32767)]
MARKED = [Stretch(QUEUE, -32768, 0, 11), Stretch(QUEUE, 11, 7, 32767)]


def marked(clock: Clock | None = None, *, roll: float = 0.0) -> tuple[LowWater, Connection, int]:
    """Give marks that begin above 7."""
    water, connection = low_water(clock, roll=roll), Connection()
    life = water.begin(connection, "names")
    took(water, life, 5, 7, xmin=100, xid=101)
    took(water, life, 8, 9, xmin=101, xid=102)
    assert stretches(water) == MARKED
    return water, connection, life


# --- by example


def test_a_mark_is_set_by_the_claim_after_the_one_it_stands_for() -> None:
    water = low_water()
    life = water.begin(Connection(), "names")
    assert stretches(water) == WHOLE
    took(water, life, 5, 7, xmin=100, xid=101)
    assert stretches(water) == WHOLE
    took(water, life, 8, 9, xmin=101, xid=102)
    assert stretches(water) == MARKED


@pytest.mark.parametrize(("seqs", "xmin"), [((8, 9), 100), ((6, 9), 101), ((), 101)])
def test_a_mark_is_not_set_while_a_lower_number_may_come(seqs: tuple[int, ...], xmin: int) -> None:
    """A transaction of that time is under way; a lower number did come; nothing was taken, so nothing is known."""
    water = low_water()
    life = water.begin(Connection(), "names")
    took(water, life, 5, 7, xmin=100, xid=101)
    took(water, life, *seqs, xmin=xmin, xid=102)
    assert stretches(water) == WHOLE


def test_ranks_have_marks_of_their_own_and_stretches_in_claim_order() -> None:
    water, _, life = marked()
    for low in (20, 30):
        took(water, life, low, low + 1, xmin=200 + low, xid=200 + low, rank=4)
    assert stretches(water) == [
        Stretch(QUEUE, -32768, 0, 4),
        Stretch(QUEUE, 4, 21, 11),
        Stretch(QUEUE, 11, 7, 32767),
    ]


def test_a_queue_without_marks_is_looked_at_whole() -> None:
    water, _, _ = marked()
    assert list(water.stretches(["mail", QUEUE])) == [Stretch("mail", -32768, 0, 32767), *MARKED]


def test_marks_are_forgotten_on_a_new_connection() -> None:
    water, known, _ = marked()
    water.begin(known, "names")
    assert stretches(water) == MARKED
    water.begin(Connection(), "names")
    assert stretches(water) == WHOLE
    water.begin(known, "names")
    assert stretches(water) == WHOLE


def test_marks_are_forgotten_when_other_job_types_are_looked_for() -> None:
    water, known, _ = marked()
    water.begin(known, "other names")
    assert stretches(water) == WHOLE


@pytest.mark.parametrize(("roll", "seconds"), [(0.0, 10.0), (0.5, 20.0), (1.0, 30.0)])
def test_marks_are_forgotten_after_ten_to_thirty_seconds(roll: float, seconds: float) -> None:
    clock = Clock()
    water, known, _ = marked(clock, roll=roll)
    clock.now = seconds - 0.01
    water.begin(known, "names")
    assert stretches(water) == MARKED
    clock.now = seconds
    water.begin(known, "names")
    assert stretches(water) == WHOLE


def test_a_claim_begun_before_marks_were_forgotten_teaches_nothing() -> None:
    """It did not look below the old marks, so it cannot confirm a new one."""
    water, _, life = marked()
    water.forget()
    took(water, life, 20, xmin=300, xid=301)
    took(water, life, 21, xmin=302, xid=303)
    assert stretches(water) == WHOLE


# --- against the model


class Row(NamedTuple):
    rank: int
    seq: int


@dataclass
class Claim:
    """A claim of this process between its snapshot and its answer."""

    xid: int
    xmin: int
    life: int
    rows: list[Row]


@dataclass
class Server:
    """What PostgreSQL keeps: ids and numbers handed out, who is under way, and which tokens can be seen and by whom."""

    clock: Clock = field(default_factory=Clock)
    xid: int = 100
    last_ended: int = 99
    seq: int = 0
    inserters: dict[int, list[Row]] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    ready: set[Row] = field(default_factory=set)
    locked: set[Row] = field(default_factory=set)
    # Passed over while somebody else held them: may be hidden until the marks are forgotten.
    excused: set[Row] = field(default_factory=set)
    connection: Connection = field(default_factory=Connection)

    def __post_init__(self) -> None:
        self.water = LowWater(monotonic=self.clock, roll=float)

    def next_xid(self) -> int:
        self.xid += 1
        return self.xid

    def end(self, xid: int) -> None:
        self.last_ended = max(self.last_ended, xid)

    def oldest(self) -> int:
        """Give a snapshot's xmin: below it everybody has ended. Its upper bound is one past the last to have ended."""
        under_way = [*self.inserters, *(claim.xid for claim in self.claims)]
        return min([xid for xid in under_way if xid <= self.last_ended], default=self.last_ended + 1)

    # --- steps

    def begin(self, _: int) -> None:
        self.inserters[self.next_xid()] = []

    def draw(self, which: int) -> None:
        if self.inserters:
            self.seq += 1
            xid = sorted(self.inserters)[which % len(self.inserters)]
            self.inserters[xid].append(Row(RANKS[which // 4 % len(RANKS)], self.seq))

    def commit(self, which: int) -> None:
        if self.inserters:
            xid = sorted(self.inserters)[which % len(self.inserters)]
            self.ready.update(self.inserters.pop(xid))
            self.end(xid)

    def roll_back(self, which: int) -> None:
        if self.inserters:
            xid = sorted(self.inserters)[which % len(self.inserters)]
            del self.inserters[xid]
            self.end(xid)

    def lock(self, which: int) -> None:
        """Somebody else claims the first few."""
        free = sorted(self.ready - self.locked)
        self.locked.update(free[: 1 + which % 3])

    def unlock(self, which: int) -> None:
        """Its claim is rolled back, or committed."""
        mine = {row for claim in self.claims for row in claim.rows}
        theirs = self.locked - mine
        self.locked -= theirs
        if which % 2:
            self.ready -= theirs
        else:
            self.excused |= theirs

    def start(self, which: int) -> None:
        """A claim of this process looks, by the marks, and locks what it takes."""
        xmin, life = self.oldest(), self.water.begin(self.connection, "names")
        if self.water._marks == {}:
            self.excused = set()
        rows = self.seen()[: 1 + which % 3]
        if rows:
            self.locked.update(rows)
            self.claims.append(Claim(self.next_xid(), xmin, life, rows))

    def answer(self, which: int) -> None:
        if self.claims:
            claim = self.claims.pop(which % len(self.claims))
            self.ready.difference_update(claim.rows)
            self.locked.difference_update(claim.rows)
            self.end(claim.xid)
            self.water.learn(claim.life, [(QUEUE, *row) for row in claim.rows], Horizon(claim.xmin, claim.xid))

    def fail(self, which: int) -> None:
        """A claim is rolled back and this process hears of it."""
        if self.claims:
            claim = self.claims.pop(which % len(self.claims))
            self.locked.difference_update(claim.rows)
            self.end(claim.xid)
            self.water.forget()

    def wait(self, which: int) -> None:
        self.clock.now += which

    # --- what must hold

    def seen(self) -> list[Row]:
        """Give the unlocked tokens that a claim finds, in the order in which it finds them."""
        free = sorted(self.ready - self.locked)
        return [
            row
            for part in self.water.stretches([QUEUE])
            for row in free
            if row > (part.rank, part.seq) and row.rank < part.end
        ]

    def check(self) -> None:
        found = self.seen()
        assert found == sorted(found), "claim order is rank, then number"
        assert (self.ready - self.locked) - set(found) <= self.excused

    def publish(self, which: int) -> None:
        """A job is enqueued by somebody in no hurry and no trouble."""
        xid = self.next_xid()
        self.seq += 1
        self.ready.add(Row(RANKS[which // 4 % len(RANKS)], self.seq))
        self.end(xid)

    def claim(self, which: int) -> None:
        """A claim of this process looks and answers at once."""
        before = len(self.claims)
        self.start(which)
        if len(self.claims) > before:
            self.answer(before)


OFTEN = ("publish", "claim", "draw")
STEPS = (*OFTEN * 3, *"begin commit commit start answer roll_back lock unlock fail".split(), "wait")


@settings(max_examples=400)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), min_size=30, max_size=80))
def test_no_token_that_could_be_claimed_lies_below_a_mark(steps: list[tuple[str, int]]) -> None:
    server = Server()
    for step, which in steps:
        getattr(server, step)(which)
        server.check()


def test_an_inserter_with_the_youngest_id_of_all_holds_the_mark() -> None:
    """Its id lies at the snapshot's upper bound, above everything that has ended: a bound on those would miss it."""
    server = Server()
    for step, which in [
        ("begin", 0),
        ("begin", 0),
        ("draw", 1),  # the younger of the two draws first and stalls
        ("draw", 0),
        ("commit", 0),
        ("start", 0),
        ("answer", 0),
        ("begin", 0),
        ("draw", 1),
        ("commit", 1),
        ("start", 0),
        ("answer", 0),
        ("commit", 0),
    ]:
        getattr(server, step)(which)
        server.check()
