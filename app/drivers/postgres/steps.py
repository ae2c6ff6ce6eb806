"""`record_step`: steps of many callers in one statement, each fenced by its whole token and its worker's lease.

The claims are locked for key share, in the order of their ids: whoever takes one over waits for the step's commit, or
the step finds it gone. A step is recorded once; what is there already stays. Sent by `step_lane`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...domain.job import ClaimToken
from ...domain.step import NewStep
from .database import Database
from .resolve import KIND_CODES


class Recording(NamedTuple):
    """A step and the claim it is recorded under."""

    token: ClaimToken
    step: NewStep


# Every part of the token is compared within its own settlement's place, as everywhere.
RECORD = """
with i as materialized (
  select * from unnest($1::uuid[], $2::bigint[], $3::int[], $4::int[], $5::text[], $6::smallint[], $7::text[],
    $8::int[], $9::text[], $10::interval[]) with ordinality
    i(job_id, seq, claim_no, worker, name, kind, branch, number, value, lasted, ord)),
held as materialized (
  select r.job_id, r.seq, r.claim_no, r.worker from outlast.running r
  where r.job_id = any($1::uuid[])
    and (select w.lost_at is null and w.closed_at is null and w.lease_until > outlast.clock()
      from outlast.worker w where w.id = r.worker)
  order by r.job_id for key share),
mine as materialized (
  select i.*, h.claim_no as held_as from i left join held h
    on h.job_id = i.job_id and h.seq = i.seq and h.claim_no = i.claim_no and h.worker = i.worker),
stp as (
  insert into outlast.step(run_id, name, kind, branch, number, value, claim_no, code_version, started_at)
  select e.run_id, m.name, m.kind, m.branch, m.number, m.value, m.claim_no, w.code_version,
    outlast.clock() - coalesce(m.lasted, interval '0')
  from mine m
  cross join lateral (
    select coalesce(j.run_id, j.id) as run_id from outlast.job j where j.id = m.job_id offset 0) e
  cross join lateral (select w.code_version from outlast.worker w where w.id = m.worker offset 0) w
  where m.held_as is not null
  order by m.ord
  on conflict do nothing)
select held_as is not null as is_held from mine order by ord"""


async def record_steps(db: Database, steps: Sequence[Recording]) -> Sequence[bool]:
    """Record steps, one commit, each answered by itself: False where the claim is gone. Repeating is safe."""
    columns = [list(column) for column in zip(*(_row(one) for one in steps), strict=True)]
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(RECORD), *columns))
    return [row["is_held"] for row in rows]


def _row(recording: Recording) -> tuple[object, ...]:
    token, step = recording
    return (
        *(token.job_id, token.fence, token.claim_no, token.worker_id),
        *(step.name, KIND_CODES[step.kind], step.place.branch, step.place.number, step.value, step.lasted),
    )
