"""Bulk operations beside the jobs of a memory driver: the readable reference for what a store of them does.

A step acts on jobs one after the other by the verbs of one job. Nothing awaits in between, so that a job is judged and
acted on as in one statement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import uuid4

from ...domain.audit import DONE, UNCHANGED, AuditEntry, Target
from ...domain.bulk import (
    AUDITED_AS,
    MOST_SELECTED,
    BulkAction,
    BulkId,
    BulkItem,
    BulkState,
    BulkStep,
    BulkVerdict,
    BulkView,
    ErrorKind,
    JobFilter,
    NewBulk,
    check_selected,
    unknown_operation,
)
from ...domain.edit import JobPatch
from ...domain.errors import JobDuplicate
from ...domain.job import JobId
from ...domain.state import State
from ...domain.step import RetryMode, StepKind
from ..bulk import BulkStore
from ..protocol import Wake
from .audit import keep, keep_entry
from .bulk_rows import Operation
from .cancel import cancel
from .edit import delete, patch, run_now
from .read import kind_of
from .retry import retry
from .rows import Finished
from .store import Store
from .versions import release_held


class MemoryBulk:
    """A `BulkStore` over a memory driver's rows. What each verb does is said by the protocol."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._operations = store.bulk

    # --- operators and readers

    async def count(self, bulk: NewBulk) -> int:
        """Count the jobs that fit."""
        with self._store.statement():
            return min(len(self._fitting(bulk)), MOST_SELECTED + 1)

    async def make(self, bulk: NewBulk, *, audit: AuditEntry | None = None) -> BulkView:
        """Make an operation."""
        with self._store.statement(audit) as now:
            known = self._operations.get(bulk.id)
            if known is not None:
                return known.view
            fitting = self._fitting(bulk)
            if bulk.expected_count is not None or bulk.ids is None:
                check_selected(bulk, min(len(fitting), MOST_SELECTED + 1))
            chosen = fitting if bulk.ids is None or bulk.expected_count is not None else sorted(set(bulk.ids))
            view = _new_view(bulk, now, len(chosen))
            items = {job_id: BulkItem(job_id=job_id) for job_id in chosen}
            self._operations[bulk.id] = Operation(view=view, items=items)
            keep(self._store, None if audit is None else audit.came_to(DONE, selected=view.selected), now)
            self._store.bell.add(Wake.DELAYED)
            return view

    async def abort(
        self, bulk_id: BulkId, *, by: str, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> BulkView:
        """Stop an operation."""
        with self._store.statement(audit) as now:
            operation = self._operations.get(bulk_id)
            if operation is None or tenant not in {None, operation.view.tenant}:
                raise unknown_operation(bulk_id)
            is_stopped = operation.view.state is BulkState.RUNNING
            if audit is not None:
                view = operation.view
                counts = {name: getattr(view, name) for name in ("selected", "done", "changed", "failed")}
                keep(self._store, audit.came_to(DONE if is_stopped else UNCHANGED, **counts), now)
            if is_stopped:
                operation.view = replace(operation.view, state=BulkState.ABORTED, ended_at=now, ended_by=by)
            return operation.view

    async def operations(
        self, *, limit: int, before: BulkId | None = None, tenant: str | None = None
    ) -> tuple[BulkView, ...]:
        """Give operations, newest first."""
        with self._store.statement():
            ids = sorted(self._operations, reverse=True)
            views = (self._operations[each].view for each in ids if before is None or each < before)
            return tuple(view for view in views if tenant in {None, view.tenant})[:limit]

    async def find(self, bulk_id: BulkId, *, tenant: str | None = None) -> BulkView | None:
        """Give one operation."""
        with self._store.statement():
            operation = self._operations.get(bulk_id)
            seen = operation is not None and tenant in {None, operation.view.tenant}
            return operation.view if operation is not None and seen else None

    async def items(
        self, bulk_id: BulkId, *, verdicts: Sequence[BulkVerdict] = (), after: JobId | None = None, limit: int = 50
    ) -> tuple[BulkItem, ...]:
        """Give jobs of an operation."""
        with self._store.statement():
            operation = self._operations.get(bulk_id)
            found = [] if operation is None else [operation.items[job_id] for job_id in sorted(operation.items)]
            fitting = (item for item in found if not verdicts or item.verdict in verdicts)
            return tuple(item for item in fitting if after is None or item.job_id > after)[:limit]

    # --- executors

    async def step(
        self, *, only: BulkId | None = None, after: BulkId | None = None, batch: int = 500
    ) -> BulkStep | None:
        """Act on the next batch."""
        with self._store.statement() as now:
            running = [each for each in self._operations.values() if each.view.state is BulkState.RUNNING]
        mine = [each for each in running if only in {None, each.view.id}]
        if not mine:
            return None
        operation = min(mine, key=lambda each: (after is not None and each.view.id <= after, each.view.id))
        left = [item.job_id for item in operation.items.values() if item.verdict is None][:batch]
        items = [replace(self._decide(operation.view, job_id), decided_at=now) for job_id in left]
        operation.items.update({item.job_id: item for item in items})
        done, changed, failed = (sum(item.verdict is verdict for item in items) for verdict in BulkVerdict)
        view = operation.view
        view = replace(view, done=view.done + done, changed=view.changed + changed, failed=view.failed + failed)
        operation.view = view if view.left else replace(view, state=BulkState.DONE, ended_at=now)
        return BulkStep(view=operation.view, done=done, changed=changed, failed=failed)

    async def trim(self, batch: int = 10_000) -> int:
        """Delete what old operations have kept."""
        with self._store.statement() as now:
            old = [key for key, each in self._operations.items() if each.is_old(now)]
            for key in old[:1]:
                items = self._operations[key].items
                some = list(items)[:batch]
                for job_id in some:
                    del items[job_id]
                if len(some) < batch:
                    del self._operations[key]
                    return len(some) + 1
                return len(some)
            return 0

    async def now(self) -> datetime:
        """Give the store's clock."""
        with self._store.statement() as now:
            return now

    def _fitting(self, bulk: NewBulk) -> list[JobId]:
        jobs = bulk.jobs or JobFilter()
        ids = sorted(self._store.envelopes) if bulk.ids is None else sorted(set(bulk.ids))
        return [job_id for job_id in ids if self._is_seen(job_id, bulk.tenant) and self._fits(job_id, jobs, bulk)]

    def _is_seen(self, job_id: JobId, tenant: str | None) -> bool:
        envelope = self._store.envelopes.get(job_id)
        return envelope is not None and tenant in {None, envelope.job.tenant}

    def _fits(self, job_id: JobId, jobs: JobFilter, bulk: NewBulk) -> bool:
        envelope = self._store.envelopes[job_id]
        return (
            self._store.state(job_id) in bulk.states
            and self._can_act(bulk.action, job_id)
            and jobs.name in {None, envelope.job.name}
            and jobs.queue in {None, envelope.job.queue}
            and (jobs.created_after is None or envelope.created_at >= jobs.created_after)
            and (jobs.created_before is None or envelope.created_at < jobs.created_before)
            and jobs.error in {None, self._error_of(job_id)}
        )

    def _error_of(self, job_id: JobId) -> ErrorKind | None:
        token = self._store.tokens[job_id]
        if not isinstance(token, Finished) or token.state is not State.DEAD:
            return None
        _, reason, error_type, error_code = kind_of(self._store, job_id, token)
        return ErrorKind(reason=reason, type=error_type, code=error_code)

    def _can_act(self, action: BulkAction, job_id: JobId) -> bool:
        """Say whether a job in a state of the action's is meant: to run a suspended one now is to end its sleep."""
        if action is not BulkAction.RUN_NOW or self._store.state(job_id) is not State.SUSPENDED:
            return True
        return any(wait.kind is StepKind.SLEEP for wait in self._store.runs.waits_of(job_id))

    def _decide(self, view: BulkView, job_id: JobId) -> BulkItem:
        """Act on one job, or say why not."""
        unfit = BulkVerdict.FAILED if view.by_ids else BulkVerdict.CHANGED
        if not self._is_seen(job_id, view.tenant):
            return BulkItem(job_id=job_id, verdict=unfit, code="JOB_NOT_FOUND")
        state = self._store.state(job_id)
        if state not in view.jobs.states or not self._can_act(view.action, job_id):
            return BulkItem(job_id=job_id, verdict=unfit, code="JOB_STATE_CONFLICT", detail=state.value)
        entry = self._entry(view, job_id, state)
        try:
            detail = _ACTS[view.action](self._store, job_id, view)
        except JobDuplicate as refused:
            existing = str(refused.details["existing_id"])
            return BulkItem(job_id=job_id, verdict=BulkVerdict.FAILED, code=refused.code, detail=existing)
        keep_entry(self._store, entry.came_to(detail or DONE))
        return BulkItem(job_id=job_id, verdict=BulkVerdict.DONE, detail=detail)

    def _entry(self, view: BulkView, job_id: JobId, state: State) -> AuditEntry:
        job = self._store.envelopes[job_id].job
        return AuditEntry(
            id=uuid4(),
            actor=view.by,
            action=AUDITED_AS[view.action],
            target_kind=Target.JOB,
            target=str(job_id),
            tenant=job.tenant,
            reason=view.reason,
            details={"bulk_id": str(view.id), "name": job.name, "queue": job.queue, "state": state.value},
        )


def _cancel(store: Store, job_id: JobId, view: BulkView) -> str | None:
    return cancel(store, job_id, reason=view.reason or f"cancelled by {view.by}", tenant=view.tenant).value


def _retry(store: Store, job_id: JobId, view: BulkView) -> None:
    retry(store, job_id, mode=RetryMode.RESUME, from_step=None, tenant=view.tenant, audit=None)


def _release(store: Store, job_id: JobId, view: BulkView) -> None:
    release_held(store, job_id, tenant=view.tenant, audit=None)


def _delete(store: Store, job_id: JobId, view: BulkView) -> None:
    delete(store, job_id, versions=None, tenant=view.tenant, audit=None)


def _run_now(store: Store, job_id: JobId, view: BulkView) -> str:
    return run_now(store, job_id, tenant=view.tenant, audit=None).value


def _edit(store: Store, job_id: JobId, view: BulkView) -> None:
    new = JobPatch(priority=view.priority, run_at=view.run_at)
    patch(store, job_id, new, versions=None, tenant=view.tenant, audit=None)


_ACTS: dict[BulkAction, Callable[[Store, JobId, BulkView], str | None]] = {
    BulkAction.CANCEL: _cancel,
    BulkAction.RETRY: _retry,
    BulkAction.RELEASE: _release,
    BulkAction.DELETE: _delete,
    BulkAction.RUN_NOW: _run_now,
    BulkAction.RESCHEDULE: _edit,
    BulkAction.SET_PRIORITY: _edit,
}


def _new_view(bulk: NewBulk, now: datetime, selected: int) -> BulkView:
    return BulkView(
        id=bulk.id,
        action=bulk.action,
        state=BulkState.RUNNING if selected else BulkState.DONE,
        by=bulk.by,
        tenant=bulk.tenant,
        reason=bulk.reason,
        by_ids=bulk.ids is not None,
        jobs=replace(bulk.jobs or JobFilter(), states=bulk.states),
        priority=bulk.priority,
        run_at=bulk.run_at,
        created_at=now,
        selected=selected,
        ended_at=None if selected else now,
    )


_: type[BulkStore] = MemoryBulk
