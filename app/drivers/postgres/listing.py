"""`list` and `dead_letters`: many jobs at once, newest first, with work that is bounded whatever the store holds.

A page is looked for among at most `SCANNED` candidates below the cursor: envelopes, or, when states are asked for, the
tokens of their buckets. When few of them fit the filters, the page is short and its cursor says where to go on; only a
page without a cursor is the last. Payloads and results stay where they are.
"""

from __future__ import annotations

from ...domain.job import JobId
from ...domain.snapshot import DeadGroup, JobPage
from ...domain.state import TERMINAL, State
from ..reading import ListQuery
from .buckets import DEAD, DONE, TOKEN
from .database import Database
from .describe import AROUND, VIEW, job_view
from .rows import plain
from .tenant_wall import behind

SCANNED = 20_000
GROUPED = 50_000

_BELOW = "($1::uuid is null or {id} < $1) order by {id} desc limit $2"
_ENVELOPES = "select id from outlast.job where " + _BELOW.format(id="id")  # noqa: S608  fragments of this module
# Of few ready tokens all are sorted; of many, the newest are among the newest jobs.
_MANY_READY = f"select count(*) > {SCANNED} from (select from outlast.ready limit {SCANNED + 1}) r"  # noqa: S608  same


def _bucket(table: str, condition: str = "true") -> str:
    return f"select job_id as id from outlast.{table} where {condition} and {_BELOW.format(id='job_id')}"  # noqa: S608


_READY = _bucket("ready")
_GATED = _bucket("gate")
_ENDED = _bucket("finished")
_ENDED_BADLY = _bucket("finished", f"state <> {DONE}")
_LIVE_BUCKETS = {
    State.DELAYED: _bucket("waiting"),
    State.RUNNING: _bucket("running"),
    State.SUSPENDED: _bucket("suspended"),
    State.HELD: _bucket("held"),
}

# `$2` candidates, of which `$7` are shown; `floor` is the last candidate when the page was not filled by then.
_PAGE = f"""
with page as materialized (
  select {VIEW}
  from (<candidates>) s
  cross join lateral (
    select e.* from outlast.job e left join outlast.job_name m on m.id = e.name_id and $3::text is not null
    where e.id = s.id and ($3::text is null or m.name = $3) and ($4::text is null or e.queue = $4)
      and ($5::text is null or e.tenant = $5)
      and ($8::timestamptz is null or e.created_at >= $8) and ($9::timestamptz is null or e.created_at < $9)
    offset 0) e
  cross join lateral ({TOKEN}) t {AROUND}
  where $6::text[] is null or t.state = any($6::text[])
  order by s.id desc limit $7)
select b.floor, p.* from (
  select case when (select count(*) from page) < $7 then (
    select s.id from (<candidates>) s order by s.id desc offset $2 - 1 limit 1) end as floor) b
left join page p on true
order by p.id desc"""  # noqa: S608  same

_DEAD = f"""
select n.name, coalesce(f.reason, '') as reason, a.error_type, a.error_code, count(*) as n,
  min(f.finished_at) as first_at, max(f.finished_at) as last_at
from (
  select job_id, state, reason, finished_at from outlast.finished where state <> {DONE}
  order by job_id desc limit $2) f
cross join lateral (
  select j.name_id from outlast.job j where j.id = f.job_id and ($1::text is null or j.tenant = $1) offset 0) j
left join lateral (select n.name from outlast.job_name n where n.id = j.name_id offset 0) n on true
left join lateral (
  select a.error_type, a.error_code from outlast.attempt a where a.job_id = f.job_id
  order by a.number desc limit 1) a on true
where f.state = {DEAD}
group by 1, 2, 3, 4"""  # noqa: S608  same


async def list_jobs(db: Database, query: ListQuery) -> JobPage:
    """Give one page, newest id first; it may be short, and `next_after` is None only at the end."""
    candidates = await _candidates(db, query.states)
    if candidates is None:
        return JobPage(items=(), next_after=None)
    times = (query.created_after, query.created_before)
    is_filtered = any((query.states, query.name, query.queue, query.tenant, *times))
    scanned = SCANNED if is_filtered else query.limit + 1
    sql = db.in_schema(_PAGE.replace("<candidates>", candidates))
    states = sorted(query.states) or None
    where = (query.before, scanned, query.name, query.queue, query.tenant, states, query.limit + 1, *times)
    rows = await behind(db, query.tenant, lambda conn: conn.fetch(sql, *where))
    items = tuple(job_view(row) for row in rows if row["id"] is not None)
    if len(items) > query.limit:
        return JobPage(items=items[: query.limit], next_after=items[query.limit - 1].id)
    floor = rows[0]["floor"]
    return JobPage(items=items, next_after=None if floor is None else JobId(plain(floor)))


async def dead_letters(db: Database, *, tenant: str | None = None) -> tuple[DeadGroup, ...]:
    """Group the newest dead letters, most first, then by words; of a great many the oldest are left out."""
    rows = await behind(db, tenant, lambda conn: conn.fetch(db.in_schema(_DEAD), tenant, GROUPED))
    groups = [
        DeadGroup(
            name=row["name"] or "",
            reason=row["reason"],
            error_type=row["error_type"],
            error_code=row["error_code"],
            count=row["n"],
            first_at=row["first_at"],
            last_at=row["last_at"],
        )
        for row in rows
    ]
    return tuple(sorted(groups, key=_most_first))


async def _candidates(db: Database, states: frozenset[State]) -> str | None:
    """Give the SQL that yields candidate ids, newest first; None when no bucket can hold such a job."""
    if not states:
        return _ENVELOPES
    if State.READY in states and await db.run(lambda conn: conn.fetchval(db.in_schema(_MANY_READY))):
        return _ENVELOPES
    parts = [sql for state, sql in _LIVE_BUCKETS.items() if state in states]
    if State.READY in states:
        parts += [_READY, _GATED]
    if State.DONE in states:
        parts.append(_ENDED)
    elif states & TERMINAL:
        parts.append(_ENDED_BADLY)
    if not parts:
        return None
    together = " union all ".join(f"({part})" for part in parts)
    return f"select id from ({together}) u order by id desc limit $2"  # noqa: S608  same


def _most_first(group: DeadGroup) -> tuple[object, ...]:
    return (-group.count, group.name, group.reason, group.error_type or "", group.error_code or "")
