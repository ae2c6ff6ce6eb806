"""Refuses a call that is answered by a job which waits, itself or through others, for the caller: none would ever end.

Looked for where a suspend finds a job that was there before: a new child waits for nobody. Walks from the caller to the
jobs that wait for it, and to those that wait for them; usually one or none. Suspends that do so hold one lock, so that
of two which would close a circle together the second sees the first. Called by `suspend`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ...domain.job import JobId, NewJob
from ...domain.step_errors import called_in_circle, waiting_chain
from .database import Database, Raw
from .rows import plain

_MOST = 10_000  # calls that are looked at; a circle beyond them is not found

_LIVE_CALLERS = """
select w.child_id, w.job_id from outlast.wait w
where w.child_id = {child} and w.awaited
  and (select true from outlast.finished f where f.job_id = w.job_id limit 1) is null"""
CALLERS_ABOVE = f"""
with recursive above as (
  {_LIVE_CALLERS.strip().format(child="$1")}
  union
  select c.child_id, c.job_id from above a cross join lateral (
    {_LIVE_CALLERS.strip().format(child="a.job_id")} offset 0) c),
seen as materialized (select child_id, job_id from above limit {_MOST})
select child_id, job_id from seen where exists (select from seen where job_id = any($2::uuid[]))"""  # noqa: S608  fragments of our own


async def refuse_circles(db: Database, conn: Raw, caller: JobId, answered: Iterable[tuple[str, NewJob, JobId]]) -> None:
    """Refuse calls of a run, each by its step, the job asked for, and the one that was there.

    Raises:
        CallCycle: one of those waits for the caller, or is the caller.
    """
    calls = list(answered)
    if not calls:
        return
    rows = await conn.fetch(db.in_schema(CALLERS_ABOVE), caller, [there for _, _, there in calls])
    callers: defaultdict[JobId, list[JobId]] = defaultdict(list)
    for row in rows:
        callers[JobId(plain(row["child_id"]))].append(JobId(plain(row["job_id"])))
    for step, child, there in calls:
        if (chain := waiting_chain(callers, there, caller)) is not None:
            raise called_in_circle(step, child, chain)
