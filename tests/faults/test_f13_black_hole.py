"""A network that swallows everything and ends nothing: for one worker, for one API, for all of them.

No connection breaks, no answer comes. A worker knows by its own clock when its lease is over; an API says so instead
of keeping its callers; the store takes nothing from either that others have gone on with.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from app.domain.errors import DriverUnavailable
from app.domain.job import JobId
from app.domain.outcome import OutcomeKind
from app.domain.state import State
from tests.faults.history import check
from tests.support.outage import nothing_counted, running
from tests.support.processes import LEASE, SLACK, Fleet, Service, client_of, eventually, report
from tests.support.proxy import proxy_to
from tests.support.store import Store, job_id_of

pytestmark = [pytest.mark.process, pytest.mark.postgres]

ANSWERED = 10.0  # what the API gives the store to answer
RECONNECTED = 15.0
_LOOK = 0.15  # how often the lease is judged
CALLS = 12

HOLES = pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(2 * LEASE, id="2L", marks=pytest.mark.timeout(180)),
        pytest.param(600.0, id="600s", marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
    ],
)


@pytest.mark.long
@HOLES
async def test_what_one_worker_and_one_api_do_not_hear_others_go_on_with(
    fleet: Fleet, store: Store, seconds: float
) -> None:
    await store.publish()
    async with (
        proxy_to(fleet.url, _folder(fleet, "a")) as of_worker,
        proxy_to(fleet.url, _folder(fleet, "b")) as of_api,
    ):
        cut = await fleet.worker(OUTLAST_DATABASE_URL=of_worker.url).ready()
        held = await running(fleet, store, ["later"])
        stubborn = await running(fleet, store, ["told"], heed=False)
        other = await fleet.worker().ready()
        deaf_api = await fleet.api(OUTLAST_DATABASE_URL=of_api.url).ready()
        api = await fleet.api().ready()
        async with client_of(deaf_api) as deaf, client_of(api) as client:
            keys = [str(uuid4()) for _ in range(CALLS)]
            await _warm(deaf)
            began = time.monotonic()
            of_worker.is_black_hole = of_api.is_black_hole = True
            calls = asyncio.create_task(_all_answered(deaf, keys))
            await _told_in_time(fleet, store, cut, held)
            fleet.ledger.open("told")  # what returns now returns to a worker that has lost it
            fleet.ledger.open("later")
            for view in await store.all_until([*held, *stubborn]):
                assert (view.state, view.counters.crashes, view.counters.claim_no) == (State.DONE, 1, 2)
                assert await store.outcomes(view.id) == [OutcomeKind.CRASHED, OutcomeKind.COMPLETED]
            assert (await _post(client, str(uuid4()))).status_code == httpx.codes.CREATED, "the other API answers"
            await eventually(lambda: time.monotonic() - began > seconds, "the hole lasts", 2 * seconds)
            of_worker.is_black_hole = of_api.is_black_hole = False
            healed = time.monotonic()
            other.terminate()
            assert await other.gone() == 0
            probe = await store.enqueue("faults.hold")
            await store.until(probe, within=RECONNECTED + SLACK)
            report(f"the worker is back {time.monotonic() - healed:.1f} s after the heal; promised {RECONNECTED:g} s")
            await calls
            made = await _one_job_a_key(deaf, keys)
        assert cut.said("attempt.completed", job_id=str(stubborn[0])) == [], "it has lost what it finished"
        jobs = [*held, *stubborn, probe, *made]
        await store.all_until(jobs)
        await _leave(cut, deaf_api, api)
    await check(store, fleet.ledger.events(), acked=jobs)


@pytest.mark.long
@HOLES
async def test_a_hole_before_everybody_charges_nobody(fleet: Fleet, store: Store, seconds: float) -> None:
    await store.publish()
    async with proxy_to(fleet.url, fleet.folder) as proxy:
        workers = [await fleet.worker(OUTLAST_DATABASE_URL=proxy.url).ready() for _ in range(2)]
        api = await fleet.api(OUTLAST_DATABASE_URL=proxy.url).ready()
        held = await running(fleet, store, ["later"])
        stubborn = await running(fleet, store, ["told"], heed=False)
        async with client_of(api) as client:
            keys = [str(uuid4()) for _ in range(CALLS)]
            await _warm(client)
            began = time.monotonic()
            proxy.is_black_hole = True
            calls = asyncio.create_task(_all_answered(client, keys))
            for worker in workers:
                await _told_in_time(fleet, store, worker, held)
            fleet.ledger.open("told")
            await eventually(lambda: time.monotonic() - began > seconds, "the hole lasts", 2 * seconds)
            proxy.is_black_hole = False
            healed = time.monotonic()
            fleet.ledger.open("later")
            await store.until(await store.enqueue("faults.hold"), within=RECONNECTED + SLACK)
            report(f"work goes on {time.monotonic() - healed:.1f} s after the heal; promised {RECONNECTED:g} s")
            await calls
            made = await _one_job_a_key(client, keys)
        await nothing_counted(store, [*held, *stubborn, *made])
        await _leave(*workers, api)
    await check(store, fleet.ledger.events(), acked=[*held, *stubborn, *made])


def _folder(fleet: Fleet, name: str) -> Path:
    folder = fleet.folder / name
    folder.mkdir()
    return folder


async def _told_in_time(fleet: Fleet, store: Store, worker: Service, jobs: list[JobId]) -> None:
    """See the bodies of a worker told, by its own clock, a lease after the last renewal that the store has seen."""
    mine = {str(job_id) for job_id in jobs}
    begun = {event.job for event in fleet.ledger.events("effect") if event.pid == worker.pid} & mine

    def told() -> list[float]:
        events = [event for event in fleet.ledger.events("told") if event.pid == worker.pid and event.job in begun]
        assert {event.detail["reason"] for event in events} <= {"lease_lost"}
        return [event.wall for event in events]

    await eventually(lambda: len(told()) == len(begun), "its bodies are told")
    (row,) = await store.fetch(
        "select extract(epoch from max(renewed_at))::float8 as renewed from outlast.worker where pid = $1", worker.pid
    )
    if begun:
        took = max(told()) - row["renewed"]
        report(f"told {took:.2f} s after the last renewal; promised {LEASE:g} s")
        assert took <= LEASE + SLACK * _LOOK


async def _warm(client: httpx.AsyncClient) -> None:
    """Let several of the API's connections be open, and know their statements."""
    for answer in await asyncio.gather(*(client.get("/v1/jobs") for _ in range(CALLS))):
        assert answer.status_code == httpx.codes.OK


