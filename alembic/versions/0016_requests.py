"""Requests with a key of their own: claimed, their effect marked in its own commit, their answer kept for a day.

Only HTTP requests that carry an `Idempotency-Key` touch this table. Beside it a view for autoscalers, which run
statements of their own: its name and columns stay.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def instant(column: str, options: str = "not null") -> str:
    """Give a timestamp column that every client can read back: finite, years 1970 to 9999."""
    low, high = "1970-01-01 00:00:00+00", "10000-01-01 00:00:00+00"
    return f"{column} timestamptz {options} check ({column} >= '{low}' and {column} < '{high}')"


STATEMENTS = (
    # A row is written twice or three times within moments: room on its page keeps the updates off the indexes.
    f"""create table outlast.request(
      id uuid primary key, holder uuid not null, fingerprint uuid not null,
      {instant("created_at")}, {instant("until_at")},
      effect text, status smallint, headers text, body text) with (fillfactor = 70)""",
    "create index request_created on outlast.request(created_at)",
    "insert into outlast.purge_mark(kind) values ('requests')",
    # A queue that is served and empty has a row of noughts: an autoscaler that finds none takes it for a failure.
    """create view outlast.queue_load as
with ranks as materialized (
  select queue, rank, count(*) as n, min(seq) as first from outlast.ready group by queue, rank),
oldest as (
  select r.queue, sum(r.n)::bigint as n, min(coalesce(t.since, j.created_at)) as since
  from ranks r
  left join lateral (
    select t.job_id, t.since from outlast.ready t
    where t.queue = r.queue and t.rank = r.rank and t.seq = r.first offset 0) t on true
  left join lateral (select j.created_at from outlast.job j where j.id = t.job_id offset 0) j on true
  group by r.queue),
held as (select queue, count(*) as n from outlast.running group by queue),
names as (
  select queue from oldest union select queue from held union select name from outlast.queue
  union select unnest(w.queues) from outlast.worker w where w.closed_at is null and w.lost_at is null)
select s.queue, coalesce(o.n, 0) as ready, coalesce(h.n, 0) as running,
  case when o.since is null then 0::float8
    else greatest(extract(epoch from outlast.clock() - o.since)::float8, 0) end as oldest_ready_seconds
from names s left join oldest o on o.queue = s.queue left join held h on h.queue = s.queue""",
)

# Kept answers are nobody's but the caller's, and no read for callers of one tenant needs them.
OFF_THE_WALL = """do $make$ begin
  revoke all on {schema}.request from "{role}";
exception when undefined_object then null;
end $make$"""


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(in_schema(statement))
    schema: str = context.config.attributes["schema"]
    op.execute(OFF_THE_WALL.format(schema=f'"{schema}"', role=f"{schema}_api"))


def downgrade() -> None:
    op.execute(in_schema("delete from outlast.purge_mark where kind = 'requests'"))
    op.execute(in_schema("drop view outlast.queue_load"))
    op.execute(in_schema("drop table outlast.request"))
