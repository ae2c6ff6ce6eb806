"""Acting on many jobs: bulk operations and dead letters; events; the audit of all actions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, Required, TypeAlias, TypedDict
from uuid import UUID

from ...domain.state import State
from ..answers.operations import (
    AuditRow,
    BulkCount,
    BulkItem,
    BulkOperation,
    DeadGroup,
    DeadPurge,
    EmittedEvent,
    Event,
)
from ..call import Call, Page, get, get_items, get_pages, given, path, post
from ..wire import JobLike, TypeLike, id_of, instant, ms, name_of, to_json

BulkAction: TypeAlias = Literal["cancel", "retry", "release", "delete", "run_now", "reschedule", "set_priority"]


class ErrorFilter(TypedDict, total=False):
    """One kind of dead letters: why they stopped, and the last error's type and code, left out where there is none."""

    reason: Required[str]
    type: str | None
    code: str | None


class JobFilter(TypedDict, total=False):
    """Which jobs: those that fit all of it. Without times only those of the last 7 days are found."""

    state: Sequence[State | str] | State | str
    name: str
    queue: str
    tenant: str
    created_after: datetime
    created_before: datetime
    error: ErrorFilter


def count_bulk(
    action: BulkAction, *, ids: Sequence[JobLike] | None = None, filter: JobFilter | None = None  # noqa: A002 - its word
) -> Call[BulkCount]:  # fmt: skip
    """Count the jobs that an action would be done to now, and change nothing."""
    return post("/v1/bulk-operations", BulkCount, action=action, selector=_selector(ids, filter), dry_run=True)


def start_bulk(
    action: BulkAction,
    *,
    ids: Sequence[JobLike] | None = None,
    filter: JobFilter | None = None,  # noqa: A002 - the word of the API
    expected_count: int | None = None,
    priority: int | None = None,
    run_at: datetime | None = None,
    reason: str | None = None,
) -> Call[BulkOperation]:
    """Do something to many jobs: to some by their ids, or to all that fit a filter now. It goes on by itself.

    `expected_count` is how many are meant. `priority` is for `set_priority`, `run_at` for `reschedule`.

    Raises:
        ProblemError: `COUNT_CHANGED`: it would be another number, which is `count` in its details; nothing is done.
    """
    return post(
        "/v1/bulk-operations",
        BulkOperation,
        action=action,
        selector=_selector(ids, filter),
        expected_count=expected_count,
        priority=priority,
        run_at=instant(run_at),
        reason=reason,
    )


def get_bulk(operation: BulkOperation | UUID | str) -> Call[BulkOperation]:
    """Give a bulk operation as it stands."""
    return get(path("v1", "bulk-operations", id_of(operation)), BulkOperation)


def list_bulk(*, tenant: str | None = None, limit: int | None = None) -> Call[Page[BulkOperation]]:
    """Give bulk operations, newest first."""
    return get_pages("/v1/bulk-operations", BulkOperation, tenant=tenant, limit=limit)


def list_bulk_items(
    operation: BulkOperation | UUID | str, *, verdict: Sequence[str] | None = None, limit: int | None = None
) -> Call[Page[BulkItem]]:
    """Give the jobs of a bulk operation with what became of each: `done`, `changed` or `failed`."""
    where = path("v1", "bulk-operations", id_of(operation), "items")
    return get_pages(where, BulkItem, verdict=verdict, limit=limit)


def abort_bulk(operation: BulkOperation | UUID | str, *, reason: str | None = None) -> Call[BulkOperation]:
    """Stop a bulk operation; what it has done stays done."""
    return post(path("v1", "bulk-operations", id_of(operation), "abort"), BulkOperation, reason=reason)


def list_dead() -> Call[tuple[DeadGroup, ...]]:
    """Give the dead letters grouped by job type, reason and error, most first."""
    return get_items("/v1/dead-letters", DeadGroup)


def count_dead(group: DeadGroup) -> Call[BulkCount]:
    """Count the dead letters of a group as they are now."""
    return post("/v1/dead-letters/retry", BulkCount, group=_group(group), dry_run=True)


def retry_dead(
    group: DeadGroup, *, expected_count: int | None = None, reason: str | None = None
) -> Call[BulkOperation]:
    """Retry all dead letters of a group, each from what its run has recorded; it goes on by itself.

    Raises:
        ProblemError: `COUNT_CHANGED`: it would be another number than expected; nothing is done.
    """
    return post(
        "/v1/dead-letters/retry", BulkOperation, group=_group(group), expected_count=expected_count, reason=reason
    )


def purge_dead(
    *,
    older_than: timedelta,
    name: TypeLike | None = None,
    after: UUID | None = None,
    dry_run: bool = False,
) -> Call[DeadPurge]:
    """Delete dead letters that died longer ago, or count them; go on with `after` until `is_complete`."""
    return post(
        "/v1/dead-letters/purge",
        DeadPurge,
        older_than_ms=ms(older_than),
        name=None if name is None else name_of(name),
        after=None if after is None else str(after),
        dry_run=dry_run,
    )


def emit_event(name: str, key: str, payload: object = None, *, tenant: str | None = None) -> Call[EmittedEvent]:
    """Emit an event: runs that wait for this name and key go on, now or when they come to it."""
    return post("/v1/events", EmittedEvent, name=name, key=key, payload=to_json(payload), tenant=tenant)


def list_events(
    *, name: str | None = None, key: str | None = None, tenant: str | None = None, limit: int | None = None
) -> Call[Page[Event]]:
    """Give stored events, newest first."""
    return get_pages("/v1/events", Event, name=name, key=key, tenant=tenant, limit=limit)


def list_audit(
    *,
    actor: str | None = None,
    action: str | None = None,
    target_kind: str | None = None,
    target: str | None = None,
    tenant: str | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    limit: int | None = None,
) -> Call[Page[AuditRow]]:
    """Give what was done by whom, newest first."""
    return get_pages(
        "/v1/audit",
        AuditRow,
        actor=actor,
        action=action,
        target_kind=target_kind,
        target=target,
        tenant=tenant,
        created_after=instant(created_after),
        created_before=instant(created_before),
        limit=limit,
    )


def _group(group: DeadGroup) -> dict[str, object]:
    return {
        "name": group.name,
        "reason": group.reason,
        "error_type": group.error_type,
        "error_code": group.error_code,
    }


def _selector(ids: Sequence[JobLike] | None, chosen: JobFilter | None) -> dict[str, object]:
    if chosen is None:
        return given(ids=None if ids is None else [id_of(job) for job in ids])
    times = {
        "created_after": instant(chosen.get("created_after")),
        "created_before": instant(chosen.get("created_before")),
    }
    fields = given(**{**chosen, **times})
    if "state" in chosen:
        states = chosen["state"]
        fields["state"] = [states] if isinstance(states, str) else list(states)
    return given(ids=None if ids is None else [id_of(job) for job in ids], filter=fields)
