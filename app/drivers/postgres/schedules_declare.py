"""What changes schedules as a whole: `declare`, `pause`, `resume`, and `trim` of what is old.

Rows are locked in the order of their names, declarations before schedules; deciding locks one schedule and no
declaration, so nobody waits in a circle. Called by `schedules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ...domain.audit import AuditEntry
from ...domain.errors import NotFound
from ...domain.schedule import DECLARATION_KEPT, OCCURRENCES_KEPT, Declaration
from .audit import audited
from .database import Database, Raw
from .outbox_rows import count_of

_FORGOTTEN_AFTER = timedelta(days=30)

# With a scheduler that starts, one that was not shown for long comes anew, behind all that came since.
_SHOW = """
insert into outlast.declaration as d(schedule, digest, code_version, cron, tz, document)
select u.* from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
  u(schedule, digest, code_version, cron, tz, document)
order by u.schedule, u.digest
on conflict (schedule, digest) do update set seen_at = excluded.seen_at,
  (published_at, number) = (
    select excluded.published_at, excluded.number where $8 and d.seen_at < outlast.clock() - $7::interval
    union all select d.published_at, d.number where not $8 or d.seen_at >= outlast.clock() - $7::interval)"""

_FIRST = """
insert into outlast.schedule(name, digest, code_version, cron, tz, document, published_at, seen_at, watermark)
select u.name, '', '', u.cron, u.tz, '', outlast.clock(), outlast.clock(), outlast.clock()
from unnest($1::text[], $2::text[], $3::text[]) u(name, cron, tz) order by u.name on conflict do nothing"""

# Taken before the declarations are read: whoever commits one first is seen by whoever chooses later.
_LOCK = 'select from outlast.schedule where name = any($1::text[]) order by name collate "C" for update'

_CHOOSE = """
update outlast.schedule s
set digest = c.digest, code_version = c.code_version, cron = c.cron, tz = c.tz, document = c.document,
  published_at = c.published_at, seen_at = c.seen_at,
  watermark = case when (s.cron, s.tz) = (c.cron, c.tz) then s.watermark else outlast.clock() end
from (
  select distinct on (d.schedule) d.* from outlast.declaration d
  where d.schedule = any($1::text[]) and d.seen_at >= outlast.clock() - $2::interval
  order by d.schedule, d.number desc) c
where s.name = c.schedule"""

_FORGET = (
    "delete from outlast.declaration where schedule = any($1::text[]) and seen_at < outlast.clock() - $2::interval"
)

_PAUSE = """
update outlast.schedule set paused_at = coalesce(paused_at, outlast.clock()),
  paused_by = case when paused_at is null then $2 else paused_by end,
  pause_reason = case when paused_at is null then $3 else pause_reason end
where name = $1"""
_RESUME = """
update outlast.schedule set paused_at = null, paused_by = null, pause_reason = null,
  watermark = case when paused_at is null then watermark else greatest(watermark, outlast.clock()) end
where name = $1"""

_TRIM = """
delete from outlast.occurrence o using (
  select schedule, at from outlast.occurrence where decided_at < outlast.clock() - $1::interval
  order by decided_at limit $2 for update skip locked) old
where o.schedule = old.schedule and o.at = old.at"""


async def declare(db: Database, declarations: Sequence[Declaration], *, is_start: bool) -> None:
    """Show declarations, and let the newest that is shown stand for each name."""
    if not declarations:
        return
    rows = sorted({(d.name, d.digest, d.code_version, d.cron, d.tz, d.document) for d in declarations})
    columns = [list(column) for column in zip(*rows, strict=True)]
    names, crons, zones = columns[0], columns[3], columns[4]

    async def once(conn: Raw) -> None:
        async with conn.transaction():
            await conn.execute(db.in_schema(_SHOW), *columns, DECLARATION_KEPT, is_start)
            await conn.execute(db.in_schema(_FIRST), names, crons, zones)
            await conn.execute(db.in_schema(_LOCK), names)
            await conn.execute(db.in_schema(_CHOOSE), names, DECLARATION_KEPT)
            await conn.execute(db.in_schema(_FORGET), names, _FORGOTTEN_AFTER)

    await db.run(once)


async def pause(db: Database, name: str, *, by: str, reason: str | None, audit: AuditEntry | None) -> None:
    """Let a schedule skip its occurrences; the first pause stands."""
    binds = (name, by, reason)
    _must_be(name, await audited(db, lambda conn: conn.execute(db.in_schema(_PAUSE), *binds), audit, _told))


async def resume(db: Database, name: str, *, audit: AuditEntry | None) -> None:
    """Let a schedule fire again from now on."""
    _must_be(name, await audited(db, lambda conn: conn.execute(db.in_schema(_RESUME), name), audit, _told))


async def trim(db: Database, batch: int) -> int:
    """Delete one batch of old rows."""
    return count_of(await db.run(lambda conn: conn.execute(db.in_schema(_TRIM), OCCURRENCES_KEPT, batch)))


def unknown(name: str) -> NotFound:
    """Give the error of a schedule that is not there."""
    return NotFound(f"there is no schedule {name[:128]!r}", fix="give a name that GET /v1/schedules lists")


def _told(audit: AuditEntry, tag: str) -> AuditEntry | None:
    return audit if count_of(tag) else None


def _must_be(name: str, tag: str) -> None:
    if not count_of(tag):
        raise unknown(name)
