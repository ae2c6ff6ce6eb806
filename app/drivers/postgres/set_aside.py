"""Tokens without an envelope: put aside in `held`, where no claim meets them again.

Nothing here deletes an envelope before its token; a hand at the table does, or a restore of a part of the store. Such a
token is no job that anybody could run or be told of, and must not keep those that were claimed with it from running.
Called by `claim`.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ...domain.job import WorkerId
from .database import Database

NO_ENVELOPE = "no envelope"

_SET_ASIDE = f"""
with locked as materialized (
  select r.job_id from outlast.running r
  where r.job_id = any($2::uuid[]) and r.worker = $1 and r.seq = any($3::bigint[]) order by r.job_id for update),
gone as (delete from outlast.running r where r.job_id = any(array(select job_id from locked)) returning r.*)
insert into outlast.held(job_id, queue, rank, name_id, attempt, claim_no, crashes, interrupts, reason)
select job_id, queue, rank & -2, name_id, attempt - 1, claim_no, crashes, interrupts, '{NO_ENVELOPE}'
from gone on conflict (job_id) do nothing"""  # noqa: S608  a word of our own


async def set_aside(db: Database, worker_id: WorkerId, claims: Sequence[tuple[UUID, int]]) -> None:
    """Put claims of a worker, by id and sequence, aside, uncounted.

    Fenced: one that was taken from the worker meanwhile stays where it is.
    """
    ids, seqs = (list(column) for column in zip(*claims, strict=True))
    await db.run(lambda conn: conn.execute(db.in_schema(_SET_ASIDE), worker_id, ids, seqs))
