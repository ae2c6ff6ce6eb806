"""`pause_queue`, `resume_queue`, `set_queue`, `queue_facts`: queues that are held back or fair, and what makes them so.

A queue without a setting has no row, or one that says nothing. Claims and enqueues look at the row in their own
statements, so that nothing here has to be told to anybody. Called by the driver.
"""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime

from ...domain.audit import UNCHANGED, AuditEntry
from ...domain.queue import (
    KEEP,
    MOST_COUNTED,
    Pause,
    QueueChange,
    QueueFacts,
    Setting,
    refuse_stale_queue,
    version_of_queue,
)
from ..protocol import Wake
from .audit import audited
from .database import Database, Raw, Row
from .notify import notify
from .run_locks import looking
from .turns import line_up_all, set_weights

# Of a row of `queue` called q.
PAUSED = "q.paused_at is not null and (q.paused_until is null or q.paused_until > outlast.clock())"

# The longer of two pauses stands; one that has no end is the longest.
_PAUSE = f"""
insert into outlast.queue as q (name, paused_at, paused_by, pause_reason, paused_until)
values ($1, outlast.clock(), $2, $3, $4)
on conflict (name) do update
set paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason,
  paused_until = excluded.paused_until
where not ({PAUSED}) or q.paused_until < coalesce(excluded.paused_until, 'infinity')
returning name"""  # noqa: S608  our own fragment

_RESUME = """
update outlast.queue set paused_at = null, paused_by = null, pause_reason = null, paused_until = null
where name = $1 and paused_at is not null returning name"""

# What was counted under another maximum says nothing of this one.
_SET = """
insert into outlast.queue as q (name, concurrency, max_depth, fair) values ($1, $3, $5, coalesce($6::boolean, false))
on conflict (name) do update
set fair = coalesce($6::boolean, q.fair),
  concurrency = case when $2 then excluded.concurrency else q.concurrency end,
  max_depth = case when $4 then excluded.max_depth else q.max_depth end,
  free = case when $4 then null else q.free end"""

# There is a row to lock then, also of a queue without a setting: who comes second waits, and finds another version.
_TOUCH = "insert into outlast.queue(name) values ($1) on conflict do nothing"
_SEEN = f"""
select q.concurrency, q.max_depth, q.fair, p.* from (select * from outlast.queue where name = $1 for update) q
left join lateral (
  select q.paused_at, q.paused_by, q.pause_reason, q.paused_until where {PAUSED}) p on true"""  # noqa: S608  our own

# A statement of its own: it asks again once it has the row, and so never takes what another has just set.
_TIDY = """
delete from outlast.queue
where name = $1 and paused_at is null and concurrency is null and max_depth is null and not fair"""

_FACTS = f"""
select outlast.clock() as at, q.concurrency, q.max_depth, q.fair, p.*,
  (select count(*) from outlast.running r where r.queue = n.name)::int as running,
  least((select count(*) from (
      select from outlast.ready r where r.queue = n.name limit coalesce(q.max_depth, {MOST_COUNTED})) c)
    + (select count(*) from (
      select from outlast.gate g where g.queue = n.name limit coalesce(q.max_depth, {MOST_COUNTED})) c)
    + (select count(*) from (
      select from outlast.waiting w where w.queue = n.name limit coalesce(q.max_depth, {MOST_COUNTED})) c),
    coalesce(q.max_depth, {MOST_COUNTED}))::int as depth
from (select $1::text as name) n
left join outlast.queue q on q.name = n.name
left join lateral (
  select q.paused_at, q.paused_by, q.pause_reason, q.paused_until where {PAUSED}) p on true"""  # noqa: S608  our own


class QueueVerbs:
    """The part of the driver that holds queues back. What each verb promises, the protocol says."""

    _db: Database

    async def pause_queue(
        self,
        queue: str,
        *,
        by: str,
        reason: str | None = None,
        until: datetime | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        """Stop claims from a queue; the pause that lasts longer stands."""
        sql = self._db.in_schema(_PAUSE)
        await audited(self._db, lambda conn: conn.fetchval(sql, queue, by, reason, until), audit, _told)
        if until is not None:
            await notify(self._db, Wake.DELAYED)  # there is a time to come that workers look again at

    async def resume_queue(self, queue: str, *, audit: AuditEntry | None = None) -> None:
        """Let claims from a queue begin again; safe to repeat."""

        async def once(conn: Raw) -> str | None:
            resumed: str | None = await conn.fetchval(self._db.in_schema(_RESUME), queue)
            await conn.execute(self._db.in_schema(_TIDY), queue)
            return resumed

        if await audited(self._db, once, audit, _told) is not None:
            await notify(self._db, Wake.READY)

    async def set_queue(
        self,
        queue: str,
        change: QueueChange,
        *,
        versions: frozenset[str] | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        """Set a queue's limits, whether it is fair, and weights."""
        is_fair = None if change.is_fair is KEEP else change.is_fair
        settings = (*_bind(change.concurrency), *_bind(change.max_depth), is_fair)

        async def once(conn: Raw) -> None:
            async with nullcontext() if versions is None else looking(conn):
                if versions is not None:
                    await conn.execute(self._db.in_schema(_TOUCH), queue)
                    refuse_stale_queue(queue, _version(await conn.fetchrow(self._db.in_schema(_SEEN), queue)), versions)
                await conn.execute(self._db.in_schema(_SET), queue, *settings)
                await conn.execute(self._db.in_schema(_TIDY), queue)
                if change.weights:
                    await set_weights(self._db, conn, queue, change.weights)

        await audited(self._db, once, audit, lambda entry, _: entry)
        if is_fair:
            await line_up_all(self._db)
            await notify(self._db, Wake.DELAYED)  # workers look at what there is to do, and so into the gate
        if change.concurrency is not KEEP or change.is_fair is not KEEP:
            await notify(self._db, Wake.READY)  # more of its jobs may run now, or others

    async def queue_facts(self, queue: str) -> QueueFacts:
        """Give what decides whether a queue's jobs are claimed and taken in."""
        row = await self._db.run(lambda conn: conn.fetchrow(self._db.in_schema(_FACTS), queue))
        assert row is not None  # noqa: S101  a name makes a row
        pause = _pause(row)
        return QueueFacts(
            name=queue,
            at=row["at"],
            pause=pause,
            running=row["running"],
            concurrency=row["concurrency"],
            depth=row["depth"],
            max_depth=row["max_depth"],
            is_fair=row["fair"] is True,
        )


def _pause(row: Row) -> Pause | None:
    if row["paused_at"] is None:
        return None
    by, reason, until = row["paused_by"], row["pause_reason"], row["paused_until"]
    return Pause(at=row["paused_at"], by=by, reason=reason, until=until)


def _version(row: Row | None) -> str:
    assert row is not None, "it was inserted or was there, and is locked"  # noqa: S101 - see above
    return version_of_queue(_pause(row), row["concurrency"], row["max_depth"], is_fair=row["fair"])


def _told(audit: AuditEntry, changed: object) -> AuditEntry:
    return audit if changed is not None else audit.came_to(UNCHANGED)


def _bind(setting: Setting) -> tuple[bool, int | None]:
    """Give whether a setting changes, and what it becomes."""
    return (False, None) if setting is KEEP else (True, setting)
