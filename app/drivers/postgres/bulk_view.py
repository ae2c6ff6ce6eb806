"""Bulk operations as they are read: rows as values, the newest operations, the jobs of one."""

from __future__ import annotations

from collections.abc import Sequence

from ...domain.bulk import BulkAction, BulkId, BulkItem, BulkState, BulkVerdict, BulkView, ErrorKind, JobFilter
from ...domain.job import JobId
from ...domain.state import State
from .bulk_acts import VERDICT_CODES
from .database import Database, Row
from .reader import Reader
from .rows import plain
from .tenant_wall import behind

_STATES = (BulkState.RUNNING, BulkState.DONE, BulkState.ABORTED)
_VERDICTS = {code: verdict for verdict, code in VERDICT_CODES.items()}

COLUMNS = (
    "id, action, state, tenant, made_by, reason, by_ids, states, name, queue, created_after, created_before,"
    " priority, run_at, dead_reason, error_type, error_code, created_at, ended_at, ended_by,"
    " selected, done, changed, failed"
)

_OPERATIONS = f"""
select {COLUMNS} from outlast.bulk
where ($2::uuid is null or id < $2) and ($3::text is null or tenant = $3) order by id desc limit $1"""  # noqa: S608  names of our own
FIND = f"select {COLUMNS} from outlast.bulk where id = $1 and ($2::text is null or tenant = $2)"  # noqa: S608  same

_ITEM = "job_id, verdict, code, detail, decided_at"
_ITEMS = f"""
select {_ITEM} from outlast.bulk_item
where bulk_id = $1 and ($2::uuid is null or job_id > $2) order by job_id limit $3"""  # noqa: S608  same
# Each verdict is read along an index of its own order; those that are done, along the jobs.
_ITEMS_OF = f"""
select {_ITEM} from (
  select x.* from unnest($4::smallint[]) v(verdict) cross join lateral (
    select {_ITEM} from outlast.bulk_item i
    where i.bulk_id = $1 and i.verdict = v.verdict and i.verdict > 0 and ($2::uuid is null or i.job_id > $2)
    order by i.job_id limit $3) x
  union all
  (select {_ITEM} from outlast.bulk_item i
   where 0 = any($4::smallint[]) and i.bulk_id = $1 and i.verdict = 0 and ($2::uuid is null or i.job_id > $2)
   order by i.job_id limit $3)) u
order by job_id limit $3"""  # noqa: S608  same


async def operations(db: Reader, *, limit: int, before: BulkId | None, tenant: str | None) -> tuple[BulkView, ...]:
    """Give operations, newest first."""
    rows = await behind(db, tenant, lambda conn: conn.fetch(db.in_schema(_OPERATIONS), limit, before, tenant))
    return tuple(view_of(row) for row in rows)


async def find(db: Database, bulk_id: BulkId, *, tenant: str | None) -> BulkView | None:
    """Give one operation, or None."""
    row = await behind(db, tenant, lambda conn: conn.fetchrow(db.in_schema(FIND), bulk_id, tenant))
    return None if row is None else view_of(row)


async def items(
    db: Reader, bulk_id: BulkId, *, verdicts: Sequence[BulkVerdict], after: JobId | None, limit: int
) -> tuple[BulkItem, ...]:
    """Give jobs of an operation by their ids."""
    codes = [VERDICT_CODES[verdict] for verdict in verdicts]
    sql, more = (_ITEMS_OF, (codes,)) if codes else (_ITEMS, ())
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(sql), bulk_id, after, limit, *more))
    return tuple(
        BulkItem(
            job_id=JobId(plain(row["job_id"])),
            verdict=None if row["verdict"] is None else _VERDICTS[row["verdict"]],
            code=row["code"],
            detail=row["detail"],
            decided_at=row["decided_at"],
        )
        for row in rows
    )


def _error_of(row: Row) -> ErrorKind | None:
    if row["dead_reason"] is None:
        return None
    return ErrorKind(reason=row["dead_reason"], type=row["error_type"], code=row["error_code"])


def view_of(row: Row) -> BulkView:
    """Make a view of a row of `COLUMNS`."""
    return BulkView(
        id=BulkId(plain(row["id"])),
        action=BulkAction(row["action"]),
        state=_STATES[row["state"]],
        by=row["made_by"],
        tenant=row["tenant"],
        reason=row["reason"],
        by_ids=row["by_ids"],
        jobs=JobFilter(
            states=frozenset(State(state) for state in row["states"]),
            name=row["name"],
            queue=row["queue"],
            created_after=row["created_after"],
            created_before=row["created_before"],
            error=_error_of(row),
        ),
        priority=row["priority"],
        run_at=row["run_at"],
        created_at=row["created_at"],
        selected=row["selected"],
        done=row["done"],
        changed=row["changed"],
        failed=row["failed"],
        ended_at=row["ended_at"],
        ended_by=row["ended_by"],
    )
