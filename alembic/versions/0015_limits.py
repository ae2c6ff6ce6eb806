"""Limits and rates: the gate in which limited jobs wait, their keys, the slots held, and what job types declare.

A limited job's tokens carry a mark in their rank wherever they are. Whatever makes such a token ready, it lands in the
gate: `ready` itself sends it there, so that no verb can forget it, and no verb of jobs without limits is any different.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

HOT = (
    "with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=2000, autovacuum_analyze_scale_factor=0.05,"
    " autovacuum_vacuum_insert_scale_factor=0.05, vacuum_truncate=off)"
)


def instant(column: str, options: str = "not null") -> str:
    """Give a timestamp column that every client can read back: finite, years 1970 to 9999."""
    low, high = "1970-01-01 00:00:00+00", "10000-01-01 00:00:00+00"
    return f"{column} timestamptz {options} check ({column} >= '{low}' and {column} < '{high}')"


NOW = "not null default outlast.clock()"

STATEMENTS = (
    # What a job is under, in the order it was declared; null for nearly all jobs.
    "alter table outlast.job add column limit_names text[], add column limit_keys text[]",
    "alter table outlast.outbox add column limit_names text[], add column limit_keys text[]",
    # `parked` is the key that a look found it to lack; null until then.
    f"""create table outlast.gate(
      job_id uuid primary key, queue text not null, rank smallint not null, seq bigint not null, name_id int not null,
      attempt smallint not null, claim_no int not null, crashes smallint not null, interrupts smallint not null,
      {instant("since", NOW)}, parked uuid, why text) {HOT}""",
    "create index gate_open on outlast.gate(queue, rank, seq) where parked is null",
    "create index gate_parked on outlast.gate(parked, queue, rank, seq) where parked is not null",
    # One row per key that is in use. Its lock is what deciding about the key takes. From `open_at` on it may have room
    # for those parked at it; null while it has none, or nobody is.
    f"""create table outlast.limit_key(
      hash uuid primary key, name text not null, "limit" text not null, key text not null, tokens float8,
      {instant("filled_at", "")}, {instant("open_at", "")}, {instant("used_at", NOW)}) {HOT}""",
    "create index limit_key_open on outlast.limit_key(open_at) where open_at is not null",
    "create index limit_key_used on outlast.limit_key(used_at)",
    f"""create table outlast.slot(
      hash uuid not null, job_id uuid not null, seq bigint not null, worker int not null, claim_no int not null,
      {instant("taken_at", NOW)}, primary key (hash, job_id, seq)) {HOT}""",
    "create index slot_job on outlast.slot(job_id)",
    # How many: `declared` by the newest publication, null when it has the limit no more; `override` is an operator's.
    f"""create table outlast.limit_rule(
      name text not null, "limit" text not null, declared int, per interval, override int, set_by text,
      {instant("set_at", "")}, primary key (name, "limit"))""",
    """create function outlast.into_gate() returns trigger language plpgsql as $$
      begin
        insert into outlast.gate(job_id, queue, rank, seq, name_id, attempt, claim_no, crashes, interrupts)
        values (new.job_id, new.queue, new.rank, new.seq, new.name_id, new.attempt, new.claim_no, new.crashes,
          new.interrupts);
        return null;
      end $$""",
    """create trigger into_gate before insert on outlast.ready for each row when (new.rank >= 32)
      execute function outlast.into_gate()""",
)

# What is in the gate would be lost with it: it goes back among the ready, without its mark.
BACK = (
    "drop trigger into_gate on outlast.ready",
    """with g as (delete from outlast.gate returning *)
      insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)
      select queue, rank & 31, job_id, name_id, attempt, claim_no, crashes, interrupts from g order by rank, seq""",
    *(f"update outlast.{table} set rank = rank & 31 where rank >= 32" for table in ("waiting", "running", "held")),  # noqa: S608  our own
    "update outlast.suspended set rank = rank & 31 where rank >= 32",
    "drop function outlast.into_gate()",
    *(f"drop table outlast.{table}" for table in ("limit_rule", "slot", "limit_key", "gate")),
    "alter table outlast.outbox drop column limit_names, drop column limit_keys",
    "alter table outlast.job drop column limit_names, drop column limit_keys",
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
