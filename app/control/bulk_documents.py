"""How bulk operations look from outside: the field names of the HTTP API. Pure projections, as in `represent`."""

from __future__ import annotations

from dataclasses import asdict

from ..domain.bulk import LOOKED_BACK, MOST_SELECTED, BulkItem, BulkVerdict, BulkView, JobFilter, NewBulk
from .render import Document

_SAID = {
    "JOB_NOT_FOUND": "there is no such job any more",
    "JOB_STATE_CONFLICT": "it is {detail}",
    "JOB_DUPLICATE": "job {detail} holds its idempotency key",
}


def selector_document(jobs: JobFilter | None, ids: int, *, tenant: str | None) -> Document:
    """Give which jobs an operation is over: how many ids, or the filter."""
    if jobs is None:
        return {"ids": ids, "filter": None}
    return {
        "ids": None,
        "filter": {
            "state": sorted(jobs.states),
            "name": jobs.name,
            "queue": jobs.queue,
            "tenant": tenant,
            "created_after": jobs.created_after,
            "created_before": jobs.created_before,
            "error": None if jobs.error is None else asdict(jobs.error),
        },
    }


def count_document(bulk: NewBulk, count: int, *, notice: str | None) -> Document:
    """Give the answer to a dry run. `capped`: there are more than are counted."""
    return {
        "dry_run": True,
        "action": bulk.action,
        "selector": selector_document(bulk.jobs, len(bulk.ids or ()), tenant=bulk.tenant),
        "matched": min(count, MOST_SELECTED),
        "capped": count > MOST_SELECTED,
        "notice": notice,
    }


def bulk_document(view: BulkView, errors: tuple[BulkItem, ...] = (), *, root: str = "") -> Document:
    """Give the representation of an operation."""
    path = f"{root}/v1/bulk-operations/{view.id}"
    return {
        "id": view.id,
        "action": view.action,
        "state": view.state,
        "selector": selector_document(None if view.by_ids else view.jobs, view.selected, tenant=view.tenant),
        "priority": view.priority,
        "run_at": view.run_at,
        "reason": view.reason,
        "created_by": view.by,
        "created_at": view.created_at,
        "ended_at": view.ended_at,
        "ended_by": view.ended_by,
        "matched": view.selected,
        "done": view.done,
        "changed": view.changed,
        "failed": view.failed,
        "left": view.left,
        "errors_sample": [_error(item) for item in errors],
        "links": {"self": path, "items": f"{path}/items", "abort": f"{path}/abort"},
    }


def notice_of(jobs: JobFilter | None) -> str | None:
    """Say what a filter leaves out because it names no time; nothing for one that names some."""
    if jobs is None or jobs.has_times:
        return None
    return f"only jobs enqueued in the last {LOOKED_BACK.days} days: the filter names no time"


def item_document(item: BulkItem) -> Document:
    """Give the representation of one job of an operation."""
    return {
        "job_id": item.job_id,
        "verdict": item.verdict,
        "code": item.code,
        "detail": item.detail,
        "message": None if item.verdict in {None, BulkVerdict.DONE} else message_of(item),
        "decided_at": item.decided_at,
    }


def message_of(item: BulkItem) -> str:
    """Say in words why a job was not acted on."""
    return _SAID.get(item.code or "", "it was refused").format(detail=item.detail)


def _error(item: BulkItem) -> Document:
    return {"job_id": item.job_id, "code": item.code, "message": message_of(item)}
