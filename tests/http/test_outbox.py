"""The outbox over HTTP: what waits, what was refused, and where a staged id leads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from app.domain.state import State
from app.drivers.protocol import PurgeQuery
from tests.http.api import Api, code_of
from tests.support.drivers import NAME, DriverEnv, new_id
from tests.support.outbox import Outbox, outbox_env


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
    row = await outbox.staged(payload="{", queue="mail")
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
