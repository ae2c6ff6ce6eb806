"""F38: one idempotency key from a hundred callers at once, over two processes, across a crash and the job's end."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import httpx
import pytest

from tests.faults.history import check
from tests.faults.statements import ENQUEUING
from tests.support.hands import hired
from tests.support.ledger import Ledger
from tests.support.processes import Fleet, Service, client_of
from tests.support.proxy import proxy_to
from tests.support.store import Store, job_id_of

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(120)]

CALLERS = 100
KEYS = 4
ROUNDS = 6

Answer = dict[str, Any]


class Callers:
    """Clients of several processes; each call goes to one of them by chance."""

    def __init__(self, services: list[Service], dice: random.Random) -> None:
        limits = httpx.Limits(max_connections=20)
        self._clients = [client_of(service, limits=limits) for service in services]
        self._dice = dice

    async def post(self, key: str, payload: dict[str, Any] | None = None) -> Answer:
        client = self._dice.choice(self._clients)
        body = {"name": "faults.hold", "payload": payload or {}, "idempotency_key": key}
        response = await client.post("/v1/jobs", json=body)
        assert response.status_code in {200, 201}, response.text
        answer: Answer = response.json()
        assert answer["deduped"] == (response.status_code == 200)
        return answer

    async def all_at_once(self, keys: list[str]) -> dict[str, list[Answer]]:
        calls = [key for key in keys for _ in range(CALLERS)]
        self._dice.shuffle(calls)
        answers = await asyncio.gather(*(self.post(key) for key in calls))
        by_key: dict[str, list[Answer]] = {key: [] for key in keys}
        for key, answer in zip(calls, answers, strict=True):
            by_key[key].append(answer)
        return by_key

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


async def test_a_key_has_one_live_job_at_every_instant(
    fleet: Fleet, store: Store, ledger: Ledger, dice: random.Random
) -> None:
    await store.publish()
    services = [fleet.api(OUTLAST_POOL_SIZE="4") for _ in range(2)]
    async with proxy_to(fleet.url, fleet.folder) as proxy:
        doomed = fleet.api(OUTLAST_DATABASE_URL=proxy.url)
        for service in (*services, doomed):
            await service.ready()
        reply = proxy.hold_reply(ENQUEUING)
        async with client_of(doomed) as client:
            body = {"name": "faults.hold", "payload": {}, "idempotency_key": "crashed"}
            call = asyncio.create_task(client.post("/v1/jobs", json=body))
            await reply.until_caught()
            doomed.kill()
            reply.lose()
            with pytest.raises(httpx.TransportError):
                await call
    callers = Callers(services, dice)
    keys = [f"key-{number}" for number in range(KEYS)]
    answers = await callers.all_at_once([*keys, "crashed"])
    for key, given in answers.items():
        assert len({answer["id"] for answer in given}) == 1, key
        fresh = sum(not answer["deduped"] for answer in given)
        assert fresh == (0 if key == "crashed" else 1), f"{key}: {fresh} callers were told their job is new"
    given = [answer for some in answers.values() for answer in some]
    given += await _again_and_again(fleet, callers, keys)
    await callers.close()
    fresh_ids = [answer["id"] for answer in given if not answer["deduped"]]
    assert len(fresh_ids) == len(set(fresh_ids)), "one id was given out as new twice"
    rows = await store.fetch("select id from outlast.job")
    assert len(rows) == len(fresh_ids) + 1, "the job of the crashed caller is there, and no other unasked"
    assert {str(row["id"]) for row in rows} == {answer["id"] for answer in given}
    await check(store, ledger.events(), acked=[job_id_of(answer["id"]) for answer in given])


async def _again_and_again(fleet: Fleet, callers: Callers, keys: list[str]) -> list[Answer]:
    """Ask for the same keys while a worker ends their jobs: each answer is the live job or a new one."""
    given: list[Answer] = []
    async with hired(fleet.url):
        for _ in range(ROUNDS):
            for some in await asyncio.gather(*(asyncio.gather(*(callers.post(key) for _ in range(5))) for key in keys)):
                given += some
    return given


async def test_the_same_key_with_another_payload_is_refused_by_every_process(fleet: Fleet, store: Store) -> None:
    await store.publish()
    service = await fleet.api().ready()
    async with client_of(service) as client:
        body = {"name": "faults.hold", "payload": {"gate": "a", "epochs": 2}, "idempotency_key": "k"}
        first = (await client.post("/v1/jobs", json=body)).json()
        reordered = body | {"payload": {"epochs": 2, "gate": "a"}}
        assert (await client.post("/v1/jobs", json=reordered)).json()["id"] == first["id"]
        other = await client.post("/v1/jobs", json=body | {"payload": {"gate": "b"}})
        assert (other.status_code, other.json()["code"]) == (409, "IDEMPOTENCY_MISMATCH")
        assert other.json()["existing_id"] == first["id"]
        strict = await client.post("/v1/jobs", json=body | {"on_conflict": "error"})
        assert (strict.status_code, strict.json()["code"]) == (409, "JOB_DUPLICATE")
    await check(store, [])
