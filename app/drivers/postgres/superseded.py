"""What took a claim that is gone: the second question after a fenced write that found no row.

Owns one read. Called by settle; the heartbeat asks the same of the claims it renews.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...domain.job import ClaimToken
from ...domain.outcome import SettleAnswer
from .buckets import CANCELLED
from .database import Database

# Scalar, not `exists`: that may be planned as a hash of the whole table.
SUPERSEDED_BY = f"""
case when (select f.state = {CANCELLED} from outlast.finished f where f.job_id = t.id) then 'cancelled'
  when (select true from outlast.job j where j.id = t.id) then 'reaped' else 'deleted' end"""  # noqa: S608  our own

_WHY = f"select {SUPERSEDED_BY} as by from unnest($1::uuid[]) with ordinality t(id, ord) order by ord"  # noqa: S608  our own


async def superseded_by(db: Database, tokens: Sequence[ClaimToken]) -> tuple[SettleAnswer, ...]:
    """Say what each claim was superseded by, in order; a lease that passed counts as reaped."""
    async with db.raw() as conn:
        rows = await conn.fetch(db.in_schema(_WHY), [token.job_id for token in tokens])
    return tuple(SettleAnswer(row["by"]) for row in rows)
