from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.outcome import Retried, SettleAnswer
from app.http.answers import CancelledJob, Job
from app.http.documents import JOB_ID
from tests.http.api import Api, code_of, dead, failure


async def test_a_cancel_says_what_it_found(each_api: Api) -> None:
    api = each_api
    waiting = await api.post()
    response = await api.client.post(f"/v1/jobs/{waiting['id']}/cancel", json={"reason": "ordered twice"})
    assert response.status_code == 200
    CancelledJob.model_validate(response.json())
    assert response.json()["verdict"] == "cancelled_before_start"
    assert (response.json()["state"], response.json()["state_reason"]) == ("cancelled", "ordered twice")

    again = await api.client.post(f"/v1/jobs/{waiting['id']}/cancel")
    assert (again.json()["verdict"], again.json()["state_reason"]) == ("already_finished", "ordered twice")

    retried = await api.post()
    await api.finish(Retried(error=failure(), delay=timedelta(minutes=1)))
    response = await api.client.post(f"/v1/jobs/{retried['id']}/cancel", json={})
    assert response.json()["verdict"] == "cancelled_while_waiting"

    running = await api.post()
    claimed = await api.claim()
    response = await api.client.post(f"/v1/jobs/{running['id']}/cancel")
    assert (response.json()["verdict"], response.json()["state"]) == ("signalled", "cancelled")
    assert response.json()["state_reason"] == "cancelled by dev"
    assert await api.env.settle(claimed.token, dead()) is SettleAnswer.CANCELLED


async def test_a_dead_job_is_retried_with_fresh_budgets(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    await api.finish(dead())
    for mode in ({}, {"mode": "resume"}, {"mode": "fresh"}):
        response = await api.client.post(f"/v1/jobs/{job['id']}/retry", json=mode)
        Job.model_validate(response.json())
        assert (response.status_code, response.json()["state"], response.json()["attempt"]) == (200, "ready", 0)
        assert response.json()["last_outcome"] == "dead_lettered"
        await api.finish(dead())
    assert len((await api.client.get(f"/v1/jobs/{job['id']}/attempts")).json()["items"]) == 4


async def test_a_retry_is_refused_where_it_cannot_be(each_api: Api) -> None:
    api = each_api
    job = await api.post(idempotency_key="order:1")
    response = await api.client.post(f"/v1/jobs/{job['id']}/retry")
    assert code_of(response) == (409, "JOB_STATE_CONFLICT")
    assert response.json()["state"] == "ready"
    await api.finish(dead())
    successor = await api.post(idempotency_key="order:1")
    response = await api.client.post(f"/v1/jobs/{job['id']}/retry")
    assert code_of(response) == (409, "JOB_DUPLICATE")
    assert response.json()["existing_id"] == successor["id"]


@pytest.mark.parametrize("action", ["cancel", "retry", "fork", "release"])
async def test_actions_on_nothing_are_not_found(api: Api, action: str) -> None:
    for job_id in (JOB_ID, "nonsense"):
        assert code_of(await api.client.post(f"/v1/jobs/{job_id}/{action}")) == (404, "JOB_NOT_FOUND")


async def test_what_actions_do_not_know_is_refused(api: Api) -> None:
    job = await api.post()
    path = f"/v1/jobs/{job['id']}"
    for odd in (7, "", " ", "x" * 129, "a\nb"):
        assert code_of(await api.client.post(f"{path}/retry", json={"from_step": odd})) == (422, "REQUEST_INVALID")
        assert code_of(await api.client.post(f"{path}/fork", json={"from_step": odd})) == (422, "REQUEST_INVALID")
    both = await api.client.post(f"{path}/retry", json={"mode": "fresh", "from_step": "load"})
    assert code_of(both) == (422, "REQUEST_INVALID")
    assert both.json()["errors"][0]["pointer"] == "/from_step"
    assert code_of(await api.client.post(f"{path}/retry", json={"mode": "half"})) == (422, "REQUEST_INVALID")
    assert code_of(await api.client.post(f"{path}/cancel", json={"reason": 1})) == (422, "REQUEST_INVALID")
    assert code_of(await api.client.post(f"{path}/cancel", json={"why": "x"})) == (422, "REQUEST_INVALID")
    assert code_of(await api.client.post(f"{path}/release", json={"x": 1})) == (422, "REQUEST_INVALID")
    assert code_of(await api.client.post("/v1/queues/default/resume", json={"x": 1})) == (422, "REQUEST_INVALID")
    assert (await api.get(job))["state"] == "ready"
