"""Refuses a call that is answered by a job which waits, itself or through others, for the caller: none would ever end.

Looked for where a suspend finds a job that was there before: a new child waits for nobody. Walks from the caller to the
jobs that wait for it, and to those that wait for them; usually one or none. A suspend that does so has locked all of
them and the job it calls. Of suspends that close a circle together, each calls a job above the next one's caller: the
last has waited for its neighbours, and sees through them to the rest. Called by `suspend`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from ...domain.job import JobId, NewJob
from ...domain.step_errors import called_in_circle, waiting_chain
from .database import Database, Raw
from .rows import plain
from .run_locks import circle_lock

Callers: TypeAlias = Mapping[JobId, Sequence[JobId]]

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
    {_LIVE_CALLERS.strip().format(child="a.job_id")} offset 0) c)
select child_id, job_id from above limit {_MOST}"""  # noqa: S608  fragments of our own


async def callers_above(db: Database, conn: Raw, caller: JobId) -> Callers:
    """Give, by a job, those that wait for it: for the caller, for those, and so on."""
    callers: defaultdict[JobId, list[JobId]] = defaultdict(list)
    for row in await conn.fetch(db.in_schema(CALLERS_ABOVE), caller):
        callers[JobId(plain(row["child_id"]))].append(JobId(plain(row["job_id"])))
    return callers


def refuse_circles(callers: Callers, caller: JobId, answered: Iterable[tuple[str, NewJob, JobId]]) -> None:
    """Refuse calls of a run, each by its step, the job asked for, and the one that was there.

    Raises:
        CallCycle: one of those waits for the caller, or is the caller.
    """
    for step, child, there in answered:
        if (chain := waiting_chain(callers, there, caller)) is not None:
            raise called_in_circle(step, child, chain)


def locks_of(db: Database, callers: Callers, caller: JobId, called: Iterable[JobId]) -> set[int]:
    """Give the locks that a suspend holds before it looks: of the caller, of all above it, and of those it calls."""
    above = (one for some in callers.values() for one in some)
    return {circle_lock(db, one) for one in (caller, *above, *called)}
