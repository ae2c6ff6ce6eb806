"""Bulk operations as operators ask for them: count, make, follow, abort.

Owns the rules of a request: which jobs an action can mean, and that a filter without times looks back seven days and
no further. Whoever has the store may also work an operation off here, beside the workers. Called by the HTTP routes
and the command line.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import UUID

from uuid_utils.compat import uuid7

from ..domain.audit import Acting, Action, Target
from ..domain.bulk import (
    ACTS_ON,
    LOOKED_BACK,
    MOST_IDS,
    OLDEST_TIME,
    SAMPLED,
    BulkAction,
    BulkId,
    BulkItem,
    BulkState,
    BulkStep,
    BulkVerdict,
    BulkView,
    JobFilter,
    NewBulk,
    unknown_operation,
)
from ..domain.errors import NotImplementedYet, RequestInvalid
from ..domain.job import LONGEST_DURATION, JobId
from ..domain.state import State
from ..domain.waited import waited_for
from ..drivers.bulk import BulkStore
from ..jobs.admission import wall_clock
from ..jobs.request import OLDEST_RUN_AT
from ..observability.telemetry import Telemetry
from ..steps.repeat import until_known
from .acting import done_before, entry_of
from .bulk_documents import selector_document


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkRequest:
    """What somebody asks to be done to which jobs: some `ids`, or those that fit `jobs`. `tenant` bounds both."""

    action: BulkAction
    by: Acting
    ids: Sequence[JobId] | None = None
    jobs: JobFilter | None = None
    tenant: str | None = None
    expected_count: int | None = None
    priority: int | None = None
    run_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The answer to a dry run: how many jobs an operation would act on now, and what it would be made over."""

    count: int
    bulk: NewBulk


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkShown:
    """An operation, and the first of the jobs that it failed on."""

    view: BulkView
    errors: tuple[BulkItem, ...] = ()


