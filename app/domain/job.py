"""A job as it is asked for, claimed and named: ids, the enqueue request, the claim and its counters.

What is made for every claim is a named tuple: of all immutable values the cheapest to make. Name the fields all the
same; nothing depends on their order but what makes one out of a row.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, NewType
from uuid import UUID

JobId = NewType("JobId", UUID)
RunId = NewType("RunId", UUID)
WorkerId = NewType("WorkerId", int)

OnConflict = Literal["return", "error"]

DEFAULT_QUEUE = "default"
DEFAULT_TENANT = "default"
DEFAULT_PRIORITY = 5
MAX_PRIORITY = 9
MAX_TAGS = 20
SHORTEST_DURATION = timedelta(milliseconds=1)  # durations are stored in milliseconds
LONGEST_DURATION = timedelta(days=5 * 366)
NAME_PATTERN = r"^[a-z0-9][a-z0-9_.:-]{0,127}$"

LANE_RESUMED = 0
LANE_NEW = 1


def rank_of(priority: int, lane: int) -> int:
    """Give the place in a queue's order: priority first, resumed work before new within it."""
    return priority * 2 + lane


def key_hash(tenant: str, name: str, key: str) -> UUID:
    """Give the 128-bit identity of an idempotency key; lengths are mixed in, so that no two triples glue to one."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (tenant, name, key):
        raw = part.encode()
        digest.update(len(raw).to_bytes(4, "big"))
        digest.update(raw)
    return UUID(bytes=digest.digest())


class LimitKey(NamedTuple):
    """One limit or rate that a job is under: the limit's name within the job type, and the key it is counted by."""

    limit: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to enqueue, admitted: every value is checked and final.

    The id is minted before the statement so that an enqueue whose COMMIT reply was lost can be repeated safely.
    `payload` is validated JSON text and is stored as it is. `run_at` and `delay` exclude each other. `timeout` is a
    request's lower bound on the job type's own. `source_id` makes a republish return the first job; `staged_at` is when
    it was staged, by the clock of its outbox: events from then on are for its run. `limits` are the names and keys of
    the limits it is under. `callback` is the text of a `Callback`.
    """

    id: JobId
    name: str
    payload: str
    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    tenant: str = DEFAULT_TENANT
    max_attempts: int = 25
    max_crashes: int = 3
    key: str | None = None
    fingerprint: int = 0
    on_conflict: OnConflict = "return"
    dedupe_for: timedelta | None = None
    run_at: datetime | None = None
    delay: timedelta | None = None
    max_queue_time: timedelta | None = None
    deadline: timedelta | None = None
    timeout: timedelta | None = None
    source_id: UUID | None = None
    staged_at: datetime | None = None
    parent_id: JobId | None = None
    enqueued_by: str | None = None
    traceparent: str | None = None
    tags: tuple[str, ...] = ()
    meta: str | None = None
    limits: tuple[LimitKey, ...] = ()
    callback: str | None = None

    @property
    def key_hash(self) -> UUID | None:
        """Give the identity of the key within tenant and name, or None without a key."""
        return None if self.key is None else key_hash(self.tenant, self.name, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """The answer to an enqueue: the job that now stands for the request, and whether it was there before."""

    id: JobId
    run_id: RunId
    deduped: bool
    key_expires_at: datetime | None = None


class ClaimToken(NamedTuple):
    """The fence of one claim. `fence` is the driver's per-claim number; `claim_no` is the one people read."""

    job_id: JobId
    claim_no: int
    worker_id: WorkerId
    fence: int


class Counters(NamedTuple):
    """What a job's history adds up to.

    `attempt` is the counted failures so far, plus one while running and when done.
    """

    attempt: int = 0
    claim_no: int = 0
    crashes: int = 0
    interrupts: int = 0

    def claimed(self) -> Counters:
        """Open an attempt: the claim number grows for the job's whole life."""
        return self._replace(attempt=self.attempt + 1, claim_no=self.claim_no + 1)

    def completed(self) -> Counters:
        """Close it as done: the attempt stays counted."""
        return self

    def failed(self) -> Counters:
        """Close it as a counted failure: the attempt stays counted."""
        return self

    def uncounted(self) -> Counters:
        """Close it without counting: suspended, cancelled, held, surrendered."""
        return self._replace(attempt=self.attempt - 1)

    def interrupted(self) -> Counters:
        """Close it as interrupted: counted among interrupts, not among attempts."""
        return self._replace(attempt=self.attempt - 1, interrupts=self.interrupts + 1)

    def crashed(self, *, max_crashes: int, ran_alone: bool) -> Counters:
        """Close it as crashed.

        The crash that would spend the budget counts only if the job ran alone in its worker: a poison job kills
        itself, not its neighbours.
        """
        last = self.crashes + 1 >= max_crashes
        crashes = self.crashes if last and not ran_alone else self.crashes + 1
        return self._replace(attempt=self.attempt - 1, crashes=crashes)

    def retried_by_operator(self) -> Counters:
        """Give both budgets back; the claim number and the interrupts stay."""
        return self._replace(attempt=0, crashes=0)


class ClaimedJob(NamedTuple):
    """A job in a worker's hands. `deadline_in` is the time left when it was claimed, by the database's clock.

    `is_limited`: it has one of the places of a queue that lets only so many of its jobs run. `has_slots`: it holds
    slots, which are given back once its body has ended. `calls_back`: somebody asked to be told of its end.
    Its ids may be of a store's own class of UUIDs, equal to the plain ones; what a body sees is made plain.
    """

    token: ClaimToken
    run_id: RunId
    name: str
    queue: str
    priority: int
    tenant: str
    payload: str
    counters: Counters
    max_attempts: int
    max_crashes: int
    created_at: datetime
    claimed_at: datetime
    run_at: datetime | None = None
    timeout: timedelta | None = None
    deadline_in: timedelta | None = None
    key: str | None = None
    parent_id: JobId | None = None
    enqueued_by: str | None = None
    traceparent: str | None = None
    tags: tuple[str, ...] = ()
    meta: str | None = None
    is_limited: bool = False
    has_slots: bool = False
    calls_back: bool = False

    @property
    def must_run_alone(self) -> bool:
        """Say whether one more crash would spend the job's crash budget."""
        return self.counters.crashes + 1 >= self.max_crashes
