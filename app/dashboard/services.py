"""What the pages are given: the controls of this process, who may enter, and how an error is answered.

Built by the composition root. Nothing here is global; pages speak to the controls and never to a store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ..control.audit import AuditControl
from ..control.bulk import BulkControl
from ..control.catalogue import TypeCatalogue
from ..control.deploys import DeployControl
from ..control.doctor.doctor import Doctor
from ..control.drain import DrainControl
from ..control.events import EventControl
from ..control.fleet import FleetControl
from ..control.jobs import JobControl
from ..control.outbox import OutboxControl
from ..control.overview import OverviewControl
from ..control.purge import PurgeControl
from ..control.queues import QueueControl
from ..control.runs import RunControl
from ..control.schedules import ScheduleControl
from ..domain.errors import OutlastError
from ..observability.telemetry import Telemetry


class Visitor(Protocol):
    """Who looks at a page. `tenant` is the one it may act for, None for all of them."""

    @property
    def name(self) -> str:
        """Give the name that the audit knows it by."""
        ...

    @property
    def tenant(self) -> str | None:
        """Give its tenant."""
        ...

    @property
    def scopes(self) -> frozenset[str]:
        """Give what it may do, in the words of the API's scopes."""
        ...


class Door(Protocol):
    """Lets visitors in. A handle names a key to the door alone, without being one; cookies carry it, signed."""

    @property
    def is_open(self) -> bool:
        """Say whether everybody who can connect may do everything."""
        ...

    @property
    def secret(self) -> bytes:
        """Give what cookies and forms are signed with; the same in every process of the service."""
        ...

    async def enter(self, key: str) -> str:
        """Give the handle of a key. Raises `UNAUTHENTICATED`."""
        ...

    async def known(self, handle: str) -> Visitor:
        """Give who is behind a handle now. Raises `UNAUTHENTICATED` once its key is no longer good."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardServices:
    """The controls behind the pages. `now` is this process's clock, for ages; `status_of` gives an error's status."""

    jobs: JobControl
    runs: RunControl
    events: EventControl
    queues: QueueControl
    outbox: OutboxControl
    purge: PurgeControl
    audit: AuditControl
    bulk: BulkControl
    schedules: ScheduleControl
    catalogue: TypeCatalogue
    fleet: FleetControl
    drain: DrainControl
    deploys: DeployControl
    doctor: Doctor
    overview: OverviewControl
    door: Door
    version: str
    code_version: str
    payload_max_bytes: int
    now: Callable[[], datetime]
    is_draining: Callable[[], bool]
    status_of: Callable[[OutlastError], int]
    telemetry: Telemetry
