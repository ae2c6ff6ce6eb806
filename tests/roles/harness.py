"""A worker over the memory driver in real time, with a probe to wait on instead of sleeping, and the bodies it runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

import uuid_utils

from app.domain.job import JobId, NewJob
from app.domain.outcome import Settlement
from app.domain.snapshot import AttemptView, JobView
from app.drivers.memory.driver import MemoryDriver
from app.drivers.protocol import ClaimRequest, JobDriver
from app.jobs.client import Client
from app.jobs.handle import JobHandle
from app.jobs.registry import Registry
from app.observability.metrics import Metrics
from app.observability.probe import Probe
from app.observability.telemetry import Telemetry
from app.worker.options import WorkerOptions
from app.worker.worker import Worker

QUICK = WorkerOptions(
    concurrency=10,
    lease=timedelta(seconds=3),
    heartbeat=timedelta(milliseconds=100),
    sweep=timedelta(milliseconds=100),
    poll=timedelta(milliseconds=200),
    cancel_grace=timedelta(milliseconds=50),
    code_version="1.0.0",
    host="host-a",
    pid=4711,
)


class Bench:
    """One worker, its store and its ear."""

    def __init__(
        self,
        handles: Iterable[JobHandle[Any, Any]],
        *,
        driver: JobDriver | None = None,
        options: WorkerOptions = QUICK,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.driver: JobDriver = driver or MemoryDriver()
        self.telemetry = telemetry or Telemetry(metrics=Metrics())
        self.metrics = self.telemetry.metrics
        self.probe = Probe(self.telemetry)
        self.worker = Worker(
            driver=self.driver,
            registry=Registry(handles),
            options=options,
            telemetry=self.telemetry,
            roll=Random(7).random,
            client=Client(self.driver),
        )

    async def enqueue(self, name: str, payload: object = None, **fields: Any) -> JobId:
        """Enqueue a job as admission would."""
        job_id = JobId(UUID(bytes=uuid_utils.uuid7().bytes))
        text = json.dumps({} if payload is None else payload)
        await self.driver.enqueue(NewJob(id=job_id, name=name, payload=text, **fields))
        return job_id

    async def view(self, job_id: JobId) -> JobView:
        """Give a job that must be there."""
        view = await self.driver.describe(job_id)
        assert view is not None
        return view

    async def ledger(self, job_id: JobId) -> tuple[AttemptView, ...]:
        """Give the ended attempts that did not simply complete."""
        return tuple(one for one in await self.driver.attempts(job_id) if one.outcome.value != "completed")

    async def until(self, event: str, job_id: JobId, *, count: int = 1) -> None:
        """Wait until an event of a job was heard."""
        await self.probe.wait(event, job_id=str(job_id), count=count)

    def value(self, metric: str, **labels: str) -> float:
        """Read one sample of a metric, 0 when it is not there."""
        return self.metrics.registry.get_sample_value(metric, labels) or 0.0


@asynccontextmanager
async def working(
    *handles: JobHandle[Any, Any], driver: JobDriver | None = None, options: WorkerOptions = QUICK
) -> AsyncIterator[Bench]:
    """Run a worker while the context is open."""
    bench = Bench(handles, driver=driver, options=options)
    await bench.driver.open()
    await bench.worker.start()
    try:
        yield bench
    finally:
        await bench.worker.stop()


class Flaky:
    """A driver whose named verbs fail while told to: before the call, or after it, when the reply is lost."""

    def __init__(self, inner: JobDriver | None = None) -> None:
        self.inner: JobDriver = inner or MemoryDriver()
        self.before: dict[str, Exception] = {}
        self.after: dict[str, Exception] = {}
        self.calls: list[str] = []
        self.hold: dict[str, Callable[[], Awaitable[object]]] = {}

    def __getattr__(self, verb: str) -> Any:
        attribute = getattr(self.inner, verb)
        if verb in {"capabilities", "listen"}:
            return attribute
        if verb == "open_heartbeat":
            return self._open_heartbeat
        return self._wrapped(verb, attribute)

    async def settle_and_claim(self, settlements: Sequence[Settlement], request: ClaimRequest) -> Any:
        """Be both verbs, so that what is told to fail or to wait does so here too; a failure loses the whole reply."""
        self.calls.append("settle_and_claim")
        answers = await self.settle(settlements)
        return answers, await self.claim(request)

    def _wrapped(self, verb: str, call: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def wrapped(*args: object, **kwargs: object) -> object:
            self.calls.append(verb)
            if verb in self.hold:
                await self.hold[verb]()
            if verb in self.before:
                raise self.before[verb]
            answer = await call(*args, **kwargs)
            if verb in self.after:
                raise self.after[verb]
            return answer

        return wrapped

    @asynccontextmanager
    async def _open_heartbeat(self) -> AsyncIterator[Any]:
        if "open_heartbeat" in self.before:
            raise self.before["open_heartbeat"]
        async with self.inner.open_heartbeat() as store:
            flaky = Flaky.__new__(Flaky)
            flaky.inner, flaky.before, flaky.after = store, self.before, self.after  # type: ignore[assignment] # duck
            flaky.calls, flaky.hold = self.calls, self.hold
            yield flaky


class Gate:
    """Holds one verb of the store: says when it was called, and lets it go on when told to."""

    def __init__(self, driver: Flaky, verb: str) -> None:
        self.entered, self.go_on = asyncio.Event(), asyncio.Event()
        driver.hold[verb] = self._hold

    async def _hold(self) -> None:
        self.entered.set()
        await self.go_on.wait()
