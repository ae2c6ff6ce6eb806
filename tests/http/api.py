"""The HTTP tests' environment: the application over a driver, a client, and a worker that does what it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
from fastapi import FastAPI

from app.control.actors import Actors
from app.control.audit import AuditControl
from app.control.bulk import BulkControl
from app.control.catalogue import TypeCatalogue
from app.control.deploys import DeployControl
from app.control.doctor.doctor import Doctor
from app.control.doctor.finding import Surroundings
from app.control.drain import DrainControl
from app.control.events import EventControl
from app.control.fleet import FleetControl
from app.control.flow import FlowControl
from app.control.guard import Guard
from app.control.jobs import JobControl
from app.control.keys import KeyControl
from app.control.limits import LimitControl
from app.control.outbox import OutboxControl
from app.control.purge import PurgeControl
from app.control.queues import QueueControl
from app.control.refusals import Refusals
from app.control.requests import RequestControl
from app.control.runs import RunControl
from app.control.schedules import ScheduleControl
from app.control.staged import StagedIds
from app.control.streams import JobStreams
from app.control.topics import TopicStreams
from app.control.waiting import ResultWaiters
from app.control.webhooks import WebhookControl
from app.domain.api_key import Identity
from app.domain.job import ClaimedJob, JobId
from app.domain.outcome import Completed, DeadLettered, ErrorInfo, Outcome, Retried
from app.domain.snapshot import JobTypeDoc
from app.domain.state import DeadReason
from app.domain.webhook_address import Allowed
from app.domain.webhook_secret import Masters
from app.drivers.api_keys import keys_of
from app.drivers.bulk import bulk_of
from app.drivers.outbox import outbox_of
from app.drivers.schedules import schedules_of
from app.drivers.webhooks import webhooks_of
from app.http.app import create_app
from app.http.rate import RateLimiter
from app.http.server import HttpServer
from app.http.services import HttpServices
from app.jobs.admission import Admission
from app.lifecycle.shutdown import Shutdown
from app.observability.metrics import Metrics
from app.observability.probe import Probe
from app.observability.telemetry import Telemetry
from tests.support.drivers import NAME, QUEUE, DriverEnv

KEY = "k" * 32
MASTERS = Masters(["m" * 32])
ANYTHING: dict[str, Any] = {}
_FIXED: dict[str, Any] = {
    "rate": RateLimiter(None),
    "version": "0.0.0",
    "code_version": "1.0.0",
    "payload_max_bytes": 262_144,
}
BASE_URL = "http://localhost:8080"


def job_type(name: str = NAME, *, schema: dict[str, Any] | None = None, **policy: Any) -> JobTypeDoc:
    """Give a published job type that takes any payload, or one of a schema."""
    document = {
        "name": name,
        "payload_schema": ANYTHING if schema is None else schema,
        "policy": {
            "queue": QUEUE,
            "priority": 5,
            "retry": {"max_attempts": 25, "max_crashes": 3},
            "timeout_ms": None,
            "deadline_ms": None,
            "max_queue_time_ms": None,
            "on_conflict": "return",
            "dedupe_for_ms": None,
            "idempotency_key": None,
            "tenant": None,
            **policy,
        },
    }
    return JobTypeDoc(name=name, code_version="1.0.0", document=json.dumps(document))


def _doctor(env: DriverEnv) -> Doctor:
    around = Surroundings(pool_size=10, drain=timedelta(seconds=25))
    return Doctor(env.driver, outbox_of(env.driver), surroundings=lambda: around, now=env.now)


class Api:
    """One application over one driver."""

    def __init__(self, env: DriverEnv, *, key: str | None = None, **overrides: Any) -> None:
        self.env = env
        self.telemetry = Telemetry(metrics=Metrics())
        self.probe = Probe(self.telemetry)
        self.is_draining = False
        self.is_started = True
        self.streams = JobStreams(env.driver)
        self.topics = TopicStreams(env.driver)
        self.waiters = ResultWaiters(env.driver)
        self.leaving = Shutdown(drain_seconds=25, telemetry=self.telemetry)
        store = None if key is None else keys_of(env.driver)
        self.guard = guard = Guard(key, store=store, refusals=Refusals(env.driver))
        catalogue = TypeCatalogue(env.driver)
        jobs = JobControl(
            driver=env.driver,
            catalogue=catalogue,
            waiters=self.waiters,
            admission=Admission(now=env.now),
            telemetry=self.telemetry,
            staged=StagedIds(outbox_of(env.driver), jobs=env.driver),
            actors=Actors(keys_of(env.driver)),
        )
        self.services = HttpServices(
            **{
                "jobs": jobs,
                "runs": RunControl(driver=env.driver, jobs=jobs, streams=self.streams),
                "events": EventControl(env.driver),
                "queues": QueueControl(env.driver),
                "limits": LimitControl(env.driver),
                "purge": PurgeControl(env.driver),
                "outbox": OutboxControl(outbox_of(env.driver), driver=env.driver),
                "audit": AuditControl(env.driver, actors=Actors(keys_of(env.driver))),
                "actors": Actors(keys_of(env.driver)),
                "requests": RequestControl(env.driver),
                "bulk": BulkControl(bulk_of(env.driver), telemetry=self.telemetry, now=env.now),
                "schedules": ScheduleControl(
                    schedules_of(env.driver), catalogue=catalogue, admission=Admission(now=env.now)
                ),
                "catalogue": catalogue,
                "fleet": FleetControl(env.driver),
                "flow": FlowControl(env.driver),
                "deploys": DeployControl(env.driver),
                "doctor": _doctor(env),
                "drain": DrainControl(status=self.leaving.status, begin=self.leaving.request),
                "waiters": self.waiters,
                "streams": self.streams,
                "topics": self.topics,
                "auth": guard,
                "keys": KeyControl(keys_of(env.driver), driver=env.driver, on_change=guard.changed),
                "webhooks": WebhookControl(webhooks_of(env.driver), masters=MASTERS, allowed=Allowed()),
                "telemetry": self.telemetry,
                **_FIXED,
                "ping": env.driver.ping,
                "is_started": lambda: self.is_started,
                "is_draining": lambda: self.is_draining,
                **overrides,
            }
        )
        self.app: FastAPI = create_app(self.services)
        self.client = self.client_with({} if key is None else {"Authorization": f"Bearer {key}"})

    def act_as(self, identity: Identity) -> None:
        """Take every caller for this one from now on."""

        async def authenticate(_token: str) -> Identity:
            return identity

        setattr(self.guard, "authenticate", authenticate)  # noqa: B010 - another way in, for this application alone

    def client_with(self, headers: dict[str, str]) -> httpx.AsyncClient:
        """Give a client that speaks to the application without a network."""
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.app), base_url=BASE_URL, headers=headers, timeout=15
        )

    @asynccontextmanager
    async def up(self) -> AsyncIterator[None]:
        """Run the application's lifespan: waiting works inside."""
        async with self.app.router.lifespan_context(self.app):
            yield

    @asynccontextmanager
    async def served(self) -> AsyncIterator[tuple[str, int]]:
        """Serve the application on a real socket and give its address."""
        server = HttpServer(self.app, host="127.0.0.1", port=0, graceful_seconds=1)
        await server.start()
        try:
            yield "127.0.0.1", server.port
        finally:
            await server.stop()

    # --- what callers do

    async def post(self, **fields: Any) -> dict[str, Any]:
        """Enqueue a job that must be new and give it."""
        response = await self.client.post("/v1/jobs", json={"name": NAME, "payload": {}, **fields})
        assert response.status_code == 201, response.text
        found: dict[str, Any] = response.json()
        return found

    async def get(self, job: dict[str, Any]) -> dict[str, Any]:
        """Give a job as it stands."""
        response = await self.client.get(f"/v1/jobs/{job['id']}")
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    # --- what a worker does

    async def claim(self) -> ClaimedJob:
        """Claim the one job that is ready."""
        return await self.env.claim_one(await self.env.register())

    async def finish(self, outcome: Outcome | None = None) -> JobId:
        """Claim the one job that is ready and settle it."""
        claimed = await self.claim()
        await self.env.close_attempt(claimed.token, outcome or Completed(result='{"ok": true}'))
        return claimed.token.job_id


def failure(code: str | None = None) -> ErrorInfo:
    """Give an error with a traceback."""
    return ErrorInfo(type="ValueError", message="no such shop", code=code, traceback="Traceback: line 7")


def dead() -> DeadLettered:
    """Give the outcome of a terminal error."""
    return DeadLettered(error=failure(), reason=DeadReason.TERMINAL)


def code_of(response: httpx.Response) -> tuple[int, str]:
    """Give status and code of a problem, which must be one in form."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    document = response.json()
    assert document["type"] == f"/problems/{document['code']}"
    assert document["status"] == response.status_code
    assert document["fix"]
    assert document["detail"]
    assert document["request_id"] == response.headers["x-request-id"]
    return response.status_code, document["code"]


async def waiting(api: Api, count: int = 1) -> None:
    """Return once so many requests wait."""
    async with asyncio.timeout(5):
        while api.waiters.count < count:
            await asyncio.sleep(0.005)


__all__ = ["Api", "Retried", "code_of", "dead", "failure", "job_type", "waiting"]
