"""How jobs leave the gate: the parts every such statement has, and the one statement that takes jobs without keys.

Those are jobs of fair queues, whose turn it is. Nothing is counted about them, so nothing has to be locked before a
statement that counts: who is there and in nobody's hands is taken, in the order of the look, until there are enough.
So nobody waits here, either, and two workers share what waits. Used by `gate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..protocol import ClaimRequest
from .claim import MAY_CLAIM
from .database import Database
from .gate_decision import Candidate, Decision
from .queues import PAUSED
from .rows import ENVELOPE
from .turns import move

# Of the token `g` that is deleted.
LEFT = """
  returning g.queue, g.rank, g.seq, g.job_id, g.name_id, (g.attempt + 1)::smallint as attempt,
    g.claim_no + 1 as claim_no, g.crashes, g.interrupts),
run as (
  insert into outlast.running(job_id, seq, worker, queue, rank, name_id, attempt, claim_no, crashes, interrupts)
  select job_id, seq, $1, queue, rank, name_id, attempt, claim_no, crashes, interrupts from t)"""
GIVEN = f"""
select t.job_id, t.queue, (t.rank & 31)::smallint, t.seq, t.name_id, t.attempt, t.claim_no, t.crashes, t.interrupts,
  {ENVELOPE}, outlast.clock() as at
from t left join lateral (select * from outlast.job j where j.id = t.job_id offset 0) j on true"""  # noqa: S608  a fragment of our own

# The nested loop keeps their order, and stops when it has enough. One whose queue has been paused or limited since the
# look stays where it is, and so do all once the lease is over.
TAKE_FREE = f"""
with t as (
  delete from outlast.gate g where g.ctid = any(array(
    select x.ctid from unnest($2::uuid[]) u(job_id)
    cross join lateral (
      select g.ctid from outlast.gate g where g.job_id = u.job_id for update skip locked) x
    limit $3::int)) and {MAY_CLAIM.strip()}
    and not exists (
      select from outlast.queue q where q.name = g.queue and ({PAUSED} or q.concurrency is not null)){LEFT}{GIVEN}"""  # noqa: S608  same


async def decide_free(
    db: Database, request: ClaimRequest, found: Sequence[Candidate], room: int, rooms: dict[str, int]
) -> tuple[Decision, list[Any]]:
    """Take up to `room` of jobs without keys, in their order; committed when this returns.

    Each of their queues has room for so many; `rooms` is what is left of each queue's afterwards.
    """
    ids = [one.job_id for one in found]
    taken = await db.run(lambda conn: conn.fetch(db.in_schema(TAKE_FREE), request.worker_id, ids, room))
    rows: dict[Any, Any] = {row["job_id"]: row for row in taken}
    decision = Decision(room, rooms)
    decision.admitted = [one for one in found if one.job_id in rows]
    decision.is_contended = len(rows) < min(room, len(found))
    for one in decision.admitted:
        rooms[one.queue] -= 1
    await move(db, decision.moves)
    return decision, [rows[one.job_id] for one in decision.admitted]
