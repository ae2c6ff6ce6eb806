"""Fair queues: whose jobs wait in the gate by tenant, and how far each tenant has come.

A job in the gate of a fair queue has its tenant there; all others have none, and wait as before. `turn` is the virtual
time of a tenant in a queue: how many starts it had, when the last of them ends, and when that began; `weight` is an
operator's.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0020"
down_revision = "0019"
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
    "alter table outlast.queue add column fair boolean not null default false",
    # Every enqueue looks here; where no queue has a maximum or is fair there is one page to look at.
    "create index queue_asked on outlast.queue(name) where max_depth is not null or fair",
    "drop index outlast.queue_max_depth",
    "alter table outlast.gate add column tenant text not null default ''",
    "drop index outlast.gate_open",
    "drop index outlast.gate_parked",
    "create index gate_open on outlast.gate(queue, tenant, rank, seq) where parked is null",
    "create index gate_parked on outlast.gate(parked, queue, tenant, rank, seq) where parked is not null",
    f"""create table outlast.turn(
      queue text not null, tenant text not null, weight smallint check (weight > 0), starts bigint not null default 0,
      finish float8 not null default 0, started float8 not null default 0, {instant("used_at", NOW)},
      primary key (queue, tenant)) {HOT}""",
    "create index turn_started on outlast.turn(queue, started)",
    # A job that is just being enqueued may not be seen yet; the statement that does so names its tenant itself.
    """create or replace function outlast.into_gate() returns trigger language plpgsql as $$
      begin
        insert into outlast.gate(job_id, queue, rank, seq, name_id, attempt, claim_no, crashes, interrupts, tenant)
        values (new.job_id, new.queue, new.rank, new.seq, new.name_id, new.attempt, new.claim_no, new.crashes,
          new.interrupts, coalesce((
            select j.tenant from outlast.job j
            where j.id = new.job_id and (select q.fair from outlast.queue q where q.name = new.queue)), ''));
        return null;
      end $$""",
)

# Jobs in the gate stay there, and are admitted in their order.
BACK = (
    """create or replace function outlast.into_gate() returns trigger language plpgsql as $$
      begin
        insert into outlast.gate(job_id, queue, rank, seq, name_id, attempt, claim_no, crashes, interrupts)
        values (new.job_id, new.queue, new.rank, new.seq, new.name_id, new.attempt, new.claim_no, new.crashes,
          new.interrupts);
        return null;
      end $$""",
    "drop table outlast.turn",
    "drop index outlast.gate_open",
    "drop index outlast.gate_parked",
    "alter table outlast.gate drop column tenant",
    "create index gate_open on outlast.gate(queue, rank, seq) where parked is null",
    "create index gate_parked on outlast.gate(parked, queue, rank, seq) where parked is not null",
    "create index queue_max_depth on outlast.queue(name) where max_depth is not null",
    "drop index outlast.queue_asked",
    "alter table outlast.queue drop column fair",
    "delete from outlast.queue where paused_at is null and concurrency is null and max_depth is null",
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
