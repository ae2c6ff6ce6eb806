"""Hand claims back that were never begun, and mark the one that runs alone.

Owns the moves that leave no ledger row and count in no budget: the token returns to the resumed lane with the claim
number it has used up. Called by the claim loop, at drain and after a call whose reply was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ...domain.job import ClaimToken, WorkerId
from ..protocol import Wake
from .database import Database
from .notify import notify
from .pinned import true_id

_MAY_WRITE = """
(select w.lost_at is null and w.closed_at is null and w.lease_until > outlast.clock()
  from outlast.worker w where w.id = r.worker)
"""

# Found by the key, then compared part by part with the one token that has the row's sequence: `is true` keeps
# that from being a join, which might walk another index than the one of ids.
_NAMED = f"""
  r.job_id = any($1::uuid[])
  and (exists (select from unnest($1::uuid[], $2::bigint[], $3::int[], $4::int[]) t(job_id, seq, claim_no, worker)
    where t.job_id = r.job_id and t.seq = r.seq and t.claim_no = r.claim_no and t.worker = r.worker)) is true
  and {_MAY_WRITE.strip()}"""

_BACK = """
with locked as materialized (select r.job_id from outlast.running r where {which} order by r.job_id for update),
gone as (delete from outlast.running r where r.job_id = any(array(select job_id from locked)) returning r.*),
rdy as (
  insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)
  select queue, rank & -2, job_id, {true_id}, attempt - 1, claim_no, crashes, interrupts from gone order by seq)
select job_id from gone
"""
_BACK = _BACK.replace("{true_id}", true_id("gone"))
RELEASE = _BACK.replace("{which}", _NAMED)
# All that runs is read as it lies: in the order of an index, each dead entry behind a pinned snapshot would be looked
# at by itself. What was found is then locked in order; a claim's worker, sequence and time never change.
_NOT_HELD = """
r.job_id = any(array(
  select o.job_id from outlast.running o where o.worker = $1 and not (o.seq = any($2::bigint[]))
    and o.claimed_at < coalesce($3::timestamptz, 'infinity')))"""
RECONCILE = _BACK.replace("{which}", f"{_NOT_HELD.strip()} and {_MAY_WRITE.strip()}")
_ISOLATE = f"update outlast.running r set alone = true where {_NAMED} returning job_id"  # noqa: S608  our own


async def release(db: Database, tokens: Sequence[ClaimToken], *, cause: str) -> int:
    """Hand claims back, uncounted; gives how many. Fenced: what is not held any more is left alone.

    `cause` is for the caller's log; a claim that was never begun leaves no row behind.
    """
    del cause
    return await _hand_back(db, RELEASE, *_columns(tokens)) if tokens else 0


async def reconcile(db: Database, worker_id: WorkerId, held: Sequence[ClaimToken], *, before: datetime | None) -> int:
    """Hand back what the store says this worker holds and `held` does not name, if claimed `before`; gives how many.

    Only for a worker with no claim call in flight: what such a call has just committed is not in `held` yet.
    """
    return await _hand_back(db, RECONCILE, worker_id, [token.fence for token in held], before)


async def isolate(db: Database, token: ClaimToken) -> bool:
    """Record that a job runs alone in its worker. Fenced; False when the claim is gone. Repeating is harmless."""
    sql, columns = db.in_schema(_ISOLATE), _columns((token,))
    return bool(await db.run(lambda conn: conn.fetch(sql, *columns)))


async def _hand_back(db: Database, sql: str, *binds: object) -> int:
    text = db.in_schema(sql)
    rows = await db.run(lambda conn: conn.fetch(text, *binds))
    if rows:
        await notify(db, Wake.READY)
    return len(rows)


def _columns(tokens: Sequence[ClaimToken]) -> tuple[list[object], ...]:
    rows = [(token.job_id, token.fence, token.claim_no, token.worker_id) for token in tokens]
    return tuple(list(column) for column in zip(*rows, strict=True))
