"""The memory driver's counts of attempts over time, over the same `Store`."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from ...domain.flow import TIERS, FlowBatch, FlowKind, FlowPoint, FlowQuery, Tally
from ..flow import FlowStore
from .store import Store


class MemoryFlow:
    """Counts of attempts in this process. What each verb does is said by the protocol."""

    _store: Store

    async def add_flow(self, batch: FlowBatch) -> None:
        """Add counts."""
        with self._store.statement() as now:
            rows, added = self._store.flow, self._store.flow_added
            if batch.id in added:
                return
            added.append(batch.id)
            for tier in TIERS:
                at = datetime.fromtimestamp(now.timestamp() // tier.number * tier.number, tz=now.tzinfo)
                for part in batch.parts:
                    key = (tier.number, at, part.name, part.queue)
                    rows[key] = rows.get(key, Tally()) + part.tally
                for old in [key for key in rows if key[0] == tier.number and key[1] < now - tier.kept]:
                    del rows[old]

    async def flow(self, query: FlowQuery) -> tuple[FlowPoint, ...]:
        """Give stretches in order."""
        found: defaultdict[datetime, Tally] = defaultdict(Tally)
        for at, _, tally in self._fitting(query):
            found[at] += tally
        return tuple(FlowPoint(at, found[at]) for at in sorted(found))

    async def flow_kinds(self, query: FlowQuery) -> tuple[FlowKind, ...]:
        """Give job types by name."""
        found: defaultdict[str, Tally] = defaultdict(Tally)
        for _, name, tally in self._fitting(query):
            found[name] += tally
        return tuple(FlowKind(name, found[name]) for name in sorted(found))

    def _fitting(self, query: FlowQuery) -> list[tuple[datetime, str, Tally]]:
        with self._store.statement():
            return [
                (at, name, tally)
                for (number, at, name, queue), tally in self._store.flow.items()
                if number == query.tier.number and at >= query.since
                if query.name in {None, name} and query.queue in {None, queue}
            ]


_: type[FlowStore] = MemoryFlow
