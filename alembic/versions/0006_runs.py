"""Durable runs: steps, what a run waits for, events, and jobs handed back to the code that recorded them.

A job that uses no step has no row in any of these tables. A suspended job's token is in `suspended`, narrow like the
others; what it waits for stands beside it, in `wait`, and is found by its time, its event or its child.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# Rows that come and go by the thousand: vacuum early, and never give the pages back (truncation locks the table).
HOT = (
    "with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=2000, autovacuum_analyze_scale_factor=0.05,"
    " autovacuum_vacuum_insert_scale_factor=0.05, vacuum_truncate=off)"
)

# What a token carries wherever it is.
CARRIED = """
  queue text not null, rank smallint not null, name_id int not null, attempt smallint not null default 0,
  claim_no int not null default 0, crashes smallint not null default 0, interrupts smallint not null default 0"""


def instant(column: str, options: str = "not null") -> str:
    """Give a timestamp column that every client can read back: finite, years 1970 to 9999."""
    low, high = "1970-01-01 00:00:00+00", "10000-01-01 00:00:00+00"
    return f"{column} timestamptz {options} check ({column} >= '{low}' and {column} < '{high}')"


NOW = "not null default outlast.clock()"

# A step's kind and its place in the run's order of asking.
PLACED = """
  name text not null, kind smallint not null check (kind between 0 and 4), branch text not null, number int not null"""

STATEMENTS = (
    # One order of all that is recorded; never cached, so that what one session records follows what it has read.
    "create sequence outlast.history_seq cache 1",
    "create sequence outlast.event_seq cache 1",
    f"""create table outlast.step(
      run_id uuid not null, {PLACED}, seq bigint not null default nextval('outlast.history_seq'), value text,
      claim_no int not null, code_version text not null, {instant("started_at")}, {instant("ended_at", NOW)},
      event_seq bigint, child_id uuid, primary key (run_id, name))""",
    # `awaited`: the suspension at hand named it. A failed child wakes the run only then, or it would do so for ever.
    f"""create table outlast.wait(
      job_id uuid not null, {PLACED}, {instant("began_at", NOW)}, {instant("due_at", "")}, tenant text, event text,
      event_key text, child_id uuid, code_version text not null, awaited boolean not null default true,
      primary key (job_id, name)) {HOT}""",
    "create index wait_due on outlast.wait(due_at) where due_at is not null",
    "create index wait_event on outlast.wait(tenant, event, event_key) where event is not null",
    "create index wait_child on outlast.wait(child_id) where child_id is not null",
    f"""create table outlast.suspended(
      job_id uuid primary key, {CARRIED}, {instant("since", NOW)}, reason smallint not null) {HOT}""",
    # Drawn under the lock of (tenant, name, key): there, their order is that of the commits.
    f"""create table outlast.event(
      seq bigint primary key default nextval('outlast.event_seq'), id uuid not null unique, tenant text not null,
      name text not null, key text not null, payload text not null, {instant("emitted_at", NOW)}, emitted_by text,
      matched int not null default 0)""",
    # The first is for readers; a suspend asks for the events of a key since its job was enqueued.
    "create index event_key on outlast.event(tenant, name, key, seq)",
    "create index event_since on outlast.event(tenant, name, key, emitted_at)",
    f"""create table outlast.progress(
      job_id uuid primary key, value double precision not null, message text, {instant('"at"', NOW)},
      claim_no int not null)""",
    f"""create table outlast.run_line(
      job_id uuid not null, seq bigint not null default nextval('outlast.history_seq'), {instant('"at"', NOW)},
      claim_no int not null, message text not null, primary key (job_id, seq))""",
    # Ready jobs that are kept for workers of one code version, since which claim and until when.
    f"""create table outlast.handed(
      job_id uuid primary key, version text not null, {instant("until_at")}, claim_no int not null,
      reason text not null, or_dead boolean not null default false)""",
    "alter table outlast.held add column version text",
    "create index held_version on outlast.held(version, queue, held_at) where version is not null",
    # Of jobs without a parent it holds nothing.
    "create index job_parent on outlast.job(parent_id, id) where parent_id is not null",
)

TABLES = ("handed", "run_line", "progress", "event", "suspended", "wait", "step")

# Twelve thousand narrow rows are more than a hundred pages: plans made while the tables are empty stay good.
ROWS = 12_000
GROW = {
    "suspended": "(job_id, queue, rank, name_id, reason) select gen_random_uuid(), '', -1, 0, 0",
    "wait": "(job_id, name, kind, branch, number, code_version) select gen_random_uuid(), '', 0, '', 0, ''",
}

# The release before knows no suspended jobs: they begin anew, and what was kept for one version is for all.
_BACK = """
insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)
select queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts from outlast.suspended order by since"""
_FOR_ALL = """
update outlast.{table} t set name_id = e.name_id from outlast.job e
where e.id = t.job_id and t.name_id <> e.name_id"""


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    """Insert and delete what makes room; the vacuum comes after the commit, in `migrations`."""
    for statement in STATEMENTS:
        op.execute(in_schema(statement))
    for table, row in GROW.items():
        op.execute(in_schema(f"insert into outlast.{table}{row} from generate_series(1, {ROWS}) i"))
        op.execute(in_schema(f"delete from outlast.{table}"))  # noqa: S608  a name of our own


def downgrade() -> None:
    op.execute(in_schema(_BACK))
    for table in ("ready", "waiting", "running", "held"):
        op.execute(in_schema(_FOR_ALL.replace("{table}", table)))
    op.execute(in_schema("delete from outlast.job_name where position('@' in name) > 0"))
    op.execute(in_schema("drop index outlast.job_parent"))
    op.execute(in_schema("alter table outlast.held drop column version"))
    for table in TABLES:
        op.execute(in_schema(f"drop table outlast.{table}"))
    op.execute(in_schema("drop sequence outlast.event_seq"))
    op.execute(in_schema("drop sequence outlast.history_seq"))
