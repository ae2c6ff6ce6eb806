"""How many each limit allows: as the newest publication declares it, or as an operator has set it.

Whatever raises a number opens the keys that jobs are parked at: after the number is committed, and with the keys
locked, so that whoever has just decided by the old one is seen. Declaring is a part of publishing job types.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...domain.audit import AuditEntry
from ...domain.errors import NotFound
from ...domain.limit import StoredLimit, rules_of
from ...domain.snapshot import JobTypeDoc
from ..limits import audit_of_set
from ..protocol import Wake
from .audit import audited
from .database import Database, Raw, Row
from .notify import notify
from .run_locks import looking

# A limit of which there never was anything stays unknown; most job types have none, and write nothing here.
_DECLARE = """
with d as materialized (
  select * from unnest($2::text[], $3::text[], $4::int[], $5::interval[]) d(name, "limit", n, per)),
up as (
  insert into outlast.limit_rule as r (name, "limit", declared, per)
  select d.name, d.limit, d.n, d.per from d order by d.name, d.limit
  on conflict (name, "limit") do update set declared = excluded.declared, per = excluded.per
    where (r.declared, r.per) is distinct from (excluded.declared, excluded.per)
  returning r.name),
gone as (
  update outlast.limit_rule r set declared = null
  where r.name = any($1::text[]) and r.declared is not null
    and not exists (select from d where d.name = r.name and d.limit = r.limit)
  returning r.name)
select name from up union select name from gone"""

_SET = """
with r as materialized (
  select r.ctid, r.declared, r.override from outlast.limit_rule r
  where r.name = $1 and r.limit = $2 for update)
update outlast.limit_rule n set override = $3::int, set_by = case when $3::int is not null then $4::text end,
  set_at = case when $3::int is not null then outlast.clock() end
from r where n.ctid = r.ctid
returning case when r.declared is not null then coalesce(r.override, r.declared) end as before,
  case when n.declared is not null then coalesce(n.override, n.declared) end as after"""

_LOCK_KEYS = "select k.hash from outlast.limit_key k where k.name = any($1::text[]) order by k.hash for update"
_OPEN_KEYS = """
update outlast.limit_key k set open_at = outlast.clock()
where k.name = any($1::text[]) and exists (select from outlast.gate g where g.parked = k.hash)"""

_STORED = """
select r.name, r.limit, r.declared, r.per, r.set_by,
  case when r.declared is not null then coalesce(r.override, r.declared) end as n,
  (select count(*) from outlast.slot s
    cross join lateral (select k.name, k.limit from outlast.limit_key k where k.hash = s.hash offset 0) k
    where k.name = r.name and k.limit = r.limit) as held,
  (select count(*) from outlast.gate g
    cross join lateral (
      select from outlast.job j where j.id = g.job_id and r.limit = any(j.limit_names)
        and j.name_id = (select n.id from outlast.job_name n where n.name = r.name) offset 0) j) as waiting
from outlast.limit_rule r
where ($1::text is null or r.name = $1) and ($2::text is null or r.limit = $2)
order by r.name collate "C", r.limit collate "C\""""


async def declare(db: Database, docs: Sequence[JobTypeDoc]) -> None:
    """Let what job types declare be in force; an operator's numbers stand. Repeating it is safe."""
    rules = [(doc.name, rule.limit, rule.n, rule.per) for doc in docs for rule in rules_of(doc.document)]
    columns: list[list[object]] = [list(column) for column in zip(*rules, strict=True)] or [[], [], [], []]
    names = [doc.name for doc in docs]
    changed = await db.run(lambda conn: conn.fetch(db.in_schema(_DECLARE), names, *columns))
    # Also where nothing has changed: a call before this one may have ended between the two.
    limited = {row["name"] for row in changed} | {name for name, *_ in rules}
    if limited:
        await _open(db, sorted(limited))


async def stored_limits(db: Database, name: str | None = None) -> tuple[StoredLimit, ...]:
    """Give the limits in force."""
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(_STORED), name, None))
    return tuple(map(_stored, rows))


async def set_limit(
    db: Database, name: str, limit: str, n: int | None, *, by: str, audit: AuditEntry | None = None
) -> StoredLimit:
    """Put an operator's number in the declared one's place. Repeating it is safe.

    Raises:
        NotFound: no job type has declared such a limit.
    """

    async def put(conn: Raw) -> Row | None:
        return await conn.fetchrow(db.in_schema(_SET), name, limit, n, by)

    if await audited(db, put, audit, _told) is None:
        raise NotFound(
            f"the job type {name!a} has no limit {limit!a}",
            fix="name one of its limits, or start a worker that declares it",
        )
    await _open(db, [name])
    (row,) = await db.run(lambda conn: conn.fetch(db.in_schema(_STORED), name, limit))
    return _stored(row)


def _told(entry: AuditEntry, found: Row | None) -> AuditEntry | None:
    return None if found is None else audit_of_set(entry, found["before"], found["after"])


async def _open(db: Database, names: Sequence[str]) -> None:
    """Let those who are parked at keys of these job types be looked at again."""

    async def once(conn: Raw) -> None:
        async with looking(conn):
            await conn.fetch(db.in_schema(_LOCK_KEYS), list(names))
            await conn.execute(db.in_schema(_OPEN_KEYS), list(names))

    await db.run(once)
    await notify(db, Wake.READY)


def _stored(row: Row) -> StoredLimit:
    return StoredLimit(
        name=row["name"],
        limit=row["limit"],
        n=row["n"],
        declared=row["declared"],
        per=row["per"],
        set_by=row["set_by"],
        held=row["held"],
        waiting=row["waiting"],
    )
