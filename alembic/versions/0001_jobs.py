"""Jobs, their tokens, workers, keys and the attempt ledger.

The envelope (`job`) never moves; a narrow token does: it is in exactly one of ready, waiting, running, held and
finished, and every move is one statement. Nothing on the hot path has a foreign key, and no row of it is updated.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0001"
down_revision = None
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

STATEMENTS = (
    # The one clock of every statement; inlined by the planner, so an index condition on it stays one.
    """create function outlast.clock() returns timestamptz language sql stable parallel safe
      as 'select statement_timestamp()'""",
    # One number per (re)insert into ready, never cached: a cached block would hand out numbers below a later claim's.
    "create sequence outlast.token_seq cache 1",
    # --- workers and job types
    f"""create table outlast.worker(
      id int generated always as identity primary key, boot_id uuid not null unique, host text not null,
      pid int not null, code_version text not null, queues text[] not null, concurrency int not null,
      lease_ms int not null,
      {instant("started_at", NOW)}, {instant("renewed_at", NOW)}, {instant("lease_until")},
      {instant("lost_at", "")}, {instant("closed_at", "")}, drain_phase text, wakeup text
    ) with (fillfactor=50)""",
    "create table outlast.job_name(id int generated always as identity primary key, name text not null unique)",
    f"""create table outlast.job_type(
      name text primary key, code_version text not null, document text not null, {instant("published_at", NOW)})""",
    f"""create table outlast.queue(
      name text primary key, {instant("paused_at", "")}, paused_by text, pause_reason text)""",
    # --- the envelope; `seq` addresses the first token while it is fresh, a null run_id means the id
    f"""create table outlast.job(
      id uuid primary key, seq bigint, name_id int not null, queue text not null, priority smallint not null,
      tenant text not null, payload text not null, max_attempts smallint not null, max_crashes smallint not null,
      {instant("created_at", NOW)}, {instant("run_at", "")}, run_id uuid, key text, key_hash uuid, fp bigint,
      source_id uuid, parent_id uuid, {instant("deadline_at", "")}, timeout_ms bigint, enqueued_by text,
      traceparent text, tags text[], meta text)""",
    # --- the token's places
    f"""create table outlast.ready(
      {CARRIED}, seq bigint not null default nextval('outlast.token_seq'), job_id uuid not null,
      {instant("since", "default outlast.clock()")},
      moved boolean not null default true, primary key (queue, rank, seq)) {HOT}""",
    # A fresh token is found by the envelope's (queue, rank, seq); only those that came back need an entry by id.
    "create index ready_moved on outlast.ready(job_id) where moved",
    f"""create table outlast.waiting(
      job_id uuid primary key, {instant("due_at")}, {CARRIED}, reason smallint not null default 0) {HOT}""",
    "create index waiting_due on outlast.waiting(due_at)",
    f"""create table outlast.running(
      job_id uuid primary key, seq bigint not null, worker int not null, {CARRIED}, {instant("claimed_at", NOW)},
      alone boolean not null default false, abandoned boolean not null default false) {HOT}""",
    "create index running_worker on outlast.running(worker)",
    f"create table outlast.held(job_id uuid primary key, {CARRIED}, reason text not null, {instant('held_at', NOW)})",
    f"""create table outlast.finished(
      job_id uuid primary key, state smallint not null, attempt smallint not null, claim_no int not null,
      crashes smallint not null, interrupts smallint not null, seq bigint, worker int, {instant("started_at", "")},
      {instant("finished_at", NOW)}, result text, reason text, late boolean not null default false)""",
    "create index finished_bad on outlast.finished(job_id) where state <> 0",
    # --- keys, sources, expiries: touched only by jobs that use them
    f"""create table outlast.live_key(
      hash uuid primary key, job_id uuid not null, fp bigint not null, {instant("expires_at", "")},
      ended boolean not null default false) {HOT}""",
    "create index live_key_ended on outlast.live_key(expires_at) where ended",
    f"create table outlast.source(source_id uuid primary key, job_id uuid not null, {instant('expires_at')})",
    "create index source_expires on outlast.source(expires_at)",
    f"""create table outlast.expiry(
      job_id uuid not null, kind smallint not null, {instant('"at"')}, primary key (job_id, kind))""",
    'create index expiry_at on outlast.expiry("at")',
    # --- the ledger: one row per attempt that did not simply complete
    f"""create table outlast.attempt(
      job_id uuid not null, number int not null, outcome text not null, cause text not null, counted boolean not null,
      worker int, host text, code_version text, {instant("started_at", "")}, {instant("ended_at", NOW)}, step text,
      error_type text, error_message text, error_code text, traceback text, primary key (job_id, number))""",
)

TABLES = (
    *("attempt", "expiry", "source", "live_key", "finished", "held", "running", "waiting", "ready", "job"),
    *("queue", "job_type", "job_name", "worker"),
)


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(in_schema(statement))


def downgrade() -> None:
    for table in TABLES:
        op.execute(in_schema(f"drop table outlast.{table}"))
    op.execute(in_schema("drop sequence outlast.token_seq"))
    op.execute(in_schema("drop function outlast.clock()"))
