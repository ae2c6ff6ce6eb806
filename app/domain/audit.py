"""Who did what to what, and why: a row of the audit, which is written in the commit of the action it speaks of.

Values only. An entry is minted by whoever is asked to act, with its id, so that repeating an action whose reply was
lost leaves one row; the store adds its time and, where it is a job that is acted on, the job's tenant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from .request_claim import Effect, RequestClaim
from .snapshot import JobView

MAX_ACTOR_CHARS = 255
# Of a row's details, as JSON text.
MAX_DETAILS_BYTES = 16_384

# What an action came to, where nothing else is said of it: it is done, or there was nothing to do.
DONE = "done"
UNCHANGED = "unchanged"


class Target(StrEnum):
    """What kind of thing was acted on."""

    JOB = "job"
    QUEUE = "queue"
    WORKER = "worker"
    SCHEDULE = "schedule"
    OUTBOX = "outbox"
    FILTER = "filter"
    BULK = "bulk"
    LIMIT = "limit"
    STORE = "store"
    KEY = "key"
    WEBHOOK = "webhook"
    AUTH = "auth"


# What belongs to nobody alone: of these, rows without a tenant are everybody's to see. Of others they are the business
# of whoever acts for all tenants: keys for all of them, operations over all of them, strangers that were turned away.
SHARED = (Target.QUEUE, Target.WORKER, Target.SCHEDULE, Target.LIMIT, Target.STORE)


class Action(StrEnum):
    """Everything an operator can do that changes something; the words are those of the HTTP API."""

    JOB_CANCEL = "job.cancel"
    JOB_RETRY = "job.retry"
    JOB_FORK = "job.fork"
    JOB_RELEASE = "job.release"
    JOB_RUN_NOW = "job.run_now"
    JOB_UPDATE = "job.update"
    JOB_DELETE = "job.delete"
    JOB_DUPLICATE = "job.duplicate"
    JOB_REVEAL = "job.reveal"
    JOB_RELEASE_SLOTS = "job.release_slots"
    LIMIT_SET = "limit.set"
    QUEUE_PAUSE = "queue.pause"
    QUEUE_RESUME = "queue.resume"
    QUEUE_UPDATE = "queue.update"
    WORKER_DRAIN = "worker.drain"
    SCHEDULE_PAUSE = "schedule.pause"
    SCHEDULE_RESUME = "schedule.resume"
    SCHEDULE_FIRE = "schedule.fire"
    OUTBOX_REPLAY = "outbox.replay"
    PURGE = "store.purge"
    JOBS_MOVE = "store.move"
    BULK_MAKE = "bulk.make"
    BULK_ABORT = "bulk.abort"
    KEY_CREATE = "key.create"
    KEY_ROTATE = "key.rotate"
    KEY_REVOKE = "key.revoke"
    WEBHOOK_CREATE = "webhook.create"
    WEBHOOK_UPDATE = "webhook.update"
    WEBHOOK_ROTATE = "webhook.rotate"
    WEBHOOK_DELETE = "webhook.delete"
    WEBHOOK_RESEND = "webhook.resend"
    AUTH_REFUSED = "auth.refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """Who acts, and in their own words why. `actor` is a key's name, or who sits at the command line.

    `request` is the claim of the request that asks for it, where that has a key of its own.
    """

    actor: str
    reason: str | None = None
    request: RequestClaim | None = None

    @property
    def effect(self) -> Effect | None:
        """Give what an earlier try of the same request has done: then nothing is left to do."""
        return None if self.request is None else self.request.effect


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One action, as it is handed to the verb that does it.

    `target` is an id or a name, or the words of a filter. `tenant` is None for what belongs to nobody alone; a job's is
    looked up. `details` are plain JSON values: what changed, from what to what. With a `request`, its effect is marked
    in the same commit, or the commit fails: see `RequestStore`.
    """

    id: UUID
    actor: str
    action: Action
    target_kind: Target
    target: str | None
    tenant: str | None = None
    reason: str | None = None
    outcome: str = DONE
    details: Mapping[str, object] = field(default_factory=dict)
    request: RequestClaim | None = None

    @property
    def effect(self) -> Effect:
        """Give the row as the effect of a request."""
        return Effect(target=self.target, outcome=self.outcome, details=self.details)

    def came_to(self, outcome: str, **details: object) -> AuditEntry:
        """Give the entry with what the action came to; `details` are added to its own."""
        return replace(self, outcome=outcome, details={**self.details, **details})

    def of_deleted(self, view: JobView) -> AuditEntry:
        """Give the entry about a job that is gone: nothing else says any more what it was, and whose."""
        was = {"name": view.name, "queue": view.queue, "state": view.state.value}
        return replace(self, tenant=view.tenant, details={**self.details, **was})


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditView:
    """A row of the audit. `seq` is its place: rows are given the newest first. `details` is JSON text."""

    seq: int
    id: UUID
    at: datetime
    actor: str
    tenant: str | None
    action: str
    target_kind: str
    target: str | None
    reason: str | None
    outcome: str
    details: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """A filter over the audit. `tenant` gives those without one, too, about what is `SHARED`; `before` is a `seq`."""

    actor: str | None = None
    action: str | None = None
    target_kind: str | None = None
    target: str | None = None
    tenant: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: int | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """One page, newest first; it may be short. `next_before` goes on from here, None at the end."""

    items: tuple[AuditView, ...]
    next_before: int | None
