"""Schedules beside the jobs of a memory driver: the readable reference for what a store of schedules does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ...domain.audit import AuditEntry
from ...domain.errors import NotFound, QueueFull
from ...domain.job import JobId, NewJob
from ...domain.outbox import is_of_the_row
from ...domain.schedule import (
    DECLARATION_KEPT,
    OCCURRENCES_KEPT,
    WHY_DEDUPED,
    WHY_OVERLAP,
    Decided,
    Declaration,
    OccurrenceOutcome,
    OccurrenceView,
    Overlap,
    Plan,
    Planned,
    ScheduleView,
    Standing,
    Standings,
    refused,
)
from ..schedules import ScheduleStore
from .audit import keep
from .enqueue import enqueue_at
from .store import Store


@dataclass(slots=True, kw_only=True)
class _Declared:
    """A declaration that some scheduler shows; `number` is its place among those that came."""

    declaration: Declaration
    number: int
    published_at: datetime
    seen_at: datetime


class MemorySchedules:
    """A `ScheduleStore` over a memory driver's rows. What each verb does is said by the protocol."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._declared: dict[str, dict[str, _Declared]] = {}
        self._schedules: dict[str, ScheduleView] = {}
        self._occurrences: dict[str, dict[datetime, OccurrenceView]] = {}

    # --- schedulers

    async def declare(self, declarations: Sequence[Declaration], *, is_start: bool = False) -> None:
        """Say what a living scheduler declares."""
        with self._store.statement() as now:
            for declaration in declarations:
                self._show(declaration, now, is_start=is_start)
                self._choose(declaration.name, now)

    async def standings(self, names: Sequence[str]) -> Standings:
        """Give where schedules stand."""
        with self._store.statement() as now:
            return Standings(
                now=now,
                by_name={
                    name: Standing(
                        name=name,
                        digest=self._digest(view),
                        watermark=view.watermark,
                        is_paused=view.paused_at is not None,
                    )
                    for name in names
                    if (view := self._schedules.get(name)) is not None
                },
            )

    async def decide(self, plan: Plan) -> tuple[Decided, ...] | None:
        """Decide occurrences in one go."""
        with self._store.statement() as now:
            view = self._schedules.get(plan.name)
            if view is None or self._digest(view) != plan.digest or (view.paused_at is not None) != plan.is_paused:
                return None
            rows = self._occurrences.setdefault(plan.name, {})
            decided = []
            for planned in plan.planned:
                if planned.at not in rows:
                    one = self._decide(plan, planned, now)
                    rows[one.at] = _row(one, now)
                    decided.append(one)
            self._schedules[plan.name] = replace(view, watermark=max(view.watermark, plan.until))
            return tuple(decided)

    async def trim(self, batch: int = 1000) -> int:
        """Delete old rows of occurrences."""
        with self._store.statement() as now:
            old = [
                (rows, at)
                for rows in self._occurrences.values()
                for at, row in rows.items()
                if row.decided_at < now - OCCURRENCES_KEPT
            ][:batch]
            for rows, at in old:
                del rows[at]
            return len(old)

    # --- operators and readers

    async def fire(self, name: str, job: NewJob, *, by: str, audit: AuditEntry | None = None) -> Decided:
        """Enqueue a job of a schedule now."""
        with self._store.statement(audit) as now:
            self._known(name)
            decided = self._enqueue(job, now, now)
            rows = self._occurrences.setdefault(name, {})
            at = now if now.microsecond else now + timedelta(microseconds=1)
            while at in rows:
                at += timedelta(microseconds=1)
            decided = replace(decided, at=at)
            rows[at] = _row(decided, now, by=by)
            told = (
                None
                if audit is None
                else audit.came_to(decided.outcome, at=decided.at.isoformat(), job_id=decided.job_id)
            )
            keep(self._store, told, now)
            return decided

    async def pause(self, name: str, *, by: str, reason: str | None = None, audit: AuditEntry | None = None) -> None:
        """Let a schedule skip its occurrences."""
        with self._store.statement(audit) as now:
            view = self._known(name)
            if view.paused_at is None:
                self._schedules[name] = replace(view, paused_at=now, paused_by=by, pause_reason=reason)
            keep(self._store, audit, now)

    async def resume(self, name: str, *, audit: AuditEntry | None = None) -> None:
        """Let it fire again from now on."""
        with self._store.statement(audit) as now:
            view = self._known(name)
            if view.paused_at is not None:
                self._schedules[name] = replace(
                    view, paused_at=None, paused_by=None, pause_reason=None, watermark=max(view.watermark, now)
                )
            keep(self._store, audit, now)

    async def schedules(self, *, occurrences: int = 1) -> tuple[ScheduleView, ...]:
        """Give every schedule by name."""
        with self._store.statement():
            return tuple(self._shown(self._schedules[name], occurrences) for name in sorted(self._schedules))

    async def find(self, name: str, *, occurrences: int = 20) -> ScheduleView | None:
        """Give one schedule."""
        with self._store.statement():
            view = self._schedules.get(name)
            return None if view is None else self._shown(view, occurrences)

    async def now(self) -> datetime:
        """Give the store's clock."""
        with self._store.statement() as now:
            return now

    def _show(self, declaration: Declaration, now: datetime, *, is_start: bool) -> None:
        """Note that a declaration is shown; one that was not shown for long comes anew with a scheduler that starts."""
        known = self._declared.setdefault(declaration.name, {})
        one = known.get(declaration.digest)
        if one is None or (is_start and one.seen_at < now - DECLARATION_KEPT):
            known[declaration.digest] = _Declared(
                declaration=declaration, number=self._store.next_seq(), published_at=now, seen_at=now
            )
        else:
            one.seen_at = now

    def _choose(self, name: str, now: datetime) -> None:
        """Let the newest declaration that is shown stand."""
        shown = [one for one in self._declared[name].values() if one.seen_at >= now - DECLARATION_KEPT]
        newest = max(shown, key=lambda one: one.number)
        declared, before = newest.declaration, self._schedules.get(name)
        is_other = before is None or (before.cron, before.tz) != (declared.cron, declared.tz)
        view = ScheduleView(
            name=name,
            cron=declared.cron,
            tz=declared.tz,
            code_version=declared.code_version,
            document=declared.document,
            published_at=newest.published_at,
            seen_at=newest.seen_at,
            watermark=now if before is None or is_other else before.watermark,
        )
        if before is not None:
            view = replace(
                view, paused_at=before.paused_at, paused_by=before.paused_by, pause_reason=before.pause_reason
            )
        self._schedules[name] = view

    def _decide(self, plan: Plan, planned: Planned, now: datetime) -> Decided:
        if planned.job is None:
            return Decided(at=planned.at, outcome=OccurrenceOutcome.SKIPPED, why=planned.why)
        live = self._live(plan.name) if plan.overlap is Overlap.SKIP else None
        if live is not None:
            return Decided(at=planned.at, outcome=OccurrenceOutcome.SKIPPED, why=WHY_OVERLAP, job_id=live)
        try:
            return self._enqueue(planned.job, planned.at, now)
        except Exception as error:
            if not (is_of_the_row(error) or isinstance(error, QueueFull)):
                raise
            return refused(planned.at, error)

    def _enqueue(self, job: NewJob, at: datetime, now: datetime) -> Decided:
        answer = enqueue_at(self._store, now, job)
        outcome = OccurrenceOutcome.SKIPPED if answer.deduped else OccurrenceOutcome.FIRED
        return Decided(at=at, outcome=outcome, why=WHY_DEDUPED if answer.deduped else None, job_id=answer.id)

    def _live(self, name: str) -> JobId | None:
        """Give a job of an occurrence that has not ended."""
        rows = self._occurrences.get(name, {}).values()
        fired = (row for row in rows if row.outcome is OccurrenceOutcome.FIRED and row.job_id in self._store.tokens)
        live = (row for row in fired if row.job_id is not None and not self._store.has_ended(row.job_id))
        newest = max(live, key=lambda row: row.at, default=None)
        return None if newest is None else newest.job_id

    def _known(self, name: str) -> ScheduleView:
        view = self._schedules.get(name)
        if view is None:
            raise NotFound(f"there is no schedule {name[:128]!r}", fix="give a name that GET /v1/schedules lists")
        return view

    def _shown(self, view: ScheduleView, occurrences: int) -> ScheduleView:
        rows = self._occurrences.get(view.name, {})
        newest = sorted(rows, reverse=True)[:occurrences]
        return replace(view, occurrences=tuple(rows[at] for at in newest))

    def _digest(self, view: ScheduleView) -> str:
        return Declaration(
            name=view.name, code_version=view.code_version, cron=view.cron, tz=view.tz, document=view.document
        ).digest


def _row(decided: Decided, now: datetime, *, by: str | None = None) -> OccurrenceView:
    return OccurrenceView(
        at=decided.at, outcome=decided.outcome, why=decided.why, job_id=decided.job_id, decided_at=now, by=by
    )


_: type[ScheduleStore] = MemorySchedules
