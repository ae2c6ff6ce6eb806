"""An API that leaves, or is killed, under a steady stream of keyed enqueues from clients that keep connections.

What was acknowledged is there; what was not can be repeated under its key, at another process, and is one job.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from uuid import uuid4

import httpx
import pytest

from app.domain.job import JobId
from tests.faults import checkers
from tests.support.processes import DRAIN, Fleet, Service, client_of, eventually, report
from tests.support.store import Store, job_id_of

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(120)]

RATE = 200  # requests a second
CLIENTS = 32
SAMPLE = 50
WATCHDOG = 2.0


class Callers:
    """A stream of enqueues, each under a key of its own, at a rate that waits for nobody's answer.

    `acked` has the id each key was answered with; `unknown` the keys without one, of which nobody knows.
    """

    def __init__(self, api: Service) -> None:
        limits = httpx.Limits(max_connections=CLIENTS, max_keepalive_connections=CLIENTS)
        self._client = client_of(api, limits=limits)
        self._room = asyncio.Semaphore(4 * CLIENTS)
        self.acked: dict[str, JobId] = {}
        self.unknown: set[str] = set()
        self.seen: Counter[str] = Counter()
        self.is_over = False

    async def run(self) -> None:
        """Call until told that it is over, and come back when every call has ended."""
        clock = asyncio.get_running_loop().time
        began = clock()
        async with self._client, asyncio.TaskGroup() as group:
            for number in count():
                await asyncio.sleep(max(0.0, began + number / RATE - clock()))
                if self.is_over:
                    return
                await self._room.acquire()
                group.create_task(self._call(str(uuid4())))

    async def _call(self, key: str) -> None:
        try:
            answer = await _enqueue(self._client, key)
        except httpx.TransportError as error:
            self.seen[type(error).__name__] += 1
            self.unknown.add(key)
        else:
            self.seen[str(answer.status_code)] += 1
            if answer.is_success:
                self.acked[key] = job_id_of(answer.json()["id"])
            else:
                assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE, answer.text
                assert "retry-after" in answer.headers
                self.unknown.add(key)
        finally:
            self._room.release()


async def _enqueue(client: httpx.AsyncClient, key: str) -> httpx.Response:
    return await client.post("/v1/jobs", json={"name": "faults.hold", "payload": {}, "idempotency_key": key})


@pytest.mark.parametrize("how", ["killed", pytest.param("terminated", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "seconds",
    [pytest.param(2, id="2s"), pytest.param(30, id="30s", marks=[pytest.mark.soak, pytest.mark.timeout(300)])],
)
async def test_nothing_acknowledged_is_lost_and_a_repeated_key_is_the_same_job(
    fleet: Fleet, store: Store, how: str, seconds: int
) -> None:
    await store.publish()
    api = await fleet.api().ready()
    callers = Callers(api)
    async with asyncio.TaskGroup() as group:
        group.create_task(callers.run())
        await eventually(lambda: len(callers.acked) >= RATE * seconds, "jobs are enqueued", 30 * seconds)
        if how == "killed":
            api.kill()
        else:
            api.terminate()
            assert await api.gone(DRAIN + WATCHDOG) == 0
        refused = len(callers.unknown)
        await eventually(lambda: len(callers.unknown) > refused, "calls meet nobody")
        callers.is_over = True
    report(f"{how}: {dict(callers.seen)}")
    made = await _repeated(await fleet.api().ready(), callers)
    known = {row["id"] for row in await store.fetch("select id from outlast.job")}
    checkers.nothing_lost(known=known, asked=None, acked=made.values(), ran=())
    assert len(made) == len(set(made.values())) == len(known), "one job for each key"


async def _repeated(api: Service, callers: Callers) -> dict[str, JobId]:
    """Repeat what nobody knows of, and some of what was acknowledged; gives the job of every key."""
    made = dict(callers.acked)
    kept = 0
    async with client_of(api) as client:
        for key in [*callers.unknown, *list(callers.acked)[-SAMPLE:]]:
            answer = await _enqueue(client, key)
            assert answer.is_success, answer.text
            job_id = job_id_of(answer.json()["id"])
            assert made.setdefault(key, job_id) == job_id, "acknowledged under another id"
            kept += key in callers.unknown and answer.json()["deduped"]
    report(f"of {len(callers.unknown)} calls that nobody knew of, {kept} had been stored")
    return made
