"""`note`: lines and progress of runs, for many claims in one statement, each fenced by itself.

A run keeps a bounded number of lines; how many it has is counted in the statement that adds to them. Nothing waits for
these writes but whoever takes a claim over. Called by the worker's one task that sends notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...domain.job import ClaimToken
from ...domain.step import LINES_DROPPED, MAX_LOG_LINES, NewNotes
from .database import Database

# Lines name what they came with by its number (`head`): a job may be named under two claims, one of which is gone.
# Of the lines that come (`place` from 1) those that find room, the last of all saying what becomes of the others.
NOTE = f"""
with i as materialized (
  select * from unnest($1::uuid[], $2::bigint[], $3::int[], $4::int[], $5::float8[], $6::text[])
    with ordinality i(job_id, seq, claim_no, worker, value, message, ord)),
held as materialized (
  select r.job_id, r.seq, r.claim_no, r.worker from outlast.running r
  where r.job_id = any($1::uuid[])
    and (select w.lost_at is null and w.closed_at is null and w.lease_until > outlast.clock()
      from outlast.worker w where w.id = r.worker)
  order by r.job_id for key share),
mine as materialized (
  select i.* from i where (exists (
    select from held h
    where h.job_id = i.job_id and h.seq = i.seq and h.claim_no = i.claim_no and h.worker = i.worker)) is true),
prg as (
  insert into outlast.progress as p (job_id, value, message, claim_no)
  select job_id, value, message, claim_no from mine where value is not null order by job_id
  on conflict (job_id) do update
    set value = excluded.value, message = excluded.message, at = outlast.clock(), claim_no = excluded.claim_no),
room as materialized (
  select m.ord, m.job_id, m.claim_no, (select count(*) from outlast.run_line l where l.job_id = m.job_id) as had
  from mine m),
lin as (
  insert into outlast.run_line(job_id, claim_no, message)
  select r.job_id, r.claim_no, case when r.had + l.place < {MAX_LOG_LINES} then l.message else $10::text end
  from unnest($7::int[], $8::int[], $9::text[]) with ordinality l(head, place, message, ord)
  join room r on r.ord = l.head
  where r.had + l.place <= {MAX_LOG_LINES} order by l.ord)
select count(*) from mine"""  # noqa: S608  numbers of our own


async def note(db: Database, notes: Sequence[NewNotes]) -> int:
    """Keep what runs say of themselves; gives how many of the claims were held."""
    together = _together(notes)
    if not together:
        return 0
    heads: list[tuple[Any, ...]] = []
    lines: list[tuple[Any, ...]] = []
    for head, one in enumerate(together.values(), start=1):
        (job_id, claim_no, worker_id, fence), progress = one.token, one.progress or (None, None)
        heads.append((job_id, fence, claim_no, worker_id, *progress))
        lines += [(head, place, line) for place, line in enumerate(one.lines, start=1)]
    columns = [list(column) for column in zip(*heads, strict=True)]
    columns += [list(column) for column in zip(*lines, strict=True)] if lines else [[], [], []]
    held: int = await db.run(lambda conn: conn.fetchval(db.in_schema(NOTE), *columns, LINES_DROPPED))
    return held


def _together(notes: Sequence[NewNotes]) -> dict[ClaimToken, NewNotes]:
    """Give what is said under each claim as one: a statement counts what was there before it, not what it adds."""
    found: dict[ClaimToken, NewNotes] = {}
    for one in notes:
        known = found.get(one.token)
        if known is not None:
            one = known._replace(  # noqa: PLW2901  what was said before, and this
                lines=known.lines + one.lines, progress=one.progress or known.progress
            )
        found[one.token] = one
    return found
