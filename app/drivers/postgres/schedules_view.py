"""Schedules as schedulers and people see them: `standings` and `schedules`. Locks nothing. Called by `schedules`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...domain.job import JobId
from ...domain.schedule import OccurrenceOutcome, OccurrenceView, ScheduleView, Standing, Standings
from .database import Database, Raw, Row
from .reader import Reader
from .rows import plain

_STANDINGS = """
select outlast.clock() as now, s.name, s.digest, s.watermark, s.paused_at is not null as is_paused
from (select) one left join outlast.schedule s on s.name = any($1::text[])"""

_SCHEDULES = """
select name, code_version, cron, tz, document, published_at, seen_at, watermark, paused_at, paused_by, pause_reason
from outlast.schedule where $1::text is null or name = $1 order by name collate "C\""""

_OCCURRENCES = """
select s.name, o.* from unnest($1::text[]) s(name) cross join lateral (
  select at, outcome, why, job_id, decided_at, fired_by from outlast.occurrence
  where schedule = s.name order by at desc limit $2) o
order by s.name, o.at desc"""


async def standings(db: Database, names: Sequence[str]) -> Standings:
    """Give where schedules stand, and the store's time, in one look."""
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(_STANDINGS), list(names)))
    return Standings(
        now=rows[0]["now"],
        by_name={
            row["name"]: Standing(
                name=row["name"], digest=row["digest"], watermark=row["watermark"], is_paused=row["is_paused"]
            )
            for row in rows
            if row["name"] is not None
        },
    )


async def schedules(db: Reader, *, name: str | None = None, occurrences: int) -> tuple[ScheduleView, ...]:
    """Give every schedule, or the one of a name, each with its newest occurrences."""

    async def once(conn: Raw) -> tuple[ScheduleView, ...]:
        rows = await conn.fetch(db.in_schema(_SCHEDULES), name)
        newest = defaultdict[str, list[OccurrenceView]](list)
        for row in await conn.fetch(db.in_schema(_OCCURRENCES), [row["name"] for row in rows], occurrences):
            newest[row["name"]].append(_occurrence(row))
        return tuple(_view(row, newest[row["name"]]) for row in rows)

    return await db.run(once)


def _view(row: Row, occurrences: Sequence[OccurrenceView]) -> ScheduleView:
    return ScheduleView(
        name=row["name"],
        cron=row["cron"],
        tz=row["tz"],
        code_version=row["code_version"],
        document=row["document"],
        published_at=row["published_at"],
        seen_at=row["seen_at"],
        watermark=row["watermark"],
        paused_at=row["paused_at"],
        paused_by=row["paused_by"],
        pause_reason=row["pause_reason"],
        occurrences=tuple(occurrences),
    )


def _occurrence(row: Row) -> OccurrenceView:
    return OccurrenceView(
        at=row["at"],
        outcome=OccurrenceOutcome.SKIPPED if row["outcome"] else OccurrenceOutcome.FIRED,
        why=row["why"],
        job_id=None if row["job_id"] is None else JobId(plain(row["job_id"])),
        decided_at=row["decided_at"],
        by=row["fired_by"],
    )
