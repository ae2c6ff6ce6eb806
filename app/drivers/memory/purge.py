"""What is over is deleted, in steps: the memory driver's verbs of housekeeping, over the same `Store`.

Rounds keep no place here: every step begins with the oldest, and a kind rests once nothing is left of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial

from ...domain.errors import NotImplementedYet
from ...domain.job import JobId, WorkerId
from ...domain.retention import EVENT_MARGIN, Chore, EndedRule, Purged, Retention, TableRule, Tidied
from ...domain.state import State
from ..purging import BATCH, MOST_COUNTED, NO_REST, PurgeStore, Purging
from .rows import Finished, Rest, Running
from .store import Store


class MemoryPurges(Purging):
    """A `PurgeStore` whose rows live in this process. What each verb does is said by the protocol."""

    _store: Store

    async def tidy(
        self,
        chore: Chore,
        retention: Retention,
        *,
        batch: int = BATCH,
        rest: timedelta = NO_REST,
        now: bool = False,
    ) -> Tidied:
        """Take one step of the round over a kind of rows."""
        with self._store.statement() as at:
            rests = self._store.rests.setdefault(chore, Rest(round_at=at, until=at))
            if not now and rests.until > at:
                return Tidied(0, is_over=True, behind=at - rests.round_at, is_idle=True)
            over = list(_over(self._store, chore, retention, at))[:batch]
            for forget in over:
                forget()
            is_over = len(over) < batch
            if is_over:
                rests.round_at, rests.until = at, at + rest
            return Tidied(len(over), is_over, at - rests.round_at)

    async def tidy_table(
        self,
        rule: TableRule,
        *,
        blocks: int = 128,  # noqa: ARG002 - there are no tables
        rest: timedelta = NO_REST,  # noqa: ARG002 - same
        now: bool = False,  # noqa: ARG002 - same
    ) -> Tidied:
        """Refuse: there are no tables here."""
        raise _no_tables(rule)

    async def purge_ended(
        self, rule: EndedRule, *, after: JobId | None = None, batch: int = BATCH, dry: bool = False
    ) -> Purged:
        """Take one step over ended jobs, by id."""
        with self._store.statement() as at:
            ended = sorted(
                job_id
                for job_id, token in self._store.tokens.items()
                if isinstance(token, Finished) and (after is None or job_id > after)
            )[:batch]
            over = [job_id for job_id in ended if _is_over(self._store, job_id, rule, at)]
            for job_id in () if dry else over:
                self._store.forget(job_id)
            return Purged(len(ended), len(over), ended[-1] if len(ended) == batch else None)

    async def count_over(self, chore: Chore, retention: Retention) -> int:
        """Count the rows of a kind that are over."""
        with self._store.statement() as at:
            return min(sum(1 for _ in _over(self._store, chore, retention, at)), MOST_COUNTED)

    async def count_table(self, rule: TableRule) -> int:
        """Refuse: there are no tables here."""
        raise _no_tables(rule)


_: type[PurgeStore] = MemoryPurges


def _no_tables(rule: TableRule) -> NotImplementedYet:
    return NotImplementedYet(
        f"the memory driver has no table {rule.table}", fix="set OUTLAST_DATABASE_URL to a PostgreSQL database"
    )


def _over(store: Store, chore: Chore, retention: Retention, at: datetime) -> Iterator[Callable[[], object]]:
    """Give for each row of a kind that is over, the oldest first, what deletes it."""
    since = at - retention.kept(chore)
    match chore:
        case Chore.JOBS:
            rule = retention.ended
            yield from (partial(store.forget, each) for each in sorted(store.tokens) if _is_over(store, each, rule, at))
        case Chore.KEYS:
            keys = sorted(name for name, key in store.keys.items() if not key.is_taken(at))
            yield from (partial(store.keys.pop, name) for name in keys)
        case Chore.SOURCES:
            sources = sorted(name for name, kept in store.sources.items() if kept.expires_at < since)
            yield from (partial(store.sources.pop, name) for name in sources)
        case Chore.EVENTS:
            before = min(since, _needed_from(store, at))
            yield from (partial(store.runs.events.remove, one) for one in store.runs.events if one.emitted_at < before)
        case Chore.DRAINS:
            drains = sorted(worker for worker, drained in store.drains.items() if drained.at < since)
            yield from (partial(store.drains.pop, worker) for worker in drains)
        case Chore.WORKERS:
            yield from (partial(store.workers.pop, worker) for worker in _unnamed(store, since))
        case Chore.AUDIT:
            yield from (partial(store.audit.remove, row) for row in store.audit if row.at < since)
        case Chore.REQUESTS:
            asked = [name for name, row in store.requests.items() if row.created_at < since]
            yield from (partial(store.requests.pop, name) for name in asked)
        case Chore.DELIVERIES:
            told = [name for name, row in store.deliveries.items() if row.ended.ended_at < since]
            yield from (partial(store.deliveries.pop, name) for name in told)


def _is_over(store: Store, job_id: JobId, rule: EndedRule, at: datetime) -> bool:
    """Say whether an ended job is over; a child stays while a job that has not ended waits for it."""
    token, job = store.tokens[job_id], store.envelopes[job_id].job
    if not isinstance(token, Finished) or token.state not in rule.states:
        return False
    is_meant = rule.name in {None, job.name} and rule.tenant in {None, job.tenant}
    if not is_meant or token.finished_at >= at - rule.kept(job.name, token.state):
        return False
    waiting = {waiter for waiter, wait in store.runs.all_waits() if wait.child_id == job_id}
    return all(store.has_ended(waiter) for waiter in waiting)


def _needed_from(store: Store, at: datetime) -> datetime:
    """Give the instant from which on events may still be asked for: when the oldest job that is not done came."""
    came = (
        envelope.events_from for job_id, envelope in store.envelopes.items() if store.state(job_id) is not State.DONE
    )
    oldest = min(came, default=None)
    return at if oldest is None else oldest - EVENT_MARGIN


def _unnamed(store: Store, since: datetime) -> list[WorkerId]:
    """Give the workers that left before an instant and that no row names."""
    named = {
        token.worker_id for token in store.tokens.values() if isinstance(token, Finished | Running)
    } | store.drains.keys()
    return sorted(
        worker.id
        for worker in store.workers.values()
        if (left := worker.closed_at or worker.lost_at) is not None and left < since and worker.id not in named
    )