class BulkControl:
    """The verbs on bulk operations."""

    def __init__(
        self,
        store: BulkStore | None,
        *,
        telemetry: Telemetry,
        new_id: Callable[[], UUID] = uuid7,
        now: Callable[[], datetime] = wall_clock,
    ) -> None:
        self._store = store
        self._telemetry = telemetry
        self._new_id = new_id
        self._now = now

    async def count(self, request: BulkRequest) -> Counted:
        """Say how many jobs an operation would act on now; changes nothing.

        Raises:
            RequestInvalid: the request means nothing that could be done (detail `pointer`).
            QueryTooSlow: they could not be counted in time.
        """
        bulk = await self._new(request)
        with waited_for():  # a question, whatever the method of its request
            return Counted(count=await self._given().count(bulk), bulk=bulk)

    async def make(self, request: BulkRequest) -> BulkView:
        """Make an operation over the jobs that fit now; durable when this returns, and worked off by any worker.

        Raises:
            RequestInvalid: the request means nothing that could be done (detail `pointer`), or too many jobs.
            CountChanged: another number of jobs fits than was expected (details `expected`, `count`).
        """
        done = done_before(request.by)
        if done is not None and done.target is not None:
            return await self._view(BulkId(UUID(done.target)), None)
        bulk = await self._new(request)
        details = {"action": bulk.action.value, "priority": bulk.priority, "run_at": bulk.run_at}
        selected = selector_document(bulk.jobs, len(bulk.ids or ()), tenant=bulk.tenant)
        entry = entry_of(
            request.by,
            Action.BULK_MAKE,
            Target.BULK,
            str(bulk.id),
            tenant=bulk.tenant,
            details=details | {"selector": selected},
        )
        view = await until_known(lambda: self._given().make(bulk, audit=entry))
        self._telemetry.bulk_made(view)
        return view

    async def abort(self, bulk_id: BulkId, *, by: Acting, tenant: str | None) -> BulkShown:
        """Stop an operation behind the batch at hand; what it has done stays. Repeating it is safe.

        Raises:
            NotFound: there is none to be seen.
        """
        entry = entry_of(by, Action.BULK_ABORT, Target.BULK, str(bulk_id), tenant=tenant)
        view = await self._given().abort(bulk_id, by=by.actor, tenant=tenant, audit=entry)
        if view.state is BulkState.ABORTED:
            self._telemetry.bulk_aborted(view, by=by.actor)
        return await self._shown(view)

    async def list(self, *, limit: int, before: BulkId | None, tenant: str | None) -> tuple[BulkView, ...]:
        """Give operations, newest first."""
        return await self._given().operations(limit=limit, before=before, tenant=tenant)

    async def find(self, bulk_id: BulkId, *, tenant: str | None) -> BulkShown:
        """Give one operation. Raises `NOT_FOUND`."""
        return await self._shown(await self._view(bulk_id, tenant))

    async def items(
        self,
        bulk_id: BulkId,
        *,
        verdicts: Sequence[BulkVerdict] = (),
        after: JobId | None = None,
        limit: int = 50,
        tenant: str | None,
    ) -> tuple[BulkItem, ...]:
        """Give jobs of an operation with what became of them, by their ids. Raises `NOT_FOUND`."""
        await self._view(bulk_id, tenant)
        return await self._given().items(bulk_id, verdicts=verdicts, after=after, limit=limit)

    async def work_off(self, bulk_id: BulkId) -> AsyncIterator[BulkStep | None]:
        """Work an operation off beside the workers; gives each batch, None when another has the operation in hand.

        Ends when no call is left to be made by anybody. Whoever iterates waits as long as it likes between two batches.
        """
        while (await self._view(bulk_id, None)).state is BulkState.RUNNING:
            step = await self._given().step(only=bulk_id)
            if step is not None:
                self._telemetry.bulk_stepped(step)
            yield step

    async def _new(self, request: BulkRequest) -> NewBulk:
        _refuse_fields(request, self._now())
        jobs = request.jobs
        if jobs is not None:
            after, before = (at and max(at, OLDEST_TIME) for at in (jobs.created_after, jobs.created_before))
            states = jobs.states or ACTS_ON[request.action]
            jobs = replace(jobs, states=states, created_after=after, created_before=before)
            if not jobs.has_times:
                jobs = replace(jobs, created_after=(await self._given().now()) - LOOKED_BACK)
        return NewBulk(
            id=BulkId(self._new_id()),
            action=request.action,
            by=request.by.actor,
            ids=None if request.ids is None else tuple(request.ids),
            jobs=jobs,
            tenant=request.tenant,
            reason=request.by.reason,
            expected_count=request.expected_count,
            priority=request.priority,
            run_at=None if request.run_at is None else request.run_at.astimezone(UTC),
        )

    async def _shown(self, view: BulkView) -> BulkShown:
        if not view.failed:
            return BulkShown(view=view)
        errors = await self._given().items(view.id, verdicts=(BulkVerdict.FAILED,), limit=SAMPLED)
        return BulkShown(view=view, errors=errors)

    async def _view(self, bulk_id: BulkId, tenant: str | None) -> BulkView:
        view = await self._given().find(bulk_id, tenant=tenant)
        if view is None:
            raise unknown_operation(bulk_id)
        return view

    def _given(self) -> BulkStore:
        if self._store is None:
            raise NotImplementedYet(
                "this store has no bulk operations", fix="set OUTLAST_DATABASE_URL to postgresql://…"
            )
        return self._store


def _refuse_fields(request: BulkRequest, now: datetime) -> None:
    """Refuse what means nothing: no jobs or two ways to choose them, states the action cannot act on, stray values."""
    if (request.ids is None) == (request.jobs is None):
        _refuse("/selector", "an operation is over some ids or over a filter", "send one of ids and filter")
    if request.ids is not None and not 1 <= len(request.ids) <= MOST_IDS:
        _refuse("/selector/ids", f"{len(request.ids)} ids", f"send 1 to {MOST_IDS} ids, or a filter")
    wrong = sorted(request.jobs.states - ACTS_ON[request.action]) if request.jobs is not None else []
    if wrong:
        fits = ", ".join(sorted(ACTS_ON[request.action]))
        _refuse("/selector/filter/state", f"{request.action} does nothing to {wrong[0]} jobs", f"name some of {fits}")
    if request.jobs is not None and request.jobs.error is not None and request.jobs.states != {State.DEAD}:
        _refuse("/selector/filter/error", "an error fits dead jobs alone", 'send "state": ["dead"] with it')
    for name, action in (("priority", BulkAction.SET_PRIORITY), ("run_at", BulkAction.RESCHEDULE)):
        is_given, is_needed = getattr(request, name) is not None, request.action is action
        if is_given != is_needed:
            said = f"{request.action} needs {name}" if is_needed else f"{name} belongs to {action} alone"
            _refuse(f"/{name}", said, f"send {name}" if is_needed else f"leave {name} out, or send action {action}")
    if request.run_at is not None and not -OLDEST_RUN_AT <= request.run_at - now <= LONGEST_DURATION:
        _refuse("/run_at", "run_at is out of range", "send a time within one day ago and five years ahead")


def _refuse(pointer: str, cause: str, fix: str) -> None:
    raise RequestInvalid(cause, fix=fix, pointer=pointer)
