"""What the routes are given: one frozen bundle, built by the composition root.

Routes ask for it by dependency; nothing here is global. Called by `app` and the routers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

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
from ..control.guard import Guard
from ..control.jobs import JobControl
from ..control.keys import KeyControl
from ..control.limits import LimitControl
from ..control.outbox import OutboxControl
from ..control.purge import PurgeControl
from ..control.queues import QueueControl
from ..control.requests import RequestControl
from ..control.runs import RunControl
from ..control.schedules import ScheduleControl
from ..control.streams import JobStreams
from ..control.topics import TopicStreams
from ..control.waiting import ResultWaiters
from ..control.webhooks import WebhookControl
from ..observability.telemetry import Telemetry
from .rate import RateLimiter


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServices:
    """Everything the HTTP surface needs from the process it runs in.

    `ping` proves that the store answers; `is_started` turns true once it was opened with a current schema;
    `is_draining` once the process was told to go. `payload_max_bytes` bounds a payload; a body may hold a little more.
    """

    jobs: JobControl
    limits: LimitControl
    runs: RunControl
    events: EventControl
    queues: QueueControl
    outbox: OutboxControl
    purge: PurgeControl
    audit: AuditControl
    actors: Actors
    requests: RequestControl
    bulk: BulkControl
    schedules: ScheduleControl
    catalogue: TypeCatalogue
    fleet: FleetControl
    flow: FlowControl
    drain: DrainControl
    deploys: DeployControl
    doctor: Doctor
    waiters: ResultWaiters
    streams: JobStreams
    topics: TopicStreams
    auth: Guard
    keys: KeyControl
    webhooks: WebhookControl
    rate: RateLimiter
    telemetry: Telemetry
    version: str
    code_version: str
    payload_max_bytes: int
    ping: Callable[[], Awaitable[None]]
    is_started: Callable[[], bool]
    is_draining: Callable[[], bool]

    def end_waiting(self) -> None:
        """Answer every request that waits and end every stream, now and from now on: the process drains."""
        self.waiters.stop()
        self.streams.stop()
        self.topics.stop()


async def services_of(request: Request) -> HttpServices:
    """Give the bundle of the application a request came to."""
    return cast("HttpServices", request.app.state.services)


Services = Annotated[HttpServices, Depends(services_of)]
