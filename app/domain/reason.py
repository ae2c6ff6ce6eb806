"""Why a job is not running: the words for it, and the one snapshot they are found in.

Values only. A store gives a `Situation`; `explain` makes reasons of it. Codes are published: none is renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from .job import JobId
from .limit import LimitFacts
from .snapshot import JobView, WorkerView
from .turns import TurnFacts

# Jobs before one in its queue are counted so far.
MOST_AHEAD = 10_000


class ReasonKind(StrEnum):
    """What a reason is about, which says whether it blocks."""

    STATE = "state"
    QUEUE = "queue"
    LIMIT = "limit"
    FLEET = "fleet"
    TURN = "turn"

    @property
    def blocks(self) -> bool:
        """Say whether not even a worker that serves queue, name and version would claim the job."""
        return self in {ReasonKind.STATE, ReasonKind.QUEUE, ReasonKind.LIMIT}


class ReasonCode(StrEnum):
    """Why a job is not running, or what it waits for before it is."""

    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"
    HELD = "held"
    DELAYED = "delayed"
    RETRY = "retry"
    SNOOZED = "snoozed"
    INTERRUPTED = "interrupted"
    DUE = "due"
    SLEEPS = "sleeps"
    WAITS_FOR_EVENT = "waits_for_event"
    WAITS_FOR_CHILD = "waits_for_child"
    WOKEN = "woken"
    QUEUE_PAUSED = "queue_paused"
    QUEUE_AT_LIMIT = "queue_at_limit"
    SLOT = "slot"
    RATE = "rate"
    NO_WORKERS = "no_workers"
    QUEUE_NOT_SERVED = "queue_not_served"
    WORKERS_DRAINING = "workers_draining"
    NAME_UNKNOWN = "name_unknown"
    VERSION_NOT_SERVED = "version_not_served"
    WORKERS_BUSY = "workers_busy"
    RUNS_ALONE = "runs_alone"
    AHEAD = "ahead"
    TURN = "turn"
    NEXT = "next"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonRule:
    """What a code means, for the documentation; `facts` are the names every reason of the code carries."""

    code: ReasonCode
    kind: ReasonKind
    when: str
    facts: tuple[str, ...]


def _rule(code: ReasonCode, kind: ReasonKind, when: str, *facts: str) -> ReasonRule:
    return ReasonRule(code=code, kind=kind, when=when, facts=facts)


_C, _K = ReasonCode, ReasonKind

# In the order in which reasons are given.
REASON_RULES: tuple[ReasonRule, ...] = (
    _rule(_C.RUNNING, _K.STATE, "a worker runs it", "worker_id", "host", "since", "lease_until", "heartbeat_age_ms"),
    _rule(_C.DONE, _K.STATE, "it has completed", "finished_at"),
    _rule(_C.DEAD, _K.STATE, "it is a dead letter", "finished_at", "reason", "error"),
    _rule(_C.CANCELLED, _K.STATE, "somebody cancelled it", "finished_at", "reason"),
    _rule(_C.HELD, _K.STATE, "its run does not fit the code at hand", "reason"),
    _rule(_C.DELAYED, _K.STATE, "it was enqueued for later", "until"),
    _rule(
        _C.RETRY, _K.STATE, "an attempt failed, and the next is due later", "until", "attempt", "max_attempts", "error"
    ),
    _rule(_C.SNOOZED, _K.STATE, "its handler asked to be called again later", "until"),
    _rule(_C.INTERRUPTED, _K.STATE, "a drain cut it, and it asked for a time", "until"),
    _rule(_C.DUE, _K.STATE, "its time has come, and no worker has made it ready yet", "since"),
    _rule(_C.SLEEPS, _K.STATE, "its run sleeps", "step", "since", "until"),
    _rule(_C.WAITS_FOR_EVENT, _K.STATE, "its run waits for an event", "step", "since", "until", "event", "key"),
    _rule(_C.WAITS_FOR_CHILD, _K.STATE, "its run waits for another job", "step", "since", "child_id"),
    _rule(_C.WOKEN, _K.STATE, "what its run waited for is over, and no worker has made it ready yet"),
    _rule(_C.QUEUE_PAUSED, _K.QUEUE, "its queue is paused", "queue", "by", "since", "until", "reason"),
    _rule(_C.QUEUE_AT_LIMIT, _K.QUEUE, "as many jobs of its queue run as may", "queue", "running", "concurrency"),
    _rule(
        _C.SLOT, _K.LIMIT, "all slots of one of its limits are held", "limit", "key", "n", "held", "holders", "ahead"
    ),
    _rule(_C.RATE, _K.LIMIT, "its rate has no start left", "key", "n", "per_ms", "next_at", "ahead"),
    _rule(_C.NO_WORKERS, _K.FLEET, "no worker lives"),
    _rule(_C.QUEUE_NOT_SERVED, _K.FLEET, "no live worker serves its queue", "queue", "served"),
    _rule(_C.WORKERS_DRAINING, _K.FLEET, "all workers of its queue are leaving", "queue", "workers"),
    _rule(_C.NAME_UNKNOWN, _K.FLEET, "no worker of its queue knows its job type", "name", "published", "versions"),
    _rule(
        _C.VERSION_NOT_SERVED,
        _K.FLEET,
        "it is kept for code of one version, which no worker of its queue has",
        *("version", "until", "versions"),
    ),
    _rule(_C.WORKERS_BUSY, _K.TURN, "every worker that could claim it is full", "running", "concurrency", "workers"),
    _rule(
        _C.RUNS_ALONE, _K.TURN, "it must run alone in its worker: one more crash is its last", "crashes", "max_crashes"
    ),
    _rule(_C.AHEAD, _K.TURN, "jobs of its queue are before it", "count", "capped", "queue"),
    _rule(
        _C.TURN,
        _K.TURN,
        "tenants of its queue take turns, and other jobs begin before it",
        *("queue", "tenant", "weight", "tenants", "own_ahead", "count", "capped"),
    ),
    _rule(_C.NEXT, _K.TURN, "nothing keeps it: a worker claims it at its next look", "workers"),
)
KIND_OF_REASON: Mapping[ReasonCode, ReasonKind] = {rule.code: rule.kind for rule in REASON_RULES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason: `text` says it to people, `facts` to programs. `repair` is what would change it, where one can."""

    code: ReasonCode
    text: str
    facts: Mapping[str, object] = field(default_factory=dict)
    repair: str | None = None

    @property
    def kind(self) -> ReasonKind:
        """Give what it is about."""
        return KIND_OF_REASON[self.code]


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseView:
    """Who paused a queue, when and why; `until` ends it by itself."""

    at: datetime
    by: str
    reason: str | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PinView:
    """A ready job that is kept for workers of one code version, until an instant."""

    version: str
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A job and everything that decides about its claim, in one snapshot.

    `is_claimable` is the claim's own word: a worker that serves queue, name and version, and has nothing else to do,
    would take it. `ahead` counts the jobs before it in its queue, up to `MOST_AHEAD`. `published` is the code version
    that published its job type last. `concurrency` is how many jobs of its queue may run at once, `running` how many
    do, counted only where that is limited. `limits` are the job's own, in the order it has them. In a fair queue
    `ahead` goes by turns, and `turn` says whose.
    """

    at: datetime
    job: JobView
    is_claimable: bool
    pause: PauseView | None = None
    concurrency: int | None = None
    running: int = 0
    pin: PinView | None = None
    ahead: int = 0
    published: str | None = None
    limits: tuple[LimitFacts, ...] = ()
    turn: TurnFacts | None = None
    workers: tuple[WorkerView, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job is not running, the strongest reason first; never empty.

    `is_runnable`: a worker that serves its queue, name and version would claim it. `is_served`: there is one, and it
    is not leaving.
    """

    job_id: JobId
    job: JobView
    at: datetime
    is_runnable: bool
    is_served: bool
    reasons: tuple[Reason, ...]
