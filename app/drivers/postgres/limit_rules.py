"""How many each limit allows: as the newest code version declares it, or as an operator has set it.

Whatever raises a number opens the keys that jobs are parked at: after the number is committed, and with the keys
locked, so that whoever has just decided by the old one is seen. Which version is the newest, `limit_versions` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ...domain.audit import UNCHANGED, AuditEntry
from ...domain.errors import LimitUnenforceable, NotFound
from ...domain.limit import StoredLimit, rules_of
from ...domain.snapshot import JobTypeDoc
from ..protocol import Wake
from .audit import audited
from .database import Database, Raw, Row
from .notify import notify
from .run_locks import looking
from .slots import LOCK_KEYS

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

# A key that is made after the number is committed is counted by it.
_KEYS = "select k.hash from outlast.limit_key k where k.name = any($1::text[])"
# Whoever decides passes over locked keys: they are locked for a short time each.
_LOCKED_AT_ONCE = 500
# Of each key that somebody is parked at one row is read, whatever is parked there.
PARKED_KEYS = """
with recursive p(hash) as (
  (select g.parked from outlast.gate g where g.parked >= $2 order by g.parked limit 1)
  union all
  select (select g.parked from outlast.gate g where g.parked > p.hash order by g.parked limit 1)
  from p where p.hash is not null)
select k.hash from p
cross join lateral (select k.hash, k.name from outlast.limit_key k where k.hash = p.hash offset 0) k
where k.name = any($1::text[])"""
OPEN_KEYS = """
update outlast.limit_key k set open_at = outlast.clock()
where k.hash = any($1::uuid[]) and (select true from outlast.gate g where g.parked = k.hash limit 1) is true"""

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
    await open_names(db, [name])
    (row,) = await db.run(lambda conn: conn.fetch(db.in_schema(_STORED), name, limit))
    return _stored(row)


async def open_names(db: Database, names: Sequence[str]) -> None:
    """Let those who are parked at keys of these job types, or just being parked, be looked at again."""
    keys = await db.run(lambda conn: conn.fetch(db.in_schema(_KEYS), list(names)))
    await open_keys(db, sorted(row["hash"] for row in keys))


async def open_keys(db: Database, keys: Sequence[UUID]) -> None:
    """Open keys that somebody is parked at; waits for whoever decides about them."""
    for start in range(0, len(keys), _LOCKED_AT_ONCE):
        few = keys[start : start + _LOCKED_AT_ONCE]

        async def once(conn: Raw, few: Sequence[UUID] = few) -> None:
            async with looking(conn):
                await conn.fetch(db.in_schema(LOCK_KEYS), few)
                await conn.execute(db.in_schema(OPEN_KEYS), few)

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
