"""The outbox over HTTP: what waits, what was refused, and where a staged id leads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from app.domain.job import JobId
from app.domain.outbox import OutboxId, UnpublishedRow
from app.domain.state import State
from app.drivers.protocol import PurgeQuery
from tests.http.api import BASE_URL, Api, code_of
from tests.support.drivers import NAME, DriverEnv, new_id
from tests.support.outbox import Outbox, new_relay, outbox_env


@pytest.fixture
async def outbox(env: DriverEnv) -> AsyncIterator[Outbox]:
    async with outbox_env(env) as opened:
        yield opened


def counts(document: dict[str, Any]) -> list[tuple[int, bool]]:
    return [(document[name]["value"], document[name]["capped"]) for name in ("staged", "claimed", "quarantined")]


async def test_the_outbox_shows_what_waits_and_for_how_long(each_api: Api, outbox: Outbox) -> None:
    answer = (await each_api.client.get("/v1/outbox")).json()
    assert (counts(answer), answer["lag_ms"], answer["oldest_at"]) == ([(0, False)] * 3, 0, None)
    await outbox.staged()
    await outbox.env.advance(timedelta(seconds=90))
    answer = (await each_api.client.get("/v1/outbox")).json()
    assert (counts(answer)[0], answer["lag_ms"]) == ((1, False), 90_000)
    assert answer["oldest_at"] is not None


async def test_the_outbox_shows_what_was_refused_and_why(each_api: Api, outbox: Outbox) -> None:
    row = await outbox.written("{", queue="mail")
    await outbox.publish()
    answer = (await each_api.client.get("/v1/outbox")).json()
    assert counts(answer) == [(0, False), (0, False), (1, False)]
    (item,) = answer["items"]
    assert (item["id"], item["name"], item["queue"], item["code"]) == (str(row), NAME, "mail", "JSON_INVALID")
    assert item["message"]


async def test_a_staged_id_whose_key_led_elsewhere_answers_with_the_way_there(each_api: Api, outbox: Outbox) -> None:
    holder = await outbox.env.enqueue(key="order:1")
    staged = await outbox.staged(key="order:1")
    await outbox.publish()
    response = await each_api.client.get(f"/v1/jobs/{staged}", follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (303, f"/v1/jobs/{holder}")
    followed = await each_api.client.get(f"/v1/jobs/{staged}", follow_redirects=True)
    assert followed.json()["id"] == str(holder)


async def test_a_staged_id_that_became_a_job_answers_as_any_job(each_api: Api, outbox: Outbox) -> None:
    staged = await outbox.staged()
    await outbox.publish()
    response = await each_api.client.get(f"/v1/jobs/{staged}")
    assert (response.status_code, response.json()["id"]) == (200, str(staged))


async def test_a_staged_id_that_is_not_published_yet_says_so(each_api: Api, outbox: Outbox) -> None:
    staged = await outbox.staged()
    response = await each_api.client.get(f"/v1/jobs/{staged}")
    assert code_of(response) == (404, "JOB_NOT_FOUND")
    assert "staged and not published" in response.json()["detail"]
    response = await each_api.client.get(f"/v1/jobs/{new_id()}")
    assert code_of(response) == (404, "JOB_NOT_FOUND")
    assert "staged" not in response.json()["detail"]


READINGS = ("", "/attempts", "/result", "/steps", "/timeline", "/logs")
ACTIONS = ("cancel", "retry", "fork", "release")


async def answers_of(api: Api, job_id: JobId) -> list[httpx.Response]:
    """Give what every verb on one id answers."""
    path = f"/v1/jobs/{job_id}"
    readings = [await api.client.get(path + reading) for reading in READINGS]
    return readings + [await api.client.post(f"{path}/{action}", json={}) for action in ACTIONS]


@pytest.mark.parametrize("reading", READINGS)
async def test_every_reading_of_a_folded_id_leads_to_the_same_of_the_job(
    each_api: Api, outbox: Outbox, reading: str
) -> None:
    holder = await outbox.env.enqueue(key="order:1")
    staged = await outbox.staged(key="order:1")
    await outbox.publish()
    response = await each_api.client.get(f"/v1/jobs/{staged}{reading}", headers={"Prefer": "wait=5"})
    assert (response.status_code, response.headers["location"]) == (303, f"/v1/jobs/{holder}{reading}")
    followed = await each_api.client.get(f"/v1/jobs/{staged}{reading}", follow_redirects=True)
    assert followed.json() == (await each_api.client.get(f"/v1/jobs/{holder}{reading}")).json()


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ("?include=attempts&include=error", "?include=attempts&include=error"),
        ("/attempts?limit=7&cursor=a%2Fb%20c", "/attempts?limit=7&cursor=a%2Fb%20c"),
        ("/attempts?x=//elsewhere.example", "/attempts?x=//elsewhere.example"),
        ("/timeline?x=<\u00e9>", "/timeline?x=%3C%C3%A9%3E"),
        ("/logs?", "/logs"),
        ("/logs?limit=7", "/logs?limit=7"),
    ],
)
async def test_what_a_reading_asks_is_asked_of_the_job_it_leads_to(api: Api, asked: str, kept: str) -> None:
    async with outbox_env(api.env) as outbox:
        holder = await outbox.env.enqueue(key="order:1")
        staged = await outbox.staged(key="order:1")
        await outbox.publish()
    response = await api.client.get(f"/v1/jobs/{staged}{asked}", follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (303, f"/v1/jobs/{holder}{kept}")


async def test_a_reading_below_a_mounted_path_leads_below_it(api: Api) -> None:
    async with outbox_env(api.env) as outbox:
        holder = await outbox.env.enqueue(key="order:1")
        staged = await outbox.staged(key="order:1")
        await outbox.publish()
    transport = httpx.ASGITransport(app=api.app, root_path="/jobs")
    async with httpx.AsyncClient(transport=transport, base_url=BASE_URL) as client:
        response = await client.get(f"/jobs/v1/jobs/{str(staged).upper()}/steps?limit=7")
    assert (response.status_code, response.headers["location"]) == (303, f"/jobs/v1/jobs/{holder}/steps?limit=7")


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_action_on_a_folded_id_names_the_job_and_leaves_it_alone(
    each_api: Api, outbox: Outbox, action: str
) -> None:
    holder = await outbox.env.enqueue(key="order:1")
    staged = await outbox.staged(key="order:1")
    await outbox.publish()
    response = await each_api.client.post(f"/v1/jobs/{staged}/{action}", json={})
    assert code_of(response) == (404, "JOB_NOT_FOUND")
    assert response.json()["existing_id"] == str(holder)
    assert str(holder) in response.json()["fix"]
    assert (await each_api.client.get(f"/v1/jobs/{holder}")).json()["state"] == "ready"


async def test_every_verb_on_a_staged_id_says_so(each_api: Api, outbox: Outbox) -> None:
    for response in await answers_of(each_api, await outbox.staged()):
        assert code_of(response) == (404, "JOB_NOT_FOUND")
        assert "staged and not published" in response.json()["detail"]


async def test_every_verb_on_a_quarantined_id_says_what_refused_it_and_how_to_mend_that(
    each_api: Api, outbox: Outbox
) -> None:
    await outbox.env.enqueue(key="order:1", fingerprint=1)
    staged = await outbox.staged(key="order:1", fingerprint=2)
    await outbox.publish()
    for response in await answers_of(each_api, staged):
        assert code_of(response) == (404, "JOB_NOT_FOUND")
        document = response.json()
        assert "refused" in document["detail"]
        assert "IDEMPOTENCY_MISMATCH" in document["detail"]
        assert f"`outlast outbox replay {staged}`" in document["fix"]
        assert (document["error"]["type"], document["error"]["code"]) == ("IdempotencyMismatch", "IDEMPOTENCY_MISMATCH")
        assert document["error"]["message"] in document["detail"]
        assert "existing_id" not in document


async def test_a_row_that_is_too_old_names_the_repair_that_takes_it(each_api: Api, outbox: Outbox) -> None:
    staged, relay = await outbox.staged(), new_relay()
    await outbox.store.claim(relay, 10)
    await outbox.store.release(relay)
    await outbox.env.advance(timedelta(days=91))
    await outbox.publish()
    document = (await each_api.client.get(f"/v1/jobs/{staged}")).json()
    assert "too old" in document["detail"]
    assert f"`outlast outbox replay {staged} --may-double`" in document["fix"]
    assert document["error"]["code"] is None
    assert await outbox.store.replay([OutboxId(staged)], may_double=True) == 1
    await outbox.publish()
    assert (await each_api.client.get(f"/v1/jobs/{staged}")).status_code == 200


async def test_another_tenants_staged_id_answers_as_an_absent_one(locked: Api) -> None:
    async with outbox_env(locked.env) as outbox:
        own, others = [await outbox.staged(tenant=tenant, payload="{") for tenant in ("default", "acme")]
        absent = code_of(await locked.client.get(f"/v1/jobs/{new_id()}"))
        for words in ("staged and not published", "refused"):
            assert words in (await locked.client.get(f"/v1/jobs/{own}")).json()["detail"]
            for response in await answers_of(locked, others):
                assert code_of(response) == absent
                assert response.json()["detail"] == f"there is no job {others}"
            await outbox.publish()


async def test_a_job_published_while_it_is_looked_for_is_found(each_api: Api, outbox: Outbox) -> None:
    """Between the look for the job and the look for its row."""
    staged = await outbox.staged()
    find = outbox.store.find

    async def published_first(staged_id: JobId, *, tenant: str | None = None) -> UnpublishedRow | None:
        await outbox.publish()
        return await find(staged_id, tenant=tenant)

    outbox.store.find = published_first  # type: ignore[method-assign] # a relay at the worst moment
    response = await each_api.client.post(f"/v1/jobs/{staged}/cancel", json={})
    assert (response.status_code, response.json()["verdict"]) == (200, "cancelled_before_start")


async def test_a_staged_id_leads_nowhere_once_the_job_it_led_to_is_gone(each_api: Api, outbox: Outbox) -> None:
    holder = await outbox.env.enqueue(key="order:1")
    staged = await outbox.staged(key="order:1")
    await outbox.publish()
    await outbox.env.driver.cancel(holder, reason="not wanted")
    response = await each_api.client.get(f"/v1/jobs/{staged}", follow_redirects=False)
    assert response.status_code == 303
    await outbox.env.advance(timedelta(days=1))
    await outbox.env.driver.purge(PurgeQuery(state=State.CANCELLED, older_than=timedelta()))
    assert code_of(await each_api.client.get(f"/v1/jobs/{staged}")) == (404, "JOB_NOT_FOUND")
