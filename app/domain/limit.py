"""Concurrency limits and rates: what a job type declares, what a job carries, and what a store shows of them.

A limit is of a job type, by a name of its own, and counts each key apart. What a job carries are its keys, as they were
when it was enqueued; how many may run is the type's, as published last or as an operator has set it. Pure.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from .errors import SettingsInvalid
from .job import ClaimedJob, JobId, LimitKey, WorkerId

DEFAULT_LIMIT = "limit"
# The name under which a type's rate is kept beside its limits.
RATE = "rate"
MOST_SLOTS = 1_000_000
MOST_LIMITS = 8
# Of the jobs that hold a key's slots so many are named to whoever asks why another waits.
HOLDERS_SHOWN = 20
# A key that nobody has used for so long is forgotten, a rate's once it is full again.
KEY_KEPT = timedelta(days=1)
# A code version counts for so long after its last worker has left, or after it was published.
VERSION_KEPT = timedelta(seconds=60)
# One that has not been published for so long, and does not count, is forgotten: it would come anew.
VERSION_FORGOTTEN = timedelta(days=30)


class GateReason(StrEnum):
    """Why a job waits in the gate; shown as the `state_reason` of a ready job."""

    SLOT = "slot"
    RATE = "rate"


def reason_of(limit: LimitKey) -> GateReason:
    """Give the word for a job that waits for this one of its limits."""
    return GateReason.RATE if limit.limit == RATE else GateReason.SLOT


def limit_hash(name: str, limit: LimitKey) -> UUID:
    """Give the 128-bit identity of a key of a limit of a job type; lengths are mixed in, as with idempotency keys."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (name, *limit):
        raw = part.encode()
        digest.update(len(raw).to_bytes(4, "big"))
        digest.update(raw)
    return UUID(bytes=digest.digest())


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRule:
    """How many: of slots at once, or with `per` of starts in that time."""

    limit: str
    n: int
    per: timedelta | None = None


def rules_of(document: str) -> tuple[LimitRule, ...]:
    """Give the limits of a published job type; one published by an earlier release has none.

    Raises:
        SettingsInvalid: the document cannot be read.
    """
    try:
        policy = json.loads(document).get("policy", {})
        rules = [LimitRule(limit=limit["name"], n=limit["n"]) for limit in policy.get("limits") or ()]
        if (rate := policy.get("rate")) is not None:
            rules.append(LimitRule(limit=RATE, n=rate["n"], per=timedelta(milliseconds=rate["per_ms"])))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsInvalid(
            f"the limits of a published job type cannot be read: {type(error).__name__}",
            fix="publish it again from a worker of this release",
        ) from error
    return tuple(rules)


class Bucket(NamedTuple):
    """What is left of a rate's key: up to `n` starts, filled evenly, `n` in `per`."""

    tokens: float
    at: datetime

    def filled(self, rule: LimitRule, now: datetime) -> Bucket:
        """Give it as it is at an instant; a clock that went back takes nothing away."""
        per = rule.per or timedelta(seconds=1)
        gained = max((now - self.at) / per, 0.0) * rule.n
        return Bucket(min(self.tokens + gained, float(rule.n)), max(now, self.at))

    def takes(self) -> Bucket:
        """Give it with one start taken."""
        return self._replace(tokens=self.tokens - 1.0)

    @property
    def has_one(self) -> bool:
        """Say whether one may start. What rounding takes from a whole one does not count."""
        return self.tokens >= 1.0 - 1e-9

    def next_at(self, rule: LimitRule) -> datetime:
        """Give the instant at which one may start."""
        per = rule.per or timedelta(seconds=1)
        missing = max(1.0 - self.tokens, 0.0)
        return self.at + per * (missing / rule.n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """What a look into the gate gave: attempts that are open now, with their slots.

    `is_contended`: somebody else was deciding about some keys; look again in some milliseconds. `is_full`: as many as
    were asked for. `next_in`: when a rate lets the next one start.
    """

    jobs: tuple[ClaimedJob, ...] = ()
    is_contended: bool = False
    is_full: bool = False
    next_in: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotView:
    """One slot that is held. `is_open`: its attempt is open; else a body runs on, or its end is not told yet."""

    name: str
    limit: str
    key: str
    job_id: JobId
    claim_no: int
    worker_id: WorkerId
    taken_at: datetime
    is_open: bool
    tenant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotQuery:
    """A filter over held slots, by their jobs' ids. `after` is the id a page ended with.

    A page has at least `limit` slots, 1 to 200, where there are so many: those of one job stand on one page.
    """

    name: str | None = None
    tenant: str | None = None
    after: JobId | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLimit:
    """A limit or rate of a job type as it is in force: `n` is the operator's where `set_by` says so.

    `declared` is the newest code version's, None where that has it no more: such a limit holds nobody.
    """

    name: str
    limit: str
    n: int | None
    declared: int | None
    per: timedelta | None
    set_by: str | None
    held: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFacts:
    """What stands between a job and one of its limits.

    `n` is None when the limit holds nobody any more. `held` and `holders` are of slots; `next_at` is when a rate lets
    one start, None for at once. `ahead` is how many wait for the same key before it, counted where it waits for it.
    """

    limit: str
    key: str
    n: int | None
    per: timedelta | None
    held: int
    holders: tuple[JobId, ...]
    next_at: datetime | None
    ahead: int | None

    @property
    def is_free(self) -> bool:
        """Say whether this one would let a job start now."""
        if self.n is None:
            return True
        return self.next_at is None if self.per is not None else self.held < self.n


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """The limits of one job, and whether it waits in the gate. `waits_for` is what a look found in its way."""

    is_gated: bool
    waits_for: GateReason | None
    limits: tuple[LimitFacts, ...]
