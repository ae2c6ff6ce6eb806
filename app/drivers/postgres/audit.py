"""The audit: rows kept in the commit of the action they speak of, and pages of them.

`audited` puts a verb and its row into one transaction; a verb that has one of its own keeps the row in it. A page looks
at a bounded number of rows, newest first: with filters that few rows fit it may be short, and its cursor goes on. Old
rows are the purge's.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

from ...domain.audit import MAX_DETAILS_BYTES, SHARED, AuditEntry, AuditPage, AuditQuery, AuditView, Target
from .database import Database, Raw, Row
from .reader import Reader
from .requests import mark
from .rows import plain
from .run_locks import looking
from .tenant_wall import behind

T = TypeVar("T")

SCANNED = 5_000

# Of a job that is gone by now the entry brings the tenant.
_KEEP = """
insert into outlast.audit(id, actor, tenant, action, target_kind, target, reason, outcome, details)
select $1, $2, coalesce($3::text, (select j.tenant from outlast.job j where j.id = $4)), $5, $6, $7, $8, $9, $10
on conflict (id) do nothing"""

# What narrows the candidates is an index condition; the rest is looked at row by row, among so many.
_PAGE = """
with c as materialized (
  select a.* from outlast.audit a where ($1::bigint is null or a.seq < $1) {narrowed} order by a.seq desc limit $2),
f as (
  select * from c
  where ($3::text is null or c.target = $3) and ($4::text is null or c.actor = $4)
    and ($5::text is null or c.tenant is null or c.tenant = $5)
    and ($5::text is null or c.tenant is not null or c.target_kind in ({shared}))
    and ($6::text is null or c.action = $6) and ($7::text is null or c.target_kind = $7)
    and ($8::timestamptz is null or c.at >= $8) and ($9::timestamptz is null or c.at < $9)
  order by c.seq desc limit $10)
select f.*, b.floor from (
  select case when count(*) = $2 then min(seq) end as floor from c) b left join f on true
order by f.seq desc"""
_SHARED = ", ".join(f"'{kind}'" for kind in SHARED)
_EVERY = _PAGE.format(narrowed="", shared=_SHARED)
_OF_TARGET = _PAGE.format(narrowed="and a.target = $3", shared=_SHARED)
_OF_ACTOR = _PAGE.format(narrowed="and a.actor = $4", shared=_SHARED)


async def audited(
    db: Database,
    verb: Callable[[Raw], Awaitable[T]],
    audit: AuditEntry | None,
    told: Callable[[AuditEntry, T], AuditEntry | None],
) -> T:
    """Run a verb, and keep its row in the same commit; `told` gives the row for the verb's answer, or none."""
    if audit is None:
        return await db.run(verb)

    async def once(conn: Raw) -> T:
        async with looking(conn):
            answer = await verb(conn)
            await keep(db, conn, told(audit, answer))
        return answer

    return await db.run(once)


async def keep(db: Database, conn: Raw, entry: AuditEntry | None) -> None:
    """Keep a row in the transaction at hand, if there is one to keep, and mark the request that asks for the action.

    Raises:
        IdempotencyInFlight: the request is done by somebody else; the transaction must not commit.
    """
    if entry is None:
        return
    job_id = UUID(entry.target) if entry.target_kind is Target.JOB and entry.target is not None else None
    await conn.execute(
        db.in_schema(_KEEP),
        *(entry.id, entry.actor, entry.tenant, job_id, entry.action, entry.target_kind, entry.target),
        *(entry.reason, entry.outcome, details_text(entry)),
    )
    await mark(db, conn, entry.request, entry.effect)


async def keep_entry(db: Database, entry: AuditEntry) -> None:
    """Keep a row by itself."""
    await db.run(lambda conn: keep(db, conn, entry))


async def page(db: Reader, query: AuditQuery) -> AuditPage:
    """Give one page, newest first; it may be short, and `next_before` is None only at the end."""
    sql = _OF_TARGET if query.target is not None else _OF_ACTOR if query.actor is not None else _EVERY
    scanned = max(SCANNED, query.limit + 1)
    where = (query.target, query.actor, query.tenant, query.action, query.target_kind, query.since, query.until)
    binds = (query.before, scanned, *where, query.limit + 1)
    rows = await behind(db, query.tenant, lambda conn: conn.fetch(db.in_schema(sql), *binds))
    items = tuple(_view(row) for row in rows if row["id"] is not None)
    if len(items) > query.limit:
        return AuditPage(items=items[: query.limit], next_before=items[query.limit - 1].seq)
    return AuditPage(items=items, next_before=rows[0]["floor"])


def details_text(entry: AuditEntry) -> str:
    """Give an entry's details as JSON text; of too many nothing is kept but that they were."""
    text = json.dumps(dict(entry.details), ensure_ascii=True, allow_nan=False, default=str)
    return text if len(text) <= MAX_DETAILS_BYTES else json.dumps({"omitted_bytes": len(text)})


def _view(row: Row) -> AuditView:
    return AuditView(
        seq=row["seq"],
        id=plain(row["id"]),
        at=row["at"],
        actor=row["actor"],
        tenant=row["tenant"],
        action=row["action"],
        target_kind=row["target_kind"],
        target=row["target"],
        reason=row["reason"],
        outcome=row["outcome"],
        details=row["details"],
    )
