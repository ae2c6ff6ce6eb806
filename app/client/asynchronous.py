"""The client that is awaited: `AsyncClient`, and the nouns beside its jobs, on asyncio.

The same methods as in `sync`, of the same descriptions; a test holds the two together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import timedelta
from secrets import SystemRandom
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import httpx

from .answers.shown import Result
from .bound import Async, AsyncPages, SendsAsync
from .call import Call
from .calls import actions, fleet, jobs, keys, limits, operations, queues, schedules, webhooks
from .following import SILENCE_SECONDS, Following, JobEvent
from .transport import answer_of, is_stream, one_try, options, request, was_sent
from .tries import Patience, Terms, Tries, read
from .waiting import Waiting, decoded
from .wire import Decodes, JobLike

T = TypeVar("T")
ResultT = TypeVar("ResultT")


class _Noun:
    """The requests about one kind of thing."""

    def __init__(self, client: SendsAsync) -> None:
        self._client = client

    async def send(self, call: Call[T], /) -> T:
        """Send a request."""
        return await self._client.send(call)


class AsyncQueues(_Noun):
    """Queues."""

    list = Async(queues.list_queues)
    get = Async(queues.get_queue)
    pause = Async(queues.pause_queue)
    resume = Async(queues.resume_queue)
    limit = Async(queues.limit_queue)


class AsyncSchedules(_Noun):
    """Schedules."""

    list = Async(schedules.list_schedules)
    get = Async(schedules.get_schedule)
    pause = Async(schedules.pause_schedule)
    resume = Async(schedules.resume_schedule)
    trigger = Async(schedules.trigger_schedule)
    preview = Async(schedules.preview_schedule)


class AsyncWorkers(_Noun):
    """Workers, and what their drains did."""

    list = Async(fleet.list_workers)
    get = Async(fleet.get_worker)
    drain = Async(fleet.drain_worker)
    deploys = AsyncPages(fleet.list_deploys)


class AsyncDrains(_Noun):
    """How far processes are with leaving."""

    get = Async(fleet.get_drain)
    start = Async(fleet.start_drain)
    fleet = Async(fleet.get_fleet_drain)


class AsyncJobTypes(_Noun):
    """Job types as workers publish them."""

    list = Async(fleet.list_job_types)
    get = Async(fleet.get_job_type)


class AsyncLimits(_Noun):
    """Limits and rates of job types, and the slots that are held."""

    list = Async(limits.list_limits)
    set = Async(limits.set_limit)
    slots = AsyncPages(limits.list_slots)
    release = Async(limits.release_slots)


class AsyncWebhooks(_Noun):
    """Who is told when jobs end, and what was told."""

    list = Async(webhooks.list_webhooks)
    get = Async(webhooks.get_webhook)
    update = Async(webhooks.update_webhook)
    delete = Async(webhooks.delete_webhook)
    deliveries = AsyncPages(webhooks.list_deliveries)
    resend = Async(webhooks.resend_delivery)


class AsyncBulk(_Noun):
    """Actions on many jobs."""

    count = Async(operations.count_bulk)
    start = Async(operations.start_bulk)
    get = Async(operations.get_bulk)
    list = AsyncPages(operations.list_bulk)
    items = AsyncPages(operations.list_bulk_items)
    abort = Async(operations.abort_bulk)


class AsyncKeys(_Noun):
    """API keys."""

    list = Async(keys.list_keys)
    get = Async(keys.get_key)
    create = Async(keys.create_key)
    rotate = Async(keys.rotate_key)
    revoke = Async(keys.revoke_key)


class AsyncDead(_Noun):
    """Dead letters."""

    list = Async(operations.list_dead)
    count = Async(operations.count_dead)
    retry = Async(operations.retry_dead)
    purge = Async(operations.purge_dead)


class AsyncClient:
    """A service, reached over HTTP. Close it, or use it with `async with`; one event loop uses it.

    `base_url` is where the service is, with the path it is mounted under; `key` an API key. What may safely be repeated
    is, within `patience`; what is refused raises `ProblemError`, what has no answer `UnreachableError`. `transport`
    replaces the network, `headers` go with every request.
    """

    enqueue = Async(jobs.enqueue)
    enqueue_many = Async(jobs.enqueue_many)
    enqueue_each = Async(jobs.enqueue_each)
    get = Async(jobs.get_job)
    list = AsyncPages(jobs.list_jobs)
    count = Async(jobs.count_jobs)
    cancel = Async(actions.cancel_job)
    retry = Async(actions.retry_job)
    fork = Async(actions.fork_job)
    duplicate = Async(actions.duplicate_job)
    run_now = Async(actions.run_job_now)
    release = Async(actions.release_job)
    reveal = Async(actions.reveal_job)
    update = Async(actions.update_job)
    delete = Async(actions.delete_job)
    attempts = Async(actions.list_attempts)
    steps = AsyncPages(actions.list_steps)
    waits = Async(actions.get_waits)
    logs = AsyncPages(actions.list_logs)
    timeline = Async(actions.get_timeline)
    explain = Async(actions.explain_job)
    result = Async(jobs.get_result)
    emit = Async(operations.emit_event)
    emitted = AsyncPages(operations.list_events)
    audit = AsyncPages(operations.list_audit)
    stats = Async(fleet.get_stats)
    outbox = Async(fleet.get_outbox)
    doctor = Async(fleet.run_doctor)
    version = Async(fleet.get_version)

    def __init__(
        self,
        base_url: str,
        key: str | None = None,
        *,
        patience: Patience | None = None,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        roll = SystemRandom().random
        self._terms = Terms(patience=patience or Patience(), monotonic=time.monotonic, roll=roll)
        self._http = httpx.AsyncClient(transport=transport, **options(base_url, key))
        self._http.headers.update(headers or {})
        self.queues = AsyncQueues(self)
        self.schedules = AsyncSchedules(self)
        self.workers = AsyncWorkers(self)
        self.drains = AsyncDrains(self)
        self.job_types = AsyncJobTypes(self)
        self.limits = AsyncLimits(self)
        self.webhooks = AsyncWebhooks(self)
        self.bulk = AsyncBulk(self)
        self.dead = AsyncDead(self)
        self.keys = AsyncKeys(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    @overload
    async def wait(
        self,
        job: JobLike,
        *,
        timeout: timedelta | None = None,  # noqa: ASYNC109 - a wait that ends says what it waited for
        of: Decodes[ResultT],
    ) -> ResultT: ...

    @overload
    async def wait(
        self,
        job: JobLike,
        *,
        timeout: timedelta | None = None,  # noqa: ASYNC109 - as above
        of: None = None,
    ) -> Any: ...  # noqa: ANN401 - JSON

    async def wait(
        self,
        job: JobLike,
        *,
        timeout: timedelta | None = None,  # noqa: ASYNC109 - as above
        of: Decodes[Any] | None = None,
    ) -> Any:
        """Wait until a job has ended and give what it returned; of a handle, as its own type.

        Raises:
            JobTimeout: it has not ended in time, and goes on.
            ProblemError: `JOB_FAILED`: it is dead or cancelled, with the `error` in its details.
        """
        waiting = Waiting(job, self._terms, timeout=timeout)
        while not isinstance(found := await self.send(waiting.call()), Result):  # noqa: ASYNC110 - the service holds the requests; this is the pause it asks for
            await asyncio.sleep(found)
        return decoded(found, of)

    async def events(self, job: JobLike, *, after: str | None = None) -> AsyncGenerator[JobEvent, None]:
        """Follow a job until it has ended: what was recorded of its run, then what happens, as it happens.

        A broken stream is taken up where it was; the state and the progress may then come again as they are. `after` is
        the id of an event seen before.

        Raises:
            ProblemError: `JOB_NOT_FOUND`, `RATE_LIMITED`. UnreachableError.
        """
        following = Following(job, self._terms, after=after)
        while not following.has_ended:
            async with aclosing(self._connection(following)) as events:
                async for event in events:
                    yield event
            if not following.has_ended:
                await asyncio.sleep(following.pause_seconds())

    async def send(self, call: Call[T], /) -> T:
        """Send a request, again if it has to be, and give what its answer holds."""
        tries = Tries(call, self._terms)
        while True:
            try:
                asked = self._http.build_request(**one_try(tries))
                response = await self._http.send(asked, follow_redirects=call.method == "GET")
            except httpx.TransportError as exc:
                pause: float | None = tries.after_error(exc, was_sent=was_sent(exc))
            else:
                answer = answer_of(response)
                pause = tries.after(answer)
                if pause is None:
                    return read(call, answer)
            await asyncio.sleep(pause or 0.0)

    async def _connection(self, following: Following) -> AsyncGenerator[JobEvent, None]:
        call = following.call()
        timeout = httpx.Timeout(self._terms.patience.timeout.total_seconds(), read=SILENCE_SECONDS)
        try:
            asked = self._http.build_request(**request(call, call.headers, timeout))
            response = await self._http.send(asked, stream=True, follow_redirects=True)
            try:
                if is_stream(response):
                    async for chunk in response.aiter_bytes():
                        for event in following.take(chunk):
                            yield event
                else:
                    await response.aread()
                    following.refused(answer_of(response))
            finally:
                await response.aclose()
        except httpx.TransportError as exc:
            following.lost(exc)
