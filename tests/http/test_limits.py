"""Limits over HTTP: who holds slots, page by page, taking them back, and the numbers in force."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.domain.job import JobId
from app.http.answers_limits import LimitInForce, LimitList, Released, SlotList
from tests.conformance.gated import admit, declare, limited
from tests.http.api import Api, code_of


async def _holding(api: Api, count: int = 1, **fields: Any) -> list[JobId]:
    """Give jobs that hold a slot each, of a limit of five."""
    await declare(api.env, 5)
    worker = await api.env.register()
    ids = []
    for _ in range(count):
        ids += await limited(api.env, **fields)
        await admit(api.env, worker)
        await api.env.advance(timedelta(seconds=1))
    return ids


async def test_held_slots_are_listed_page_by_page(each_api: Api) -> None:
    ids = await _holding(each_api, 3)
    first = await each_api.client.get("/v1/slots?limit=2")
    page = SlotList.model_validate(first.json())
    assert [JobId(slot.job_id) for slot in page.items] == ids[:2]
    assert (page.items[0].limit, page.items[0].key, page.items[0].is_open) == ("limit", "", True)
    assert page.next_cursor is not None
    assert 'rel="next"' in first.headers["Link"]
    second = await each_api.client.get(f"/v1/slots?limit=2&cursor={page.next_cursor}")
    rest = SlotList.model_validate(second.json())
    assert ([JobId(slot.job_id) for slot in rest.items], rest.next_cursor) == (ids[2:], None)
    other = await each_api.client.get(f"/v1/slots?name=demo.other&cursor={page.next_cursor}")
    assert code_of(other) == (400, "CURSOR_INVALID")
    assert (await each_api.client.get("/v1/slots?name=demo.other")).json()["items"] == []


async def test_a_waiting_job_says_that_it_waits_for_a_slot(each_api: Api) -> None:
    await declare(each_api.env, 1)
    _, waits = await limited(each_api.env, 2)
    await admit(each_api.env, await each_api.env.register())
    job = (await each_api.client.get(f"/v1/jobs/{waits}")).json()
    assert (job["state"], job["state_reason"]) == ("ready", "slot")


async def test_slots_of_a_job_that_is_over_are_taken_back(each_api: Api) -> None:
    (job_id,) = await _holding(each_api)
    path = f"/v1/jobs/{job_id}/release-slots"
    assert code_of(await each_api.client.post(path)) == (409, "JOB_STATE_CONFLICT")
    await each_api.client.post(f"/v1/jobs/{job_id}/cancel")
    taken = Released.model_validate((await each_api.client.post(path, json={})).json())
    assert [(JobId(slot.job_id), slot.is_open) for slot in taken.items] == [(job_id, False)]
    assert code_of(await each_api.client.post(path)) == (404, "NOT_FOUND")
    assert code_of(await each_api.client.post(f"/v1/jobs/{JobId(job_id)}x/release-slots")) == (404, "JOB_NOT_FOUND")


async def test_a_limit_is_set_and_given_back_to_the_code(each_api: Api) -> None:
    await declare(each_api.env, 4, rate=(100, timedelta(minutes=1)))
    listed = LimitList.model_validate((await each_api.client.get("/v1/limits")).json())
    assert [(one.limit, one.n, one.per_ms) for one in listed.items] == [("limit", 4, None), ("rate", 100, 60_000)]
    path = "/v1/limits/demo.job/limit"
    set_ = LimitInForce.model_validate((await each_api.client.post(path, json={"n": 2})).json())
    assert (set_.n, set_.declared, set_.set_by) == (2, 4, "dev")
    back = LimitInForce.model_validate((await each_api.client.post(path, json={"n": None})).json())
    assert (back.n, back.set_by) == (4, None)
    assert (await each_api.client.get("/v1/limits?name=demo.other")).json() == {"items": []}


@pytest.mark.parametrize("wrong", [{}, {"n": 0}, {"n": 1_000_001}, {"n": "2"}, {"n": 1.5}, {"n": True}, {"m": 1}])
async def test_a_number_that_cannot_be_is_refused(each_api: Api, wrong: dict[str, Any]) -> None:
    await declare(each_api.env, 4)
    assert code_of(await each_api.client.post("/v1/limits/demo.job/limit", json=wrong)) == (422, "REQUEST_INVALID")


async def test_a_limit_that_nobody_declared_is_not_found(each_api: Api) -> None:
    assert code_of(await each_api.client.post("/v1/limits/demo.job/limit", json={"n": 2})) == (404, "NOT_FOUND")
