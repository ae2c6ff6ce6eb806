"""What the pages are given: the controls of this process, who may enter, and how an error is answered.

Built by the composition root. Nothing here is global; pages speak to the controls and never to a store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..control.actors import Actors
from ..control.audit import AuditControl
from ..control.bulk import BulkControl
from ..control.catalogue import TypeCatalogue
from ..control.deploys import DeployControl
from ..control.doctor.doctor import Doctor
from ..control.drain import DrainControl
from ..control.events import EventControl
from ..control.fleet import FleetControl
from ..control.flow import FlowControl
from ..control.jobs import JobControl
from ..control.keys import KeyControl
from ..control.outbox import OutboxControl
from ..control.overview import OverviewControl
from ..control.purge import PurgeControl
from ..control.queues import QueueControl
from ..control.runs import RunControl
from ..control.schedules import ScheduleControl
from ..control.webhooks import WebhookControl
from ..domain.api_key import Identity
from ..domain.errors import OutlastError
from ..observability.telemetry import Telemetry
from .door import Door


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardServices:
    """The controls behind the pages. `now` is this process's clock, for ages.

    `config` are the settings of this process as people may see them: variable, value, whether it was set. `pool` gives
    how the connections to the store are used, None where there are none.
    `describe` gives the OpenAPI document of the service.
    `status_of` and `headers_of` give an error's status and headers. `count` counts a request of a visitor for a place
    and gives headers that say what is left; it raises `RATE_LIMITED`.
    """

    jobs: JobControl
    runs: RunControl
    events: EventControl
    queues: QueueControl
    outbox: OutboxControl
    purge: PurgeControl
    audit: AuditControl
    actors: Actors
    bulk: BulkControl
    schedules: ScheduleControl
    keys: KeyControl
    catalogue: TypeCatalogue
    fleet: FleetControl
    flow: FlowControl
    drain: DrainControl
    deploys: DeployControl
    doctor: Doctor
    overview: OverviewControl
    webhooks: WebhookControl
    door: Door
    version: str
    code_version: str
    payload_max_bytes: int
    config: Sequence[tuple[str, str, bool]]
    pool: Callable[[], Mapping[str, int] | None]
    now: Callable[[], datetime]
    is_draining: Callable[[], bool]
    status_of: Callable[[OutlastError], int]
    headers_of: Callable[[OutlastError], Mapping[str, str]]
    count: Callable[[Identity, str], Mapping[str, str]]
    describe: Callable[[], Mapping[str, Any]]
    telemetry: Telemetry
