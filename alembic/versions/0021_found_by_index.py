"""What lists of jobs look for is found by an index, and jobs that have nothing of it are in none of them.

Tags stand in a narrow table that `job` itself keeps, so that no verb can forget it, also of a release that does not
know it; a job without tags costs one look at a null. Keys, other tenants than the usual one, codes of errors and bad
ends have partial indexes. Beside them a table of what attempts came to over time. On a large store the indexes can be
made beforehand, without keeping writers waiting: the same statements with `concurrently`; this step finds them there.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def instant(column: str, options: str = "not null") -> str:
    """Give a timestamp column that every client can read back: finite, years 1970 to 9999."""
    low, high = "1970-01-01 00:00:00+00", "10000-01-01 00:00:00+00"
    return f"{column} timestamptz {options} check ({column} >= '{low}' and {column} < '{high}')"


STATEMENTS = (
    "create table outlast.tag(tag text not null, job_id uuid not null, primary key (tag, job_id))",
    """create function outlast.keep_tags() returns trigger language plpgsql as $$
      begin
        if tg_op <> 'INSERT' then
          delete from outlast.tag t where t.tag = any(old.tags) and t.job_id = old.id;
        end if;
        if tg_op <> 'DELETE' then
          insert into outlast.tag(tag, job_id) select u.tag, new.id from unnest(new.tags) u(tag) order by u.tag
            on conflict do nothing;
        end if;
        return null;
      end $$""",
    """create trigger tags_made after insert on outlast.job for each row when (new.tags is not null)
      execute function outlast.keep_tags()""",
    """create trigger tags_changed after update of tags on outlast.job for each row
      when (old.tags is distinct from new.tags) execute function outlast.keep_tags()""",
    """create trigger tags_gone after delete on outlast.job for each row when (old.tags is not null)
      execute function outlast.keep_tags()""",
    """insert into outlast.tag(tag, job_id)
      select distinct u.tag, j.id from outlast.job j cross join unnest(j.tags) u(tag) where j.tags is not null""",
    "create index if not exists job_key on outlast.job(key, id) where key is not null",
    "create index if not exists job_tenant on outlast.job(tenant, id) where tenant <> 'default'",
    """create index if not exists attempt_error on outlast.attempt(error_code, job_id, number)
      where error_code is not null""",
    "create index if not exists finished_bad_at on outlast.finished(finished_at, job_id) where state <> 0",
    # What attempts came to: by the length of a stretch in seconds, its beginning, job type and queue. Workers add to
    # the stretches of now, by rewriting their rows on the page.
    f"""create table outlast.flow(
      tier int not null, {instant("at")}, name text not null, queue text not null, counts int[] not null,
      waits int[] not null, runs int[] not null, primary key (tier, at, name, queue)) with (fillfactor = 50)""",
    # Jobs that are due at one instant may be many: a page of them begins at a place among those.
    "drop index outlast.waiting_due",
    "create index waiting_due on outlast.waiting(due_at, job_id)",
)

BACK = (
    "drop index outlast.waiting_due",
    "create index waiting_due on outlast.waiting(due_at)",
    *(f"drop index outlast.{index}" for index in ("finished_bad_at", "attempt_error", "job_tenant", "job_key")),
    *(f"drop trigger {trigger} on outlast.job" for trigger in ("tags_gone", "tags_changed", "tags_made")),
    "drop function outlast.keep_tags()",
    "drop table outlast.tag",
    "drop table outlast.flow",
)


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(in_schema(statement))


def downgrade() -> None:
    for statement in BACK:
        op.execute(in_schema(statement))
