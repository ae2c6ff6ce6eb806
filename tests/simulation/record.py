"""What is remembered of a world: facts in order, from the store, the bodies, the machines and whoever asked for what.

The store is audited at the two places where it writes tokens and ledger rows, so that no verb can forget to tell. Two
runs of one seed give the same facts; `digest` says so in a word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from app.domain.audit import AuditEntry
from app.domain.clock import Clock
from app.domain.job import ClaimedJob, ClaimToken, JobId, WorkerId
from app.domain.limit import RATE
from app.domain.outcome import KIND_OF, CancelVerdict, OutcomeKind, SettleAnswer, Settlement
from app.domain.request_claim import RequestClaim
from app.domain.snapshot import AttemptView
from app.domain.state import State
from app.domain.step import NewStep
from app.drivers.memory.driver import MemoryDriver
from app.drivers.memory.limit_rows import Slot
from app.drivers.memory.rows import Finished, Running, Token, Wait, Waiting, state_of
from app.drivers.memory.store import Store
from app.drivers.protocol import ClaimRequest

FactT = TypeVar("FactT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that happened, at an instant of virtual time."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved(Fact):
    """The store moved a job's token."""

    job: str
    source: State | None
    target: State | None
    claim_no: int
    worker: int | None
    is_snooze: bool
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed(Fact):
    """The store wrote a row of the attempt ledger."""

    job: str
    claim_no: int
    worker: int | None
    outcome: OutcomeKind
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled(Fact):
    """The store answered for one settlement; `lease_left` in seconds, None for a worker that has none any more."""

    job: str
    claim_no: int
    worker: int
    outcome: OutcomeKind
    answer: SettleAnswer
    lease_left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Body(Fact):
    """A body began, was told to stop, or ended; `what` says how."""

    step: str
    job: str
    claim_no: int
    machine: str
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slotted(Fact):
    """A claim took a slot of a key, or its slot went back; `n` is the number in force then."""

    key: str
    job: str
    claim_no: int
    is_taken: bool
    n: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated(Fact):
    """A job began under a rate of `n` in so many seconds."""

    key: str
    job: str
    n: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded(Fact):
    """The store took a step of a run, or had it already."""

    job: str
    claim_no: int
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent(Fact):
    """A machine called the store, and what the network does with it."""

    machine: str
    verb: str
    fate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed(Fact):
    """A machine got an answer to what it renews its lease by, and when it had asked."""

    machine: str
    sent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Said(Fact):
    """A worker said something of itself."""

    machine: str
    event: str
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate(Fact):
    """A machine was started, told to leave, killed, frozen, …"""

    machine: str
    what: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Fact):
    """Somebody asked the store for something by job; `answer` is None while it is under way, or unknown for ever."""

    verb: str
    job: str
    answer: str | None


