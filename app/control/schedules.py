"""Schedules as operators see them: what is due next and what became of the last, pause, resume and fire now.

Also what an expression would do, before it is declared. Never imports a handler: a job fired by hand is admitted
against the published job type. Called by the HTTP routes and the command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ..domain.audit import Acting, Action, AuditEntry, Target
from ..domain.errors import Forbidden, JobUnknown, NotFound, NotImplementedYet, OutlastError
from ..domain.job import JobId
from ..domain.redaction import redacted
from ..domain.request_claim import Effect
from ..domain.schedule import WHY_DEDUPED, Decided, OccurrenceOutcome, OccurrenceView, ScheduleView
from ..drivers.schedules import ScheduleStore
from ..jobs.admission import Admission
from ..jobs.cron import Cron, cron_of
from ..jobs.jobtype import JobTypes
from ..jobs.schedule import ScheduledJob
from .acting import done_before, entry_of
from .catalogue import PUBLISH_FIRST, TypeCatalogue
from .redaction import paths_of
from .render import Document, raw

SHOWN_OCCURRENCES = 20
SHOWN_FIRES = 5
MOST_FIRES = 100


class ScheduleControl:
    """The verbs on schedules."""

    def __init__(self, store: ScheduleStore | None, *, catalogue: TypeCatalogue, admission: Admission) -> None:
        self._store = store
        self._catalogue = catalogue
        self._admission = admission
        self._types = JobTypes()

    async def list(
        self, *, with_payload: bool = True, tenant: str | None = None, occurrences: int = 1
    ) -> list[Document]:
        """Give every schedule by name, with its last outcomes and its next time; payloads as in `find`."""
        store = self._given()
        views, now = await store.schedules(occurrences=occurrences), await store.now()
        return [await self._shown(view, now, fires=1, with_payload=with_payload, tenant=tenant) for view in views]

    async def find(
        self, name: str, *, fires: int = SHOWN_FIRES, with_payload: bool = True, tenant: str | None = None
    ) -> Document:
        """Give one schedule with its last 20 outcomes and its next times. Raises `NOT_FOUND`.

        With a tenant, the payload only if the jobs of the schedule are that tenant's.
        """
        store = self._given()
        view = await self._view(name)
        return await self._shown(view, await store.now(), fires=fires, with_payload=with_payload, tenant=tenant)

    async def _shown(
        self, view: ScheduleView, now: datetime, *, fires: int, with_payload: bool, tenant: str | None
    ) -> Document:
        is_seen = with_payload and await self._is_seen(view, tenant)
        published = await self._catalogue.find(str(_content(view).get("job"))) if is_seen else None
        redact = () if published is None else paths_of(published.document)
        return schedule_document(view, now, fires=fires, with_payload=is_seen, redact=redact)

    async def pause(self, name: str, *, by: str, reason: str | None) -> None:
        """Let a schedule skip its occurrences; the first pause stands. Raises `NOT_FOUND`."""
        audit = _entry(Action.SCHEDULE_PAUSE, name, by=by, reason=reason)
        await self._given().pause(name, by=by, reason=reason, audit=audit)

    async def resume(self, name: str, *, by: str, reason: str | None = None) -> None:
        """Let it fire again from now on; nothing is caught up. Raises `NOT_FOUND`."""
        await self._given().resume(name, audit=_entry(Action.SCHEDULE_RESUME, name, by=by, reason=reason))

    async def fire(self, name: str, *, by: Acting, tenant: str | None) -> Decided:
        """Enqueue a job of a schedule now, also while it is paused; durable when this returns.

        Raises:
            NotFound: there is no such schedule.
            JobUnknown: nobody has published its job type, or its key or tenant cannot be evaluated here.
            Forbidden: the job belongs to a tenant the caller may not act for.
            JobDuplicate, IdempotencyMismatch: its key is taken.
        """
        done = done_before(by)
        if done is not None:
            return _decided(done)
        view = await self._view(name)
        scheduled = ScheduledJob(name=name, document=view.document)
        published = await self._catalogue.find(scheduled.content["job"])
        if published is None:
            raise JobUnknown(
                f"no worker has published the job type {scheduled.content['job']!r} of {name}", fix=PUBLISH_FIRST
            )
        job = scheduled.new_job(self._types.of(published), self._admission)
        if tenant is not None and job.tenant != tenant:
            raise Forbidden(f"the job belongs to another tenant than {tenant!r}", fix="use a key of that tenant")
        audit = entry_of(by, Action.SCHEDULE_FIRE, Target.SCHEDULE, name)
        return await self._given().fire(name, job, by=by.actor, audit=audit)

    async def preview(self, cron: str, tz: str, *, count: int, after: datetime | None) -> Document:
        """Say what an expression means and when it holds next, after now or another instant.

        Raises:
            ScheduleInvalid: the expression or the zone is none, or never holds.
        """
        return preview_document(cron, tz, count=count, after=await self._given().now() if after is None else after)

    async def _is_seen(self, view: ScheduleView, tenant: str | None) -> bool:
        """Say whether a tenant's callers may see what a schedule enqueues; not where that cannot be found out."""
        if tenant is None:
            return True
        try:
            scheduled = ScheduledJob(name=view.name, document=view.document)
            published = await self._catalogue.find(scheduled.content["job"])
            if published is None:
                return False
            return scheduled.new_job(self._types.of(published), self._admission).tenant == tenant
        except OutlastError:
            return False

    async def _view(self, name: str) -> ScheduleView:
        view = await self._given().find(name, occurrences=SHOWN_OCCURRENCES)
        if view is None:
            raise NotFound(f"there is no schedule {name[:128]!r}", fix="give a name that GET /v1/schedules lists")
        return view

    def _given(self) -> ScheduleStore:
        if self._store is None:
            raise NotImplementedYet("this store has no schedules", fix="set OUTLAST_DATABASE_URL to postgresql://…")
        return self._store


