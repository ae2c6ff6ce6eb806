"""`list`: many jobs at once, newest first, with work that is bounded whatever the store holds.

A page is looked for among the candidates of one source: the index of the rarest thing that is asked for. Of several
things that all are common, at most `SCANNED` candidates are looked at; when few of them fit, the page is short and its
cursor says where to go on; only a page without a cursor is the last. Payloads and results stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ...domain.job import JobId
from ...domain.snapshot import JobPage
from ...domain.state import State
from ..reading import ListQuery, newer_than, not_newer_than
from .buckets import TOKEN
from .describe import AROUND, VIEW, job_view
from .list_sources import BIND_TYPES, END_OF_CODE, SCANNED, TENANT, Source, choose, downwards
from .list_sources import upwards as turned
from .reader import Reader
from .rows import plain
from .tenant_wall import behind

# What was enqueued fits. The job type is looked up once for all.
ENVELOPE = """
  cross join lateral (
    select e.* from <envelope>
      and ($3::text is null or e.name_id = (select m.id from outlast.job_name m where m.name = $3))
      and ($4::text is null or e.queue = $4) and ($5::text is null or e.tenant = $5)
      and ($8::timestamptz is null or e.created_at >= $8) and ($9::timestamptz is null or e.created_at < $9)
      and ($10::text[] is null or e.tags && $10) and ($11::text[] is null or e.tags @> $11)
      and ($12::text is null or e.key = $12) and ($13::uuid is null or e.parent_id = $13)
    offset 0) e"""
# Where it stands fits, and how its last attempt ended.
STANDS = f"""
  where ($6::text[] is null or t.state = any($6::text[]))
    and ($14::timestamptz is null or t.finished_at >= $14) and ($15::timestamptz is null or t.finished_at < $15)
    and ($16::int is null or (t.worker = $16 and t.state = '{State.RUNNING}'))
    and ($17::text is null or (a.error_code = $17 and t.state <> '{State.DONE}')
      or (a.error_type is null and t.state = '{State.DEAD}' and t.reason = {END_OF_CODE}))
    and ($18::timestamptz is null or coalesce(t.due_at, e.run_at) >= $18)
    and ($19::timestamptz is null or coalesce(t.due_at, e.run_at) < $19) and <once>"""

# `$2` candidates down to `$20`, of which `$7` are shown; `floor` is the last candidate when the page was not filled by
# then.
PAGE = f"""
with page as materialized (
  select {VIEW}
  from (<candidates>) s{ENVELOPE}
  cross join lateral ({TOKEN}) t {AROUND}{STANDS}
  order by s.id desc limit $7)
select b.floor, p.* from (
  select case when (select count(*) from page) < $7 then coalesce($20::uuid, (
    select s.id from (<candidates>) s order by s.id desc offset $2 - 1 limit 1)) end as floor) b
left join page p on true
order by p.id desc"""  # noqa: S608  same
# The last of the candidates that may be looked at, which whoever reads behind the wall could not tell by themselves.
_FLOOR = f"""
select s.id from (<candidates>) s cross join (select {BIND_TYPES}) b
order by s.id desc offset $2 - 1 limit 1"""  # noqa: S608  same


async def list_jobs(db: Reader, query: ListQuery) -> JobPage:
    """Give one page, newest id first; it may be short, and `next_after` is None only at the end."""
    scanned = SCANNED if query.is_filtered else query.limit + 1
    start = query.before if query.after is None else query.after
    binds = binds_of(query, start, scanned, query.limit + 1)
    source = await choose(db, query, binds)
    turn = upwards if query.after is not None else downwards if query.before is not None else str
    floor = await floor_of(db, query, source, turn, binds)
    sql = db.in_schema(turn(over(PAGE, source, floor)))
    rows = await behind(db, query.tenant, lambda conn: conn.fetch(sql, *binds, floor))
    found = tuple(job_view(row) for row in rows if row["id"] is not None)
    items, last = found[: query.limit], rows[0]["floor"]
    if len(found) > query.limit:
        goes_on: JobId | None = items[-1].id
    else:
        goes_on = None if last is None else JobId(plain(last))
    if query.after is None:
        first = items[0].id if items else None
        return JobPage(items=items, next_after=goes_on, newer_than=newer_than(query.before, first))
    below = not_newer_than(query.after, items[0].id if items else None)
    return JobPage(items=items[::-1], next_after=below, newer_than=goes_on)


def upwards(sql: str) -> str:
    """Turn a page around: candidates above the cursor, the oldest first."""
    return turned(sql).replace("by s.id desc", "by s.id asc").replace("by p.id desc", "by p.id asc")


def binds_of(query: ListQuery, start: JobId | None, scanned: int, shown: int) -> tuple[object, ...]:
    """Give what the statements are sent, in the order of their binds."""
    return (
        *(start, scanned, query.name, query.queue, query.tenant, sorted(query.states) or None, shown),
        *(query.created_after, query.created_before, list(query.tags_any) or None, list(query.tags_all) or None),
        *(query.key, query.parent_id, query.finished_after, query.finished_before, query.worker_id, query.error_code),
        *(query.run_at_after, query.run_at_before),
    )


def over(sql: str, source: Source, floor: UUID | None = None) -> str:
    """Give a statement over the candidates of a source, down to `$20` if there is a floor."""
    candidates = source.sql if floor is None else source.sql.replace("($1::uuid", "id >= $20::uuid and ($1::uuid", 1)
    envelope = "(select s.*) e where true" if source.has_envelope else "outlast.job e where e.id = s.id"
    return sql.replace("<candidates>", candidates).replace("<envelope>", envelope).replace("<once>", source.once)


async def floor_of(
    db: Reader, query: ListQuery, source: Source, turn: Callable[[str], str], binds: tuple[object, ...]
) -> UUID | None:
    """Give the last candidate that may be looked at, where a page does not find it: None where it does, or is free."""
    if not source.has_envelope or query.tenant is None or db.api_role is None or source is TENANT:
        return None
    sql = db.in_schema(turn(_FLOOR.replace("<candidates>", source.sql)))
    return await db.run(lambda conn: conn.fetchval(sql, *binds))
