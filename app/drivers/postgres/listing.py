"""`list` and `dead_letters`: many jobs at once, newest first, with work that is bounded whatever the store holds.

A page is looked for among at most `SCANNED` candidates below the cursor: envelopes, or, when states are asked for, the
tokens of their buckets. When few of them fit the filters, the page is short and its cursor says where to go on; only a
page without a cursor is the last. Payloads and results stay where they are.
"""

from __future__ import annotations

import re

from ...domain.job import JobId
from ...domain.snapshot import DeadGroup, JobCount, JobPage
from ...domain.state import TERMINAL, State
from ..reading import MOST_COUNTED, ListQuery, newer_than, not_newer_than
from .buckets import DEAD, DONE, TOKEN
from .database import Database
from .describe import AROUND, VIEW, job_view
from .rows import plain
from .tenant_wall import behind

SCANNED = 20_000
GROUPED = 50_000

_CURSOR = re.compile(r"\(\$1::uuid is null or (id|job_id) < \$1\)")
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

_CHILDREN = "select id from outlast.job where parent_id = $13 and " + _BELOW.format(id="id")  # noqa: S608  same

# What was enqueued fits.
_ENVELOPE = """
  cross join lateral (
    select e.* from outlast.job e left join outlast.job_name m on m.id = e.name_id and $3::text is not null
    where e.id = s.id and ($3::text is null or m.name = $3) and ($4::text is null or e.queue = $4)
      and ($5::text is null or e.tenant = $5)
      and ($8::timestamptz is null or e.created_at >= $8) and ($9::timestamptz is null or e.created_at < $9)
      and ($10::text[] is null or e.tags && $10) and ($11::text[] is null or e.tags @> $11)
      and ($12::text is null or e.key = $12) and ($13::uuid is null or e.parent_id = $13)
    offset 0) e"""
# Where it stands fits, and how its last attempt ended.
_STANDS = f"""
  where ($6::text[] is null or t.state = any($6::text[]))
    and ($14::timestamptz is null or t.finished_at >= $14) and ($15::timestamptz is null or t.finished_at < $15)
    and ($16::int is null or (t.worker = $16 and t.state = '{State.RUNNING}'))
    and ($17::text is null or (a.error_code = $17 and t.state <> '{State.DONE}'))"""
_LAST_ATTEMPT = """
  left join lateral (
    select a.error_code from outlast.attempt a where a.job_id = e.id and $17::text is not null
    order by a.number desc limit 1) a on true"""

# `$2` candidates, of which `$7` are shown; `floor` is the last candidate when the page was not filled by then.
_PAGE = f"""
with page as materialized (
  select {VIEW}
  from (<candidates>) s{_ENVELOPE}
  cross join lateral ({TOKEN}) t {AROUND}{_STANDS}
  order by s.id desc limit $7)
select b.floor, p.* from (
  select case when (select count(*) from page) < $7 then (
    select s.id from (<candidates>) s order by s.id desc offset $2 - 1 limit 1) end as floor) b
left join page p on true
order by p.id desc"""  # noqa: S608  same

# Of envelopes alone, where no token has to be looked at.
_COUNT = f"""
select (select count(*) from (select from (<candidates>) s{_ENVELOPE}<stands> limit $7) h) as n,
  (select count(*) from (<candidates>) s) = $2 as is_cut"""  # noqa: S608  same
# Every bind has its type, also where nothing is compared with it.
_UNNEEDED = """
  where ($6::text[] is null and $14::timestamptz is null and $15::timestamptz is null and $16::int is null
    and $17::text is null)"""
_COUNT_TOKENS = f" cross join lateral ({TOKEN}) t{_LAST_ATTEMPT}{_STANDS}"

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
    candidates = await _candidates(db, query)
    if candidates is None:
        return JobPage(items=(), next_after=None)
    scanned = SCANNED if query.is_filtered else query.limit + 1
    sql = _PAGE.replace("<candidates>", candidates)
    if query.after is not None:
        sql = upwards(sql)
    elif query.before is not None:
        sql = downwards(sql)
    start = query.before if query.after is None else query.after
    rows = await behind(
        db, query.tenant, lambda conn: conn.fetch(db.in_schema(sql), *_binds(query, start, scanned, query.limit + 1))
    )
    found = tuple(job_view(row) for row in rows if row["id"] is not None)
    items, floor = found[: query.limit], rows[0]["floor"]
    if len(found) > query.limit:
        goes_on: JobId | None = items[-1].id
    else:
        goes_on = None if floor is None else JobId(plain(floor))
    if query.after is None:
        first = items[0].id if items else None
        return JobPage(items=items, next_after=goes_on, newer_than=newer_than(query.before, first))
    below = not_newer_than(query.after, items[0].id if items else None)
    return JobPage(items=items[::-1], next_after=below, newer_than=goes_on)


async def count_jobs(db: Database, query: ListQuery) -> JobCount:
    """Count the jobs that fit, among as many candidates as a page looks at."""
    candidates = await _candidates(db, query)
    if candidates is None:
        return JobCount(value=0, is_capped=False)
    stands = _COUNT_TOKENS if query.needs_token else _UNNEEDED
    sql = db.in_schema(_COUNT.replace("<candidates>", candidates).replace("<stands>", stands))
    scanned = SCANNED if query.is_filtered else MOST_COUNTED + 1
    row = await behind(
        db, query.tenant, lambda conn: conn.fetchrow(sql, *_binds(query, None, scanned, MOST_COUNTED + 1))
    )
    if row is None:
        raise AssertionError("a count is one row")
    return JobCount(value=min(row["n"], MOST_COUNTED), is_capped=row["is_cut"] or row["n"] > MOST_COUNTED)


def downwards(sql: str) -> str:
    """Let candidates begin at a cursor there is: its place in the index is found, and what is above never read."""
    return _CURSOR.sub(r"\1 < $1::uuid", sql)


def upwards(sql: str) -> str:
    """Turn a page around: candidates above the cursor, the oldest first."""
    return (
        _CURSOR.sub(r"\1 > $1::uuid", sql)
        .replace("id desc limit $2", "id asc limit $2")
        .replace("order by s.id desc", "order by s.id asc")
        .replace("order by p.id desc", "order by p.id asc")
    )


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


def _binds(query: ListQuery, start: JobId | None, scanned: int, shown: int) -> tuple[object, ...]:
    return (
        *(start, scanned, query.name, query.queue, query.tenant, sorted(query.states) or None, shown),
        *(query.created_after, query.created_before, list(query.tags_any) or None, list(query.tags_all) or None),
        *(query.key, query.parent_id, query.finished_after, query.finished_before, query.worker_id, query.error_code),
    )


async def _candidates(db: Database, query: ListQuery) -> str | None:
    """Give the SQL that yields candidate ids, newest first; None when no bucket can hold such a job."""
    states = query.states
    if query.parent_id is not None:
        return _CHILDREN
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