class History:
    """The facts of one world, in order. `name` gives a job's short name."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._names: dict[JobId, str] = {}
        self.facts: list[Fact] = []

    def add(self, kind: type[Fact], **values: Any) -> None:
        self.facts.append(kind(at=round(self._now(), 6), **values))

    def of(self, kind: type[FactT]) -> list[FactT]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def name(self, job_id: JobId) -> str:
        return self._names.setdefault(job_id, f"job{len(self._names)}")

    def named(self, text: str) -> str:
        """Give the short name of a job whose id is given as text."""
        return self.name(JobId(UUID(text)))

    def lines(self) -> list[str]:
        return [repr(fact) for fact in self.facts]

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.lines()).encode()).hexdigest()


class AuditedStore(Store):
    """The memory driver's rows, each write of a token, a slot or a ledger row told to a history."""

    def __init__(self, clock: Clock, history: History) -> None:
        super().__init__(clock)
        self._history = history
        self._slots: tuple[Slot, ...] = ()

    @contextmanager
    def statement(self, audit: AuditEntry | None = None, *, claim: RequestClaim | None = None) -> Iterator[datetime]:
        with super().statement(audit, claim=claim) as now:
            yield now
            if self._slots or self.limits.slots:
                self._tell_slots()

    def _tell_slots(self) -> None:
        before, self._slots = self._slots, tuple(self.limits.slots)
        changes = [(slot, False) for slot in before if slot not in self._slots]
        for slot, is_taken in (*changes, *((slot, True) for slot in self._slots if slot not in before)):
            rule = self.limits.rule(slot.name, slot.limit)
            self._history.add(
                Slotted,
                key=f"{slot.name} {slot.limit.key}",
                job=self._history.name(slot.token.job_id),
                claim_no=slot.token.claim_no,
                is_taken=is_taken,
                n=None if rule is None else rule.n,
            )

    def _tell_start(self, job_id: JobId) -> None:
        job = self.envelopes[job_id].job
        for limit in (limit for limit in job.limits if limit.limit == RATE):
            rule = self.limits.rule(job.name, limit)
            if rule is not None and rule.per is not None:
                name, seconds = self._history.name(job_id), rule.per / timedelta(seconds=1)
                self._history.add(Rated, key=f"{job.name} {limit.key}", job=name, n=rule.n, seconds=seconds)

    def place(self, job_id: JobId, token: Token) -> None:
        before = self.tokens.get(job_id)
        self._history.add(
            Moved,
            job=self._history.name(job_id),
            source=None if before is None else state_of(before),
            target=state_of(token),
            claim_no=token.counters.claim_no,
            worker=int(token.worker_id) if isinstance(token, Running) else None,
            is_snooze=isinstance(token, Waiting) and token.reason is Wait.SNOOZE,
            reason=token.reason if isinstance(token, Finished) else None,
        )
        if isinstance(token, Running):
            self._tell_start(job_id)
        super().place(job_id, token)

    def record(self, job_id: JobId, row: AttemptView) -> None:
        self._history.add(
            Closed,
            job=self._history.name(job_id),
            claim_no=row.number,
            worker=None if row.worker_id is None else int(row.worker_id),
            outcome=row.outcome,
            cause=row.cause,
        )
        super().record(job_id, row)


class AuditedDriver(MemoryDriver):
    """The store of a world. What it answers to a fenced write is on record with the lease it was written under."""

    def __init__(self, clock: Clock, history: History) -> None:
        super().__init__(clock)
        self._clock = clock
        self._history = history
        self.store = self._store = AuditedStore(clock, history)

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[SettleAnswer, ...]:
        left = self._leases(settlements)
        answers = await super().settle(settlements)
        self._note(settlements, answers, left)
        return answers

    async def settle_and_claim(
        self, settlements: Sequence[Settlement], request: ClaimRequest
    ) -> tuple[tuple[SettleAnswer, ...], tuple[ClaimedJob, ...]]:
        left = self._leases(settlements)
        answers, claimed = await super().settle_and_claim(settlements, request)
        self._note(settlements, answers, left)
        return answers, claimed

    async def record_step(self, token: ClaimToken, step: NewStep) -> bool:
        is_held = await super().record_step(token, step)
        if is_held:
            name = self._history.name(token.job_id)
            self._history.add(Recorded, job=name, claim_no=token.claim_no, step=step.name)
        return is_held

    async def cancel(
        self, job_id: JobId, *, reason: str, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> CancelVerdict:
        verdict = await super().cancel(job_id, reason=reason, tenant=tenant, audit=audit)
        self._history.add(Asked, verb="cancel", job=self._history.name(job_id), answer=verdict.value)
        return verdict

    def _leases(self, settlements: Sequence[Settlement]) -> list[float | None]:
        return [self._lease_left(settlement.token.worker_id) for settlement in settlements]

    def _lease_left(self, worker_id: WorkerId) -> float | None:
        worker = self.store.workers.get(worker_id)
        if worker is None or worker.lost_at is not None or worker.closed_at is not None:
            return None
        return (worker.lease_until - self._clock.now()) / timedelta(seconds=1)

    def _note(
        self, settlements: Sequence[Settlement], answers: Sequence[SettleAnswer], left: Sequence[float | None]
    ) -> None:
        for settlement, answer, lease_left in zip(settlements, answers, left, strict=True):
            token: ClaimToken = settlement.token
            self._history.add(
                Settled,
                job=self._history.name(token.job_id),
                claim_no=token.claim_no,
                worker=int(token.worker_id),
                outcome=KIND_OF[type(settlement.outcome)],
                answer=answer,
                lease_left=lease_left,
            )


class WorldClock:
    """The store's clock."""

    def __init__(self, start: datetime, monotonic: Callable[[], float]) -> None:
        self._start = start
        self.monotonic = monotonic

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.monotonic())
