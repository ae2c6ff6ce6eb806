"""The low-water mark against a small model of the server: inserters that stall, snapshots, locks and rollbacks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from app.drivers.postgres.low_water import Below, Horizon, LowWater
from tests.unit.test_low_water import QUEUE, Clock, Connection

RANKS = (10, 11)


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
    # A look below the marks on its way: what it is for, whether it has met anything, and what was excused as it began.
    look: tuple[Below, bool, set[Row]] | None = None

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

    def look_below(self, _: int) -> None:
        """A look below the marks is answered, or begins: it meets what is locked, too."""
        if self.look is not None:
            begun, is_empty, excused = self.look
            self.look = None
            is_for_these = begun.life == self.water._life
            self.water.looked(begun, is_empty=is_empty)
            if is_empty and is_for_these:
                self.excused -= excused
        elif (below := self.water.below()) is not None:
            met = any(row.rank == rank and row.seq <= seq for _, rank, seq in below.marks for row in self.ready)
            self.look = below, not met, set(self.excused)

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
STEPS = (*OFTEN * 3, *"begin commit commit start answer roll_back lock unlock fail look_below".split(), "wait")


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
