"""The outbox as people see it, and what operators do: `view`, `replay`, and where a staged id leads.

Counts stop at a bound, so that looking costs the same whatever waits. Called by `outbox`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ...domain.audit import UNCHANGED, AuditEntry
from ...domain.job import JobId
from ...domain.outbox import MOST_COUNTED, OutboxId, OutboxView, QuarantinedRow, Refusal, UnpublishedRow
from .audit import audited
from .database import Database, Row
from .outbox_looks import Looks
from .outbox_rows import RESTS, count_of
from .reader import Reader
from .rows import plain
from .tenant_wall import behind

_VIEW = f"""
select outlast.clock() as now,
  (select count(*) from (select from outlast.outbox where state = 0 limit {MOST_COUNTED}) c) as staged,
  (select count(*) from (select from outlast.outbox where state = 1 and claimed_by <> {RESTS} limit {MOST_COUNTED}) c)
    as claimed,
  (select count(*) from (select from outlast.outbox where state = 1 and claimed_by = {RESTS} limit {MOST_COUNTED}) c)
    as deferred,
  (select count(*) from (select from outlast.outbox where state = 2 limit {MOST_COUNTED}) c) as quarantined,
  least(
    (select staged_at from outlast.outbox where state = 0 order by staged_at limit 1),
    (select min(staged_at) from outlast.outbox where state = 1)) as oldest_at"""  # noqa: S608  our own

_ITEMS = """
select id, name, queue, tenant, staged_at, refused_at, refused_code, refused_why from outlast.outbox
where state = 2 and ($2::text is null or tenant = $2) order by refused_at desc, id desc limit $1"""

_REPLAY = """
update outlast.outbox
set state = 0, claims = 0, refused_at = null, refused_code = null, refused_why = null,
  staged_at = case when refused_code is null then outlast.clock() else staged_at end
where state = 2 and ($3::text is null or tenant = $3)
  and ($1::uuid[] is null and refused_code is not null or id = any($1::uuid[]) and ($2 or refused_code is not null))"""

_FORWARDED = "select job_id from outlast.source where source_id = $1"
_FIND = """
select name, tenant, state = 2 as is_refused, refused_code, refused_why from outlast.outbox
where id = $1 and ($2::text is null or tenant = $2)"""


async def view(db: Reader, limit: int, *, tenant: str | None = None) -> OutboxView:
    """Give counts and lag of all rows, and the newest quarantined ones of all tenants or of one."""
    row = await db.run(lambda conn: conn.fetchrow(db.in_schema(_VIEW)))
    items = await behind(db, tenant, lambda conn: conn.fetch(db.in_schema(_ITEMS), limit, tenant))
    assert row is not None  # noqa: S101  a query without a table gives one row
    oldest = row["oldest_at"]
    return OutboxView(
        staged=row["staged"],
        claimed=row["claimed"],
        quarantined=row["quarantined"],
        deferred=row["deferred"],
        lag=timedelta() if oldest is None else max(timedelta(), row["now"] - oldest),
        oldest_at=oldest,
        items=tuple(_item(item) for item in items),
    )


async def replay(
    db: Database,
    looks: Looks,
    ids: Sequence[OutboxId] | None,
    *,
    may_double: bool,
    tenant: str | None,
    audit: AuditEntry | None,
) -> int:
    """Stage quarantined rows again, these or all; stale ones, which have no code, only as the protocol says."""
    chosen = None if ids is None else list(ids)
    tag = await audited(db, lambda conn: conn.execute(db.in_schema(_REPLAY), chosen, may_double, tenant), audit, _told)
    looks.forget()
    return count_of(tag)


async def forwarded(db: Database, staged_id: JobId) -> JobId | None:
    """Give the job that a source became, or was led to by its key."""
    found = await db.run(lambda conn: conn.fetchval(db.in_schema(_FORWARDED), staged_id))
    return None if found is None else JobId(plain(found))


async def find(db: Database, staged_id: JobId, *, tenant: str | None = None) -> UnpublishedRow | None:
    """Give the row that waits here under an id, with what refused it."""
    row = await behind(db, tenant, lambda conn: conn.fetchrow(db.in_schema(_FIND), staged_id, tenant))
    if row is None:
        return None
    refusal = None
    if row["is_refused"]:
        why = row["refused_why"]
        refusal = Refusal(id=OutboxId(staged_id), name=row["name"], code=row["refused_code"], message=why)
    return UnpublishedRow(tenant=row["tenant"], refusal=refusal)


def _told(audit: AuditEntry, tag: str) -> AuditEntry:
    count = count_of(tag)
    return audit.came_to(audit.outcome if count else UNCHANGED, count=count)


def _item(row: Row) -> QuarantinedRow:
    return QuarantinedRow(
        id=OutboxId(plain(row["id"])),
        name=row["name"],
        queue=row["queue"],
        tenant=row["tenant"],
        staged_at=row["staged_at"],
        quarantined_at=row["refused_at"],
        code=row["refused_code"],
        message=row["refused_why"],
    )
