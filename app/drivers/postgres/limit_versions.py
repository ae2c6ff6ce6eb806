"""Whose numbers of limits are in force: those of the newest code version that counts.

A version's place is that of its first publication; declaring other limits under the same name makes it the newest. It
counts while it has workers, and for a while after: so one that starts again takes nothing back from a newer one, and
after a rollback the older one's numbers are in force again once the newer one has gone. Declaring is a part of
publishing job types; choosing anew is a sweep's. Both hold the published types' rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from ...domain.limit import VERSION_FORGOTTEN, VERSION_KEPT, rules_of
from ...domain.snapshot import JobTypeDoc
from .database import Database, Raw
from .limit_rules import PARKED_KEYS, open_keys, open_names
from .run_locks import looking

_KEPT = f"interval '{VERSION_KEPT.total_seconds()} s'"
_HAS_WORKERS = f"""exists (
    select from outlast.worker w where w.code_version = v.code_version
      and (coalesce(w.closed_at, w.lost_at) > outlast.clock() - {_KEPT}) is not false)"""
_COUNTS = f"(v.shown_at > outlast.clock() - {_KEPT} or {_HAS_WORKERS})"

# Job types without limits, which are nearly all, write nothing here; one that had some says that it has none now.
_SHOW = """
with r as materialized (
  select u.* from unnest($3::text[], $4::text[], $5::int[], $6::interval[]) u(name, "limit", n, per)),
d as (
  select d.name, d.code_version,
    array(select r.limit from r where r.name = d.name order by r.limit collate "C") as limits,
    array(select r.n from r where r.name = d.name order by r.limit collate "C") as ns,
    array(select r.per from r where r.name = d.name order by r.limit collate "C") as pers
  from unnest($1::text[], $2::text[]) d(name, code_version)
  where d.name = any($3::text[]) or exists (select from outlast.limit_rule o where o.name = d.name))
insert into outlast.limit_version as v (name, code_version, limits, ns, pers)
select d.name, d.code_version, d.limits, d.ns, d.pers from d order by d.name
on conflict (name, code_version) do update set shown_at = excluded.shown_at,
  limits = excluded.limits, ns = excluded.ns, pers = excluded.pers,
  number = case when (v.limits, v.ns, v.pers) is not distinct from (excluded.limits, excluded.ns, excluded.pers)
    then v.number else excluded.number end
returning v.name"""

_CHOOSE = f"""
with c as materialized (
  select distinct on (v.name) v.* from outlast.limit_version v
  where v.name = any($1::text[]) and {_COUNTS} order by v.name, v.number desc),
st as (
  update outlast.limit_version v set stands = not v.stands from c
  where $2 and v.name = c.name and v.stands <> (v.code_version = c.code_version)),
old as (
  delete from outlast.limit_version v
  where v.name = any(array(select name from c)) and not v.stands and not {_HAS_WORKERS}
    and v.shown_at < outlast.clock() - interval '{VERSION_FORGOTTEN.total_seconds()} s'),
d as materialized (
  select c.name, u.limit, u.n, u.per from c cross join lateral unnest(c.limits, c.ns, c.pers) u("limit", n, per)),
up as (
  insert into outlast.limit_rule as r (name, "limit", declared, per)
  select d.name, d.limit, d.n, d.per from d order by d.name, d.limit
  on conflict (name, "limit") do update set declared = excluded.declared, per = excluded.per
    where (r.declared, r.per) is distinct from (excluded.declared, excluded.per)
  returning r.name),
gone as (
  update outlast.limit_rule r set declared = null
  where r.name = any(array(select name from c)) and r.declared is not null
    and not exists (select from d where d.name = r.name and d.limit = r.limit)
  returning r.name)
select name from up union select name from gone"""  # noqa: S608  fragments of our own

# Those whose version has gone while another counts. Few stand, and of a type there are few others.
_FORSAKEN = f"""outlast.limit_version s
  where s.stands and (select {_COUNTS} from (select s.*) v) is false
    and exists (select from outlast.limit_version v where v.name = s.name and not v.stands and {_COUNTS})"""  # noqa: S608  same
MUST_CHOOSE = f"exists (select from {_FORSAKEN})"
_FIND_FORSAKEN = f"select s.name from {_FORSAKEN} order by s.name"  # noqa: S608  same
_LOCK_TYPES = "select from outlast.job_type t where t.name = any($1::text[]) order by t.name for update"


async def declare(db: Database, conn: Raw, docs: Sequence[JobTypeDoc]) -> set[str]:
    """Show what job types declare, let the newest version's be in force, and give the types of which that changed any.

    A part of the transaction that publishes them, which has their rows. An operator's numbers stand.
    """
    versions = ([doc.name for doc in docs], [doc.code_version for doc in docs])
    rules: list[list[object]] = [list(column) for column in zip(*_rules(docs), strict=True)] or [[], [], [], []]
    shown = await conn.fetch(db.in_schema(_SHOW), *versions, *rules)
    return await _choose(db, conn, [row["name"] for row in shown], is_noted=True) if shown else set()


async def open_declared(db: Database, docs: Sequence[JobTypeDoc], *, changed: set[str]) -> None:
    """Open the keys that jobs are parked at by the numbers before, once those in force now are committed.

    Also where nothing has changed: a call before this one may have ended between the two. Nobody decides by the numbers
    of then any more, so those keys are enough that somebody is parked at. Repeating it is safe.
    """
    if changed:
        await open_names(db, sorted(changed))
    await _open_parked(db, {name for name, *_ in _rules(docs)} - changed)


async def choose_anew(db: Database) -> None:
    """Let another version's numbers be in force where the one that had them has gone.

    Noted as done once the keys are open, so that a call that is cut off is made up for by the next.
    """
    found = await db.run(lambda conn: conn.fetch(db.in_schema(_FIND_FORSAKEN)))
    names = [row["name"] for row in found]
    for is_noted in (False, True) if names else ():

        async def once(conn: Raw, is_noted: bool = is_noted) -> set[str]:  # noqa: FBT001 - bound
            async with looking(conn):
                await conn.fetch(db.in_schema(_LOCK_TYPES), names)
                return await _choose(db, conn, names, is_noted=is_noted)

        changed = await db.run(once)
        if changed:
            await open_names(db, sorted(changed))
        await _open_parked(db, set(names) - changed)


async def _choose(db: Database, conn: Raw, names: Sequence[str], *, is_noted: bool) -> set[str]:
    return {row["name"] for row in await conn.fetch(db.in_schema(_CHOOSE), names, is_noted)}


async def _open_parked(db: Database, names: set[str]) -> None:
    parked = (
        await db.run(lambda conn: conn.fetch(db.in_schema(PARKED_KEYS), sorted(names), UUID(int=0))) if names else []
    )
    if parked:
        await open_keys(db, sorted(row["hash"] for row in parked))


def _rules(docs: Sequence[JobTypeDoc]) -> list[tuple[str, str, int, timedelta | None]]:
    return [(doc.name, rule.limit, rule.n, rule.per) for doc in docs for rule in rules_of(doc.document)]
