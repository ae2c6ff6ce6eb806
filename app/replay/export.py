"""Writes traces out of a store: a page of jobs at a time, each run as one look at the store shows it.

Jobs that end while it is under way are left out. Only reads.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ..domain.job import JobId
from ..domain.snapshot import JobView
from ..domain.state import LIVE
from ..domain.step import RunHistory
from ..drivers.protocol import JobDriver
from ..drivers.reading import ListQuery
from .trace import Trace

PAGE = 200  # the most that a list gives
_AT_ONCE = 8  # jobs that are read side by side, within the connections of one process


class Exporter:
    """The traces of the jobs that a query finds, the live ones unless it names states; newest first."""

    def __init__(self, driver: JobDriver, query: ListQuery) -> None:
        states = query.states or LIVE
        self._driver = driver
        self._states = states
        self._query = replace(query, states=states, limit=PAGE)
        self._is_over = False

    async def page(self) -> tuple[Trace, ...] | None:
        """Give the traces of the next page, which may be none; None after the last."""
        if self._is_over:
            return None
        found = await self._driver.list(self._query)
        self._is_over = found.next_after is None
        self._query = replace(self._query, before=found.next_after)
        places = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            reads = [group.create_task(self._read(job, places)) for job in found.items]
        return tuple(trace for read in reads if (trace := read.result()) is not None)

    async def _read(self, listed: JobView, places: asyncio.Semaphore) -> Trace | None:
        async with places:
            # The history first: what a later look at the job says of its claims then holds for all that is in it.
            history = await self._history(listed.id) if _may_have_run(listed) else RunHistory()
            job = await self._driver.describe(listed.id)
        if job is None or history is None or job.state not in self._states:
            return None
        return Trace(job=job, history=history)

    async def _history(self, job_id: JobId) -> RunHistory | None:
        run = await self._driver.run(job_id)
        return None if run is None else run.history


def _may_have_run(job: JobView) -> bool:
    """Say whether a run can have recorded anything: never claimed, it is new, or a fork, which has a parent."""
    return job.counters.claim_no > 0 or job.parent_id is not None