async def _post(client: httpx.AsyncClient, key: str) -> httpx.Response:
    body = {"name": "faults.hold", "payload": {}, "idempotency_key": key}
    return await client.post("/v1/jobs", json=body, timeout=120)


async def _all_answered(client: httpx.AsyncClient, keys: list[str]) -> None:
    """Call an API that has no store, one after the other; each call is answered within its time, refused with a code.

    What waits until the hole is over may be done then.
    """

    async def call(number: int, key: str) -> tuple[float, int]:
        await asyncio.sleep(number / 4)
        began = time.monotonic()
        answer = await _post(client, key) if number % 2 else await client.get("/v1/jobs", timeout=120)
        if not answer.is_success:
            assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE, answer.text
            assert answer.json()["code"] == DriverUnavailable.code
            assert "retry-after" in answer.headers
        return time.monotonic() - began, answer.status_code

    answers = await asyncio.gather(*(call(number, key) for number, key in enumerate(keys)))
    took = [seconds for seconds, _ in answers]
    report(f"{[status for _, status in answers]} after {min(took):.1f} to {max(took):.1f} s; promised {ANSWERED:g} s")
    assert httpx.codes.SERVICE_UNAVAILABLE in {status for _, status in answers}
    assert max(took) <= ANSWERED + SLACK


async def _one_job_a_key(client: httpx.AsyncClient, keys: list[str]) -> list[JobId]:
    """Repeat every call now; whatever became of the first, there is one job for each key."""
    made = []
    for key in keys:
        first, second = await _post(client, key), await _post(client, key)
        assert first.is_success, first.text
        assert second.is_success, second.text
        made.append(job_id_of(first.json()["id"]))
    return made


async def _leave(*services: Service) -> None:
    for service in services:
        assert service.code is None, "nobody had to restart"
        service.terminate()
    for service in services:
        assert await service.gone() == 0
