"""The rules that hold for every run whatever is done to it, as pure functions over what was recorded of it.

What records it differs: triggers on a database for real processes, the store itself for simulated ones. Each rule
raises `AssertionError` with the job and what is wrong with it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Protocol

from app.domain.job import Counters
from app.domain.outcome import RULE_OF, OutcomeKind
from app.domain.state import LIVE, TERMINAL, DeadReason, State, is_legal


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One move of a job's token; `source` is None for a new job, `target` None for a deleted one.

    `is_snooze`: the run gave its worker back by itself, until later or until what it waits for.
    """

    job: Hashable
    source: State | None
    target: State | None
    claim_no: int
    is_snooze: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A body began: a job, and the number of the claim it began under."""

    job: Hashable
    claim_no: int


class Closed(Protocol):
    """What a rule needs to know of a row of the ledger."""

    @property
    def outcome(self) -> OutcomeKind:
        """Say how the attempt ended."""
        ...

    @property
    def counted(self) -> bool:
        """Say whether it spent the budget."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An attempt as the ledger has it."""

    outcome: OutcomeKind
    counted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the store says of a job at the end: its counters, and its ledger without the completing attempt."""

    job: Hashable
    state: State
    reason: str | None
    counters: Counters
    max_attempts: int
    max_crashes: int
    ledger: Sequence[Closed]


def nothing_lost(
    *,
    known: Collection[Hashable],
    asked: Collection[Hashable] | None,
    acked: Iterable[Hashable],
    ran: Iterable[Hashable],
) -> None:
    """K1: acknowledged jobs are there; nothing is there or ran that was never `asked` for (None: everything was)."""
    assert set(acked) <= set(known), f"acknowledged jobs are lost: {set(acked) - set(known)}"
    assert set(ran) <= set(known), f"ran without being enqueued: {set(ran) - set(known)}"
    assert asked is None or set(known) <= set(asked), f"nobody asked for {set(known) - set(asked or ())}"


def legal(moves: Iterable[Move]) -> None:
    """K6: every move is in the table. A ready job that is lined up for its turn stays ready."""
    for move in moves:
        if move.target is not None and not move.source is move.target is State.READY:
            assert is_legal(move.source, move.target), f"{move.job}: {move.source} -> {move.target}"


def fenced(moves: Iterable[Move]) -> None:
    """K4: claim numbers grow and never repeat; what closes an attempt carries the newest."""
    newest: dict[Hashable, int] = defaultdict(int)
    for move in moves:
        if move.target is State.RUNNING:
            expected = newest[move.job] + 1
            assert move.claim_no == expected, f"{move.job}: claim {move.claim_no} where {expected} is next"
            newest[move.job] = move.claim_no
        else:
            assert move.claim_no == newest[move.job], f"{move.job}: a write of claim {move.claim_no} was accepted"


def explained(starts: Sequence[Start], moves: Iterable[Move], ended: Mapping[Any, OutcomeKind]) -> None:
    """K3: every start but the first follows an end that allows another; `ended` is the ledger by job and number."""
    moves = list(moves)
    snoozed = {(move.job, move.claim_no) for move in moves if move.is_snooze}
    begun: dict[Hashable, list[int]] = defaultdict(list)
    for start in starts:
        begun[start.job].append(start.claim_no)
    revived = retried_by_hand(moves)
    for job, numbers in begun.items():
        assert len(numbers) == len(set(numbers)), f"{job}: one claim was begun twice"
        for before, number in pairwise(sorted(numbers)):
            if (job, before) in snoozed:
                continue
            why = ended.get((job, before))
            assert why is not None, f"{job}: start {number} follows start {before}, which nothing ended"
            assert why is not OutcomeKind.CANCELLED or job in revived, f"{job} ran after its cancel"


def counted(accounts: Iterable[Account], *, revived: Collection[Hashable]) -> None:
    """K7: the counters are what the ledger adds up to, for jobs nobody retried by hand; dead for a reason."""
    for account in accounts:
        for row in account.ledger:
            assert row.counted == RULE_OF[row.outcome].counted, f"{account.job}: {row.outcome} counted={row.counted}"
        number = {kind: sum(row.outcome is kind for row in account.ledger) for kind in OutcomeKind}
        counters = account.counters
        interrupts = number[OutcomeKind.INTERRUPTED]
        assert counters.interrupts == interrupts, f"{account.job}: {counters.interrupts} interrupts, not {interrupts}"
        if account.job in revived:
            continue
        failures = sum(row.counted for row in account.ledger)
        extra = 1 if account.state in {State.RUNNING, State.DONE} else 0
        assert counters.attempt == failures + extra, f"{account.job}: attempt {counters.attempt}, ledger {failures}"
        crashes = number[OutcomeKind.CRASHED]
        assert counters.crashes <= crashes, f"{account.job}: crashes {counters.crashes}, ledger {crashes}"
        spared = min(crashes, account.max_crashes - 1)
        assert counters.crashes == spared or account.state is State.DEAD, f"{account.job}: {counters.crashes} crashes"


def dead_with_reason(accounts: Iterable[Account]) -> None:
    """K7: dead only for a reason there is, and only with its budget spent."""
    for account in (each for each in accounts if each.state is State.DEAD):
        last = account.ledger[-1].outcome if account.ledger else None
        said = f"{account.job} is dead, {account.reason}, {account.counters}, after {last}"
        match DeadReason(account.reason or ""):
            case DeadReason.ATTEMPTS_EXHAUSTED:
                assert last is OutcomeKind.DEAD_LETTERED, said
                assert account.counters.attempt >= account.max_attempts, said
            case DeadReason.CRASHED_TOO_OFTEN:
                assert last is OutcomeKind.CRASHED, said
                assert account.counters.crashes >= account.max_crashes, said
            case DeadReason.TERMINAL:
                # Held: handed back for its payload, to code of which nobody was left.
                assert last in {OutcomeKind.DEAD_LETTERED, OutcomeKind.HELD}, said
            case DeadReason.EXPIRED:
                assert last is None, said
            case DeadReason.DEADLINE:
                pass


def retried_by_hand(moves: Iterable[Move]) -> set[Hashable]:
    """Give the jobs that an operator brought back."""
    return {move.job for move in moves if move.source in TERMINAL and move.target in LIVE}


def made_once(made: Iterable[Hashable]) -> None:
    """K2: an id is given to one job; nothing comes twice, be it purged in between."""
    again = sorted(str(job) for job, times in Counter(made).items() if times > 1)
    assert not again, f"made more than once: {again}"


def one_live_job_a_key(moves: Iterable[Sequence[Move]], key_of: Mapping[Any, Hashable]) -> None:
    """K2: after every commit, each a sequence of moves, at most one job of a key is live."""
    live: dict[Hashable, set[Hashable]] = defaultdict(set)
    for commit in moves:
        for move in commit:
            if (key := key_of.get(move.job)) is None:
                continue
            if move.target in LIVE:
                live[key].add(move.job)
            else:
                live[key].discard(move.job)
        for key in {key_of[move.job] for move in commit if move.job in key_of}:
            assert len(live[key]) <= 1, f"key {key} is held by {live[key]} at once"


# --- leaving (K8), and who comes first after it -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A body that ran when its worker was told to leave; instants in seconds, None for what never came.

    `must_read`: it looks at its signal, and its loop turns. `released` is when its job was ready again.
    """

    job: Hashable
    claim_no: int
    must_read: bool
    told: float | None
    ended: float | None
    released: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """How one worker left: told at `asked`, gone at `gone`, by a clock that all instants of a run are on.

    `claims` and `starts` are all its claims and all bodies it began; `fates` is its own report, by job and claim.
    """

    worker: Hashable
    asked: float
    gone: float
    claims: Sequence[float]
    starts: Sequence[float]
    bodies: Sequence[Body]
    fates: Mapping[Any, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a departure may take, in seconds."""

    claim: float
    told: float
    released: float
    gone: float


def left_in_order(departure: Departure, within: Bounds) -> None:
    """K8: no claim once told; every body told, released once it unwinds or named in the report; gone in time."""
    who, asked = departure.worker, departure.asked
    late = [round(at - asked, 3) for at in departure.claims if at > asked + within.claim]
    assert not late, f"{who} claimed {late} s after it was told to leave"
    late = [round(at - asked, 3) for at in departure.starts if at > asked + within.claim]
    assert not late, f"{who} began bodies {late} s after it was told to leave"
    for body in departure.bodies:
        about = f"{who}, {body.job}, claim {body.claim_no}"
        if body.must_read:
            assert body.told is not None, f"{about}: never told"
            assert body.told <= asked + within.told, f"{about}: told {body.told - asked:.3f} s after"
        fate = departure.fates.get((body.job, body.claim_no))
        if body.ended is None:
            assert fate == "abandoned", f"{about}: its body never ended, its report says {fate}"
        elif body.ended > asked + within.told:
            assert fate is not None, f"{about}: it ran on, and the report does not name it"
        if body.ended is not None and fate == "interrupted":
            assert body.released is not None, f"{about}: not ready again"
            took = body.released - body.ended
            assert took <= within.released, f"{about}: ready {took:.3f} s after its body unwound"
    took = departure.gone - asked
    assert took <= within.gone, f"{who} was gone after {took:.2f} s, promised {within.gone:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A resumed job that is ready: seen committed at `visible`, claimed by a transaction that began at `claimed`."""

    job: Hashable
    rank: int
    visible: float
    claimed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A claim of a new job, by a transaction that had begun at `began` and has written it by `written`."""

    job: Hashable
    rank: int
    began: float
    written: float


def resumed_before_new(resumed: Iterable[Resumed], taken: Sequence[Taken]) -> None:
    """Nothing new is claimed past a resumed job of its priority that was there and that nobody was claiming."""
    taken = sorted(taken, key=lambda new: new.began)
    for waits in resumed:
        for new in islice(taken, bisect_right(taken, waits.visible, key=lambda new: new.began), None):
            if new.rank // 2 == waits.rank // 2 and new.written < waits.claimed:
                raise AssertionError(f"{new.job} is new and was claimed before {waits.job}, which was there")
