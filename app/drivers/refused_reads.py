"""What readers ask beyond single jobs, of a store that is not built: each refuses. A part of `refused`."""

# ruff: noqa: ARG002, D102 - the signatures are the protocol's, and no argument matters

from __future__ import annotations

from abc import ABC, abstractmethod

from ..domain.errors import NotImplementedYet
from ..domain.flow import FlowBatch, FlowKind, FlowPoint, FlowQuery
from ..domain.snapshot import DeadGroup, JobCount, JobPage, PlacedPage
from .reading import ListQuery, TimeOrder


class RefusedReads(ABC):
    """The lists and counts of a store that refuses everything."""

    @abstractmethod
    def _refusal(self) -> NotImplementedYet: ...

    async def list(self, query: ListQuery) -> JobPage:
        raise self._refusal()

    async def list_by_time(self, query: ListQuery, order: TimeOrder) -> PlacedPage:
        raise self._refusal()

    async def count_jobs(self, query: ListQuery) -> JobCount:
        raise self._refusal()

    async def count_waiting(self, tenant: str, most: int) -> int:
        raise self._refusal()

    async def add_flow(self, batch: FlowBatch) -> None:
        raise self._refusal()

    async def flow(self, query: FlowQuery) -> tuple[FlowPoint, ...]:
        raise self._refusal()

    async def flow_kinds(self, query: FlowQuery) -> tuple[FlowKind, ...]:
        raise self._refusal()

    async def dead_letters(self, *, tenant: str | None = None) -> tuple[DeadGroup, ...]:
        raise self._refusal()
