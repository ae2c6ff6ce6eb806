"""The client that blocks: `Client`, and the nouns beside its jobs. Every method is a description from `calls`, sent.

Beside it stands `asynchronous`, which has the same methods; a test holds the two together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from secrets import SystemRandom
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import httpx

from .answers.shown import Result
from .bound import Sends, Sync, SyncPages
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

    def __init__(self, client: Sends) -> None:
        self._client = client

    def send(self, call: Call[T], /) -> T:
        """Send a request."""
        return self._client.send(call)


class Queues(_Noun):
    """Queues."""

    list = Sync(queues.list_queues)
    get = Sync(queues.get_queue)
    pause = Sync(queues.pause_queue)
    resume = Sync(queues.resume_queue)
    limit = Sync(queues.limit_queue)


class Schedules(_Noun):
    """Schedules."""

    list = Sync(schedules.list_schedules)
    get = Sync(schedules.get_schedule)
    pause = Sync(schedules.pause_schedule)
    resume = Sync(schedules.resume_schedule)
    trigger = Sync(schedules.trigger_schedule)
    preview = Sync(schedules.preview_schedule)


class Workers(_Noun):
    """Workers, and what their drains did."""

    list = Sync(fleet.list_workers)
    get = Sync(fleet.get_worker)
    drain = Sync(fleet.drain_worker)
    deploys = SyncPages(fleet.list_deploys)


class Drains(_Noun):
    """How far processes are with leaving."""

    get = Sync(fleet.get_drain)
    start = Sync(fleet.start_drain)
    fleet = Sync(fleet.get_fleet_drain)


class JobTypes(_Noun):
    """Job types as workers publish them."""

    list = Sync(fleet.list_job_types)
    get = Sync(fleet.get_job_type)


class Limits(_Noun):
    """Limits and rates of job types, and the slots that are held."""

    list = Sync(limits.list_limits)
    set = Sync(limits.set_limit)
    slots = SyncPages(limits.list_slots)
    release = Sync(limits.release_slots)


class Webhooks(_Noun):
    """Who is told when jobs end, and what was told."""

    list = Sync(webhooks.list_webhooks)
    get = Sync(webhooks.get_webhook)
    update = Sync(webhooks.update_webhook)
    delete = Sync(webhooks.delete_webhook)
    deliveries = SyncPages(webhooks.list_deliveries)
    resend = Sync(webhooks.resend_delivery)


class Bulk(_Noun):
    """Actions on many jobs."""

    count = Sync(operations.count_bulk)
    start = Sync(operations.start_bulk)
    get = Sync(operations.get_bulk)
    list = SyncPages(operations.list_bulk)
    items = SyncPages(operations.list_bulk_items)
    abort = Sync(operations.abort_bulk)


class Keys(_Noun):
    """API keys."""

    list = Sync(keys.list_keys)
    get = Sync(keys.get_key)
    create = Sync(keys.create_key)
    rotate = Sync(keys.rotate_key)
    revoke = Sync(keys.revoke_key)


class Dead(_Noun):
    """Dead letters."""

    list = Sync(operations.list_dead)
    count = Sync(operations.count_dead)
    retry = Sync(operations.retry_dead)
    purge = Sync(operations.purge_dead)


class Client:
    """A service, reached over HTTP. Close it, or use it with `with`; it may be shared between threads.

    `base_url` is where the service is, with the path it is mounted under; `key` an API key. What may safely be repeated
    is, within `patience`; what is refused raises `ProblemError`, what has no answer `UnreachableError`. `transport`
    replaces the network, `headers` go with every request.
    """

    enqueue = Sync(jobs.enqueue)
    enqueue_many = Sync(jobs.enqueue_many)
    enqueue_each = Sync(jobs.enqueue_each)
    get = Sync(jobs.get_job)
    list = SyncPages(jobs.list_jobs)
    count = Sync(jobs.count_jobs)
    cancel = Sync(actions.cancel_job)
    retry = Sync(actions.retry_job)
    fork = Sync(actions.fork_job)
    duplicate = Sync(actions.duplicate_job)
    run_now = Sync(actions.run_job_now)
    release = Sync(actions.release_job)
    reveal = Sync(actions.reveal_job)
    update = Sync(actions.update_job)
    delete = Sync(actions.delete_job)
    attempts = Sync(actions.list_attempts)
    steps = SyncPages(actions.list_steps)
    waits = Sync(actions.get_waits)
    logs = SyncPages(actions.list_logs)
    timeline = Sync(actions.get_timeline)
    explain = Sync(actions.explain_job)
    result = Sync(jobs.get_result)
    emit = Sync(operations.emit_event)
    emitted = SyncPages(operations.list_events)
    audit = SyncPages(operations.list_audit)
    stats = Sync(fleet.get_stats)
    outbox = Sync(fleet.get_outbox)
    doctor = Sync(fleet.run_doctor)
    version = Sync(fleet.get_version)

    def __init__(
        self,
        base_url: str,
        key: str | None = None,
        *,
        patience: Patience | None = None,
        headers: Mapping[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        roll = SystemRandom().random
        self._terms = Terms(patience=patience or Patience(), monotonic=time.monotonic, roll=roll)
        self._http = httpx.Client(transport=transport, **options(base_url, key))
        self._http.headers.update(headers or {})
        self.queues = Queues(self)
        self.schedules = Schedules(self)
        self.workers = Workers(self)
        self.drains = Drains(self)
        self.job_types = JobTypes(self)
        self.limits = Limits(self)
        self.webhooks = Webhooks(self)
        self.bulk = Bulk(self)
        self.dead = Dead(self)
        self.keys = Keys(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @overload
    def wait(self, job: JobLike, *, timeout: timedelta | None = None, of: Decodes[ResultT]) -> ResultT: ...

    @overload
    def wait(self, job: JobLike, *, timeout: timedelta | None = None, of: None = None) -> Any: ...  # noqa: ANN401 - JSON

    def wait(self, job: JobLike, *, timeout: timedelta | None = None, of: Decodes[Any] | None = None) -> Any:
        """Wait until a job has ended and give what it returned; of a handle, as its own type.

        Raises:
            JobTimeout: it has not ended in time, and goes on.
            ProblemError: `JOB_FAILED`: it is dead or cancelled, with the `error` in its details.
        """
        waiting = Waiting(job, self._terms, timeout=timeout)
        while not isinstance(found := self.send(waiting.call()), Result):
            time.sleep(found)
        return decoded(found, of)

    def events(self, job: JobLike, *, after: str | None = None) -> Iterator[JobEvent]:
        """Follow a job until it has ended: what was recorded of its run, then what happens, as it happens.

        A broken stream is taken up where it was; the state and the progress may then come again as they are. `after` is
        the id of an event seen before.

        Raises:
            ProblemError: `JOB_NOT_FOUND`, `RATE_LIMITED`. UnreachableError.
        """
        following = Following(job, self._terms, after=after)
        while not following.has_ended:
            yield from self._connection(following)
            if not following.has_ended:
                time.sleep(following.pause_seconds())

    def send(self, call: Call[T], /) -> T:
        """Send a request, again if it has to be, and give what its answer holds."""
        tries = Tries(call, self._terms)
        while True:
            try:
                asked = self._http.build_request(**one_try(tries))
                response = self._http.send(asked, follow_redirects=call.method == "GET")
            except httpx.TransportError as exc:
                pause: float | None = tries.after_error(exc, was_sent=was_sent(exc))
            else:
                answer = answer_of(response)
                pause = tries.after(answer)
                if pause is None:
                    return read(call, answer)
            time.sleep(pause or 0.0)

    def _connection(self, following: Following) -> Iterator[JobEvent]:
        call = following.call()
        timeout = httpx.Timeout(self._terms.patience.timeout.total_seconds(), read=SILENCE_SECONDS)
        try:
            asked = self._http.build_request(**request(call, call.headers, timeout))
            response = self._http.send(asked, stream=True, follow_redirects=True)
            try:
                if is_stream(response):
                    for chunk in response.iter_bytes():
                        yield from following.take(chunk)
                else:
                    response.read()
                    following.refused(answer_of(response))
            finally:
                response.close()
        except httpx.TransportError as exc:
            following.lost(exc)
