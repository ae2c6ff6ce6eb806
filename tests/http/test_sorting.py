"""`sort` and `include` of `GET /v1/jobs`, and `include` of one job: what an index serves, and for whom."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.domain.outcome import Completed, DeadLettered
from app.domain.state import DeadReason
from app.http.answers_list import JobInFull, JobList
from tests.conformance.runs import a_step
from tests.http.api import Api, code_of, failure
from tests.http.test_api_keys import each_locked, made, with_key

__all__ = ["each_locked"]

MINUTE = timedelta(minutes=1)


async def _walk(api: Api, query: str) -> tuple[list[str], list[str]]:
    """Follow the cursors to the end and back; gives the ids met each way, in the order of the list."""
    page = (await api.client.get(f"/v1/jobs?{query}")).json()
    JobList.model_validate(page)
    assert page["prev_cursor"] is None
    forth = [item["id"] for item in page["items"]]
    while page["next_cursor"] is not None:
        page = (await api.client.get(f"/v1/jobs?{query}&cursor={page['next_cursor']}")).json()
        forth += [item["id"] for item in page["items"]]
    back = [item["id"] for item in page["items"]]
    while page["prev_cursor"] is not None:
        page = (await api.client.get(f"/v1/jobs?{query}&cursor={page['prev_cursor']}")).json()
        back = [item["id"] for item in page["items"]] + back
    return forth, back


async def _ids(api: Api, count: int, **fields: Any) -> list[str]:
    return [(await api.post(**fields))["id"] for _ in range(count)]


async def test_jobs_are_listed_oldest_first_and_newest_first(each_api: Api) -> None:
    ids = await _ids(each_api, 5)
    assert await _walk(each_api, "sort=created_at&limit=2") == (ids, ids)
    assert await _walk(each_api, "sort=-created_at&limit=2") == (ids[::-1], ids[::-1])
    assert await _walk(each_api, "sort=created_at&limit=2&name=demo.absent") == ([], [])


async def test_delayed_jobs_are_listed_by_when_they_are_due(each_api: Api) -> None:
    late, soon, mid = [(await each_api.post(delay_ms=ms))["id"] for ms in (900_000, 60_000, 300_000)]
    await each_api.post()
    ordered = [soon, mid, late]
    assert await _walk(each_api, "sort=run_at&state=delayed&limit=1") == (ordered, ordered)
    assert await _walk(each_api, "sort=-run_at&state=delayed&limit=2") == (ordered[::-1], ordered[::-1])
    before = (each_api.env.now() + 2 * MINUTE).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert (await _walk(each_api, f"run_at_before={before}"))[0] == [soon]
    assert (await _walk(each_api, f"sort=run_at&state=delayed&run_at_after={before}"))[0] == [mid, late]


async def test_dead_jobs_are_listed_by_when_they_died(each_api: Api) -> None:
    ids = await _ids(each_api, 3)
    for _ in ids:
        await each_api.finish(DeadLettered(error=failure(), reason=DeadReason.TERMINAL))
    assert await _walk(each_api, "sort=finished_at&state=dead&limit=2") == (ids, ids)
    assert await _walk(each_api, "sort=-finished_at&state=dead&state=cancelled&limit=2") == (ids[::-1], ids[::-1])


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("sort=duration", "every job would pay for it"),
        ("sort=-duration&state=done", "every job would pay for it"),
        ("sort=run_at", "state=delayed"),
        ("sort=run_at&state=delayed&state=ready", "state=delayed"),
        ("sort=finished_at&state=done", "state=cancelled or state=dead"),
    ],
)
async def test_an_order_without_an_index_is_refused_with_what_to_do(api: Api, query: str, words: str) -> None:
    refused = await api.client.get(f"/v1/jobs?{query}")
    assert code_of(refused) == (422, "REQUEST_INVALID")
    assert words in refused.json()["detail"]
    assert refused.json()["errors"][0]["pointer"] == "/sort"
    assert "sort by -created_at" in refused.json()["fix"]


async def test_a_cursor_is_good_for_its_order_alone(each_api: Api) -> None:
    await _ids(each_api, 3, delay_ms=60_000)
    by_time = (await each_api.client.get("/v1/jobs?sort=run_at&state=delayed&limit=1")).json()["next_cursor"]
    by_id = (await each_api.client.get("/v1/jobs?state=delayed&limit=1")).json()["next_cursor"]
    for query, cursor in (("sort=-run_at", by_time), ("sort=created_at", by_id), ("sort=run_at", by_id), ("", by_time)):
        refused = await each_api.client.get(f"/v1/jobs?{query}&state=delayed&cursor={cursor}")
        assert code_of(refused) == (400, "CURSOR_INVALID"), query


async def test_a_list_carries_payloads_on_demand_and_few_at_once(each_api: Api) -> None:
    job = await each_api.post(payload={"n": 1})
    await each_api.finish(Completed(result='{"lines":  3}'))
    plain = (await each_api.client.get("/v1/jobs")).json()["items"][0]
    assert "payload" not in plain
    assert "result" not in plain
    full = (await each_api.client.get("/v1/jobs?include=payload,result")).json()["items"][0]
    assert (full["id"], full["payload"], full["result"]) == (job["id"], {"n": 1}, {"lines": 3})
    one = (await each_api.client.get("/v1/jobs?include=result&limit=20")).json()["items"][0]
    assert ("payload" in one, one["result"]) == (False, {"lines": 3})
    refused = await each_api.client.get("/v1/jobs?include=payload&limit=21")
    assert (*code_of(refused), refused.json()["errors"][0]["pointer"]) == (422, "REQUEST_INVALID", "/limit")
    assert code_of(await each_api.client.get("/v1/jobs?include=attempts")) == (422, "REQUEST_INVALID")


async def test_payloads_that_are_asked_for_by_name_need_their_scope(each_locked: Api) -> None:
    job = await each_locked.post()
    async with with_key(each_locked, await made(each_locked, "jobs:read")) as reader:
        for path in ("/v1/jobs", f"/v1/jobs/{job['id']}"):
            for words in ("payload", "error,result"):
                assert code_of(await reader.get(f"{path}?include={words}")) == (403, "FORBIDDEN")
            assert (await reader.get(f"{path}?include=error")).status_code == 200
        steps = (await reader.get(f"/v1/jobs/{job['id']}?include=steps")).json()
        assert "payload" not in steps


async def test_a_job_brings_its_attempts_its_steps_and_its_traceback_along(each_api: Api) -> None:
    job = await each_api.post()
    claimed = await each_api.claim()
    await each_api.env.driver.record_step(claimed.token, a_step())
    await each_api.env.close_attempt(claimed.token, DeadLettered(error=failure(), reason=DeadReason.TERMINAL))
    where = f"/v1/jobs/{job['id']}"
    plain = await each_api.client.get(where)
    full = await each_api.client.get(f"{where}?include=error,attempts&include=steps")
    JobInFull.model_validate(full.json())
    assert full.json()["attempts"] == (await each_api.client.get(f"{where}/attempts")).json()
    assert full.json()["steps"] == (await each_api.client.get(f"{where}/steps")).json()
    assert full.json()["error"] == plain.json()["error"] | {"traceback": "Traceback: line 7"}
    assert {"attempts", "steps"}.isdisjoint(plain.json())
    known = {"If-None-Match": full.headers["etag"]}
    assert (await each_api.client.get(f"{where}?include=attempts", headers=known)).status_code == 304
    assert (await each_api.client.get(f"{where}?include=steps", headers=known)).status_code == 200
    assert code_of(await each_api.client.get(f"{where}?include=everything")) == (422, "REQUEST_INVALID")
