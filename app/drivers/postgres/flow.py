"""What attempts came to over time: stretches of a minute, a quarter and an hour, added to by workers.

Every worker adds to the same rows, in the order of their keys. As many rows are read for a chart as it has points for
each job type, however many jobs there were. The table stands apart from all others.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...domain.flow import OUTCOMES, TIERS, FlowKind, FlowPart, FlowPoint, FlowQuery, Tally
from ..flow import FlowStore
from .database import Database, Raw, Row

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
on conflict (tier, at, name, queue) do update set {", ".join(_added(column) for column in _WIDTHS)}"""  # noqa: S608  our own
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

    async def add_flow(self, parts: Sequence[FlowPart]) -> None:
        """Add counts."""
        columns = [[part.name for part in parts], [part.queue for part in parts]]
        columns += [[_literal(part.tally.counts) for part in parts], [_literal(part.tally.waits) for part in parts]]
        columns.append([_literal(part.tally.runs) for part in parts])
        numbers, kept = [tier.number for tier in TIERS], [tier.kept for tier in TIERS]

        async def add(conn: Raw) -> None:
            async with conn.transaction():
                await conn.execute(self._db.in_schema(_ADD), numbers, *columns)
                await conn.execute(self._db.in_schema(_FORGET), numbers, kept)

        await self._db.run(add)

    async def flow(self, query: FlowQuery) -> tuple[FlowPoint, ...]:
        """Give stretches in order."""
        return tuple(FlowPoint(row["at"], _tally(row)) for row in await self._fetch(_FLOW, query))

    async def flow_kinds(self, query: FlowQuery) -> tuple[FlowKind, ...]:
        """Give job types by name."""
        return tuple(FlowKind(row["name"], _tally(row)) for row in await self._fetch(_KINDS, query))

    async def _fetch(self, sql: str, query: FlowQuery) -> list[Row]:
        binds = (query.tier.number, query.since, query.name, query.queue)
        return await self._db.run(lambda conn: conn.fetch(self._db.in_schema(sql), *binds))


def _literal(numbers: Sequence[int]) -> str:
    """Give an array's literal: unnesting an array of arrays would run them together."""
    return "{" + ",".join(map(str, numbers)) + "}"


def _tally(row: Row) -> Tally:
    return Tally(tuple(row["counts"]), tuple(row["waits"]), tuple(row["runs"]))


_: type[FlowStore] = PostgresFlow