def _entry(action: Action, name: str, *, by: str, reason: str | None) -> AuditEntry | None:
    return entry_of(Acting(actor=by, reason=reason), action, Target.SCHEDULE, name)


def _decided(done: Effect) -> Decided:
    """Give the answer an earlier try of the same request had."""
    outcome = OccurrenceOutcome(done.outcome)
    return Decided(
        at=datetime.fromisoformat(done.details["at"]),
        outcome=outcome,
        why=None if outcome is OccurrenceOutcome.FIRED else WHY_DEDUPED,
        job_id=JobId(UUID(done.details["job_id"])),
    )


def preview_document(cron: str, tz: str, *, count: int, after: datetime) -> Document:
    """Say what an expression means and when it holds after an instant.

    Raises:
        ScheduleInvalid: the expression or the zone is none, or never holds.
    """
    rule = cron_of(cron, tz)
    return {
        "cron": rule.expression,
        "tz": rule.tz,
        "description": rule.explain(),
        "after": after,
        "fires": [fire_document(rule, at) for at in rule.next(after, count)],
    }


def schedule_document(
    view: ScheduleView, now: datetime, *, fires: int, with_payload: bool = True, redact: Sequence[str] = ()
) -> Document:
    """Give the representation of a schedule. `fires`: how many of its next times; none while it is paused.

    `redact` names places that are left out of its payload.
    """
    content = _content(view)
    rule = _rule(view)
    after = max(view.watermark, now)
    is_declared = view.is_declared(now)
    next_fires = rule.next(after, fires) if rule is not None and is_declared and view.paused_at is None else []
    document: Document = {
        "name": view.name,
        "job": content.get("job"),
        "cron": view.cron,
        "tz": view.tz,
        "description": None if rule is None else rule.explain(),
        "catch_up": content.get("catch_up"),
        "max_catch_up": content.get("max_catch_up"),
        "overlap": content.get("overlap"),
        "code_version": view.code_version,
        "published_at": view.published_at,
        "is_declared": is_declared,
        "watermark": view.watermark,
        "is_paused": view.paused_at is not None,
        "paused_at": view.paused_at,
        "paused_by": view.paused_by,
        "pause_reason": view.pause_reason,
        "next_fires": [] if rule is None else [fire_document(rule, at) for at in next_fires],
        "occurrences": [occurrence_document(row) for row in view.occurrences],
    }
    if with_payload:
        given = content.get("payload")
        payload = redacted(given if isinstance(given, str) else None, redact)
        document |= {"options": content.get("options"), "payload": raw(payload)}
    return document


def fire_document(rule: Cron, at: datetime) -> Document:
    """Give one time, in UTC and in the zone, with a mark where a change of the clock moves or repeats it."""
    local = at.astimezone(rule.zone)
    return {"at": at, "local": local.isoformat(), "dst": _mark(rule, at)}


def occurrence_document(row: OccurrenceView | Decided) -> Document:
    """Give the representation of a decided occurrence."""
    document: Document = {"at": row.at, "outcome": row.outcome, "why": row.why, "job_id": row.job_id}
    if isinstance(row, OccurrenceView):
        document |= {"decided_at": row.decided_at, "fired_by": row.by}
    return document


def _mark(rule: Cron, at: datetime) -> str | None:
    """Say what the clock does at a time: `moved` out of a gap, `first` or `second` of an hour that comes twice."""
    local = at.astimezone(rule.zone)
    if local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset():
        return "second" if local.fold else "first"
    just_before = (at - timedelta(minutes=1)).astimezone(rule.zone)
    if local.utcoffset() != just_before.utcoffset() and not rule.is_interval and not rule.reads(local):
        return "moved"
    return None


def _rule(view: ScheduleView) -> Cron | None:
    try:
        return cron_of(view.cron, view.tz)
    except OutlastError:
        return None  # of a zone that this machine does not know


def _content(view: ScheduleView) -> dict[str, Any]:
    try:
        return ScheduledJob(name=view.name, document=view.document).content
    except OutlastError:
        return {}
