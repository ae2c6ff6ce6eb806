"""How many each limit allows: as the newest publication declares it, or as an operator has set it.

Whatever raises a number opens the keys that jobs are parked at: after the number is committed, and with the keys
locked, so that whoever has just decided by the old one is seen. Declaring is a part of publishing job types.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...domain.audit import UNCHANGED, AuditEntry
from ...domain.errors import LimitUnenforceable, NotFound
from ...domain.limit import StoredLimit, rules_of
from ...domain.snapshot import JobTypeDoc
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

# A restore, or a hand, may leave a trigger that does not fire.
_IS_ENFORCED = """
select t.tgenabled = 'A' or t.tgenabled = 'O' and current_setting('session_replication_role') <> 'replica'
from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1 and c.relname = 'ready' and t.tgname = 'into_gate'"""

_SET = """
update outlast.limit_rule r set override = $3::int, set_by = case when $3::int is not null then $4::text end,
  set_at = case when $3::int is not null then outlast.clock() end
from (select o.name, o.limit, o.override from outlast.limit_rule o where o.name = $1 and o.limit = $2 for update) b
where r.name = b.name and r.limit = b.limit returning b.override as before"""

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


async def check_enforced(db: Database, docs: Sequence[JobTypeDoc]) -> None:
    """Look whether what job types declare can be enforced.

    Raises:
        LimitUnenforceable: what sends limited jobs into the gate is switched off.
    """
    if not any(rules_of(doc.document) for doc in docs):
        return
    if await db.run(lambda conn: conn.fetchval(db.in_schema(_IS_ENFORCED), db.schema)) is not True:
        raise LimitUnenforceable(
            f"limited jobs would run like any other: the trigger into_gate on {db.schema}.ready does not fire",
            fix=f'run: alter table "{db.schema}".ready enable trigger into_gate; and leave session_replication_role of'
            " the role at origin",
        )


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

    async def once(conn: Raw) -> Row | None:
        return await conn.fetchrow(db.in_schema(_SET), name, limit, n, by)

    def told(entry: AuditEntry, found: Row | None) -> AuditEntry | None:
        if found is None:
            return None
        outcome = UNCHANGED if found["before"] == n else entry.outcome
        return entry.came_to(outcome, before=found["before"], after=n)

    if await audited(db, once, audit, told) is None:
        raise NotFound(
            f"the job type {name!a} has no limit {limit!a}",
            fix="name one of its limits, or start a worker that declares it",
        )
    await _open(db, [name])
    (row,) = await db.run(lambda conn: conn.fetch(db.in_schema(_STORED), name, limit))
    return _stored(row)


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
