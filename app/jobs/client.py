"""The way from code into a store: a driver, the rules of admission, and the client that is current.

A client is made by whoever composes the process and put in place with `use_client`; handles find it there. Nothing
is current by default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from ..domain.errors import DriverUnavailable, RequestInvalid
from ..domain.job import Enqueued, NewJob
from ..drivers.protocol import JobDriver
from .admission import Admission
from .jobtype import JobType
from .planned import refuse
from .request import EnqueueRequest

MOST_AT_ONCE = 50_000
_ADMITTED_IN_A_ROW = 500  # some 10 to 50 ms of work, then the loop gets its turn

_CURRENT: ContextVar[Client | None] = ContextVar("outlast.client", default=None)


class Client:
    """Enqueues through one driver. `enqueued_by` is attribution for requests that name nobody."""

    def __init__(
        self, driver: JobDriver, *, admission: Admission | None = None, enqueued_by: str | None = None
    ) -> None:
        self._driver = driver
        self._admission = Admission() if admission is None else admission
        self._enqueued_by = enqueued_by

    async def enqueue(self, job_type: JobType, request: EnqueueRequest) -> Enqueued:
        """Admit and store one job; durable when this returns.

        Raises what `Admission.admit` and `JobDriver.enqueue` raise. After `DRIVER_UNAVAILABLE` it is unknown whether
        the job was stored: with an idempotency key, enqueue again.
        """
        return await self._driver.enqueue(self._admission.admit(job_type, self._attributed(request)))

    async def enqueue_many(self, job_type: JobType, requests: Iterable[EnqueueRequest]) -> tuple[Enqueued, ...]:
        """Admit and store up to 50,000 jobs, all or none; answers in order.

        Requests are taken one by one and the loop gets its turn in between, so they may come from a generator.

        Raises:
            RequestInvalid: more than 50,000. Else what `enqueue` raises, for the first job refused.
        """
        jobs: list[NewJob] = []
        for request in requests:
            if len(jobs) == MOST_AT_ONCE:
                raise RequestInvalid(
                    f"more than {MOST_AT_ONCE} jobs at once", fix=f"enqueue at most {MOST_AT_ONCE} in one call"
                )
            jobs.append(self._admission.admit(job_type, self._attributed(request)))
            if len(jobs) % _ADMITTED_IN_A_ROW == 0:
                await asyncio.sleep(0)
        return await self._driver.enqueue_many(jobs) if jobs else ()

    def _attributed(self, request: EnqueueRequest) -> EnqueueRequest:
        if request.enqueued_by is not None or self._enqueued_by is None:
            return request
        return replace(request, enqueued_by=self._enqueued_by)


@contextmanager
def use_client(client: Client, current_session: Callable[[], object | None] | None = None) -> Iterator[Client]:
    """Make a client the one that `handle.enqueue` uses, in this context and the tasks started from it.

    Raises:
        NotImplementedYet: `current_session` is given; enqueueing in the caller's transaction is not built.
    """
    if current_session is not None:
        refuse("use_client(current_session=…)", "leave it out, and enqueue after your transaction has committed")
    token = _CURRENT.set(client)
    try:
        yield client
    finally:
        _CURRENT.reset(token)


def current_client() -> Client:
    """Give the client that is current.

    Raises:
        DriverUnavailable: none is.
    """
    client = _CURRENT.get()
    if client is None:
        raise DriverUnavailable(
            "no client is set here, so there is no store to enqueue in",
            fix="wrap the call: with use_client(Client(driver)): await handle.enqueue(…)",
        )
    return client
