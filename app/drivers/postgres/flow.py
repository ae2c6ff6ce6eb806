"""What attempts came to over time: stretches of a minute, a quarter and an hour, added to by workers.

Every worker adds to the same rows, in the order of their keys. As many rows are read for a chart as it has points for
each job type, however many jobs there were. The table stands apart from all others. Of a commit whose reply was lost
the server is asked what became of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from uuid import UUID

import asyncpg

from ...domain.errors import DriverUnavailable
from ...domain.flow import OUTCOMES, TIERS, FlowBatch, FlowKind, FlowPoint, FlowQuery, Tally
from ..flow import BATCHES_KNOWN, FlowStore
from .database import Database, Raw, Row
from .look import look

_WIDTHS = {"counts": len(OUTCOMES), "waits": len(Tally().waits), "runs": len(Tally().runs)}


def _added(column: str) -> str:
    sums = ", ".join(f"f.{column}[{i}] + excluded.{column}[{i}]" for i in range(1, _WIDTHS[column] + 1))
    return f"{column} = array[{sums}]"


def _summed(column: str) -> str:
    return f"array[{', '.join(f'sum(f.{column}[{i}])' for i in range(1, _WIDTHS[column] + 1))}]::bigint[] as {column}"


_ADD = f"""
insert into outlast.flow as f(tier, at, name, queue, counts, waits, runs)
select t.tier, to_timestamp(floor(extract(epoch from outlast.clock()) / t.tier) * t.tier), p.name, p.queue,
  p.counts::int[], p.waits::int[], p.runs::int[]
from unnest($1::int[]) t(tier)
cross join unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) p(name, queue, counts, waits, runs)
order by t.tier, p.name, p.queue
on conflict (tier, at, name, queue) do update set {", ".join(_added(column) for column in _WIDTHS)}
returning pg_current_xact_id()::text"""  # noqa: S608  our own
_WHAT_BECAME = "select pg_xact_status($1::text::xid8)"
_FORGET = """
delete from outlast.flow f using unnest($1::int[], $2::interval[]) t(tier, kept)
where f.tier = t.tier and f.at < outlast.clock() - t.kept"""

_FITS = """
f.tier = $1 and f.at >= $2 and ($3::text is null or f.name = $3) and ($4::text is null or f.queue = $4)""".strip()
_SUMS = ", ".join(_summed(column) for column in _WIDTHS)
_FLOW = f"select f.at, {_SUMS} from outlast.flow f where {_FITS} group by f.at order by f.at"  # noqa: S608  our own
_KINDS = f'select f.name, {_SUMS} from outlast.flow f where {_FITS} group by f.name order by f.name collate "C"'  # noqa: S608  our own


class PostgresFlow:
    """Counts of attempts in PostgreSQL. What each verb promises, the protocol says."""

    _db: Database

    @cached_property
    def _tried(self) -> dict[UUID, str]:
        """Give the transactions in which the last batches were added, or were to be: a lost reply is looked up."""
        return {}

    async def add_flow(self, batch: FlowBatch) -> None:
        """Add counts."""
        parts, tried = batch.parts, self._tried
        columns = [[part.name for part in parts], [part.queue for part in parts]]
        columns += [[_literal(part.tally.counts) for part in parts], [_literal(part.tally.waits) for part in parts]]
        columns.append([_literal(part.tally.runs) for part in parts])
        numbers, kept = [tier.number for tier in TIERS], [tier.kept for tier in TIERS]

        async def add(conn: Raw) -> None:
            if batch.id in tried and await _is_committed(conn, tried[batch.id]):
                return
            async with conn.transaction():
                tried[batch.id] = await conn.fetchval(self._db.in_schema(_ADD), numbers, *columns)
                await conn.execute(self._db.in_schema(_FORGET), numbers, kept)

        await self._db.run(add)
        while len(tried) > BATCHES_KNOWN:
            del tried[next(iter(tried))]

    async def flow(self, query: FlowQuery) -> tuple[FlowPoint, ...]:
        """Give stretches in order."""
        return tuple(FlowPoint(row["at"], _tally(row)) for row in await self._fetch(_FLOW, query))

    async def flow_kinds(self, query: FlowQuery) -> tuple[FlowKind, ...]:
        """Give job types by name."""
        return tuple(FlowKind(row["name"], _tally(row)) for row in await self._fetch(_KINDS, query))

    async def _fetch(self, sql: str, query: FlowQuery) -> list[Row]:
        binds = (query.tier.number, query.since, query.name, query.queue)
        statement = self._db.in_schema(sql)
        return await look(self._db, lambda db: db.run(lambda conn: conn.fetch(statement, *binds)))


async def _is_committed(conn: Raw, xid: str) -> bool:
    """Say what became of a transaction; of one that is too old to be known, that it was: nothing is counted twice.

    Raises:
        DriverUnavailable: the server is still at it.
    """
    try:
        status = await conn.fetchval(_WHAT_BECAME, xid)
    except asyncpg.InvalidParameterValueError:  # this server has never got there: it was restored, or took over
        return False
    if status == "in progress":
        raise DriverUnavailable("the server is still at an earlier try of this batch", fix="try again in a moment")
    return bool(status != "aborted")


def _literal(numbers: Sequence[int]) -> str:
    """Give an array's literal: unnesting an array of arrays would run them together."""
    return "{" + ",".join(map(str, numbers)) + "}"


def _tally(row: Row) -> Tally:
    return Tally(tuple(row["counts"]), tuple(row["waits"]), tuple(row["runs"]))


_: type[FlowStore] = PostgresFlow
