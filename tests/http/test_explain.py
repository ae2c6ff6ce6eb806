from __future__ import annotations

from datetime import timedelta

from app.domain.reason import REASON_RULES, ReasonCode
from tests.http.api import Api, code_of
from tests.http.test_openapi import OPERATIONS, check
from tests.support.drivers import NAME, QUEUE, new_id


async def test_a_caller_learns_why_a_job_is_not_running(api: Api) -> None:
    await api.env.register(names=(NAME,))
    job = await api.post(delay_ms=60_000)
    await api.env.driver.pause_queue(QUEUE, by="ops", reason="mail moves")
    response = await api.client.get(f"/v1/jobs/{job['id']}/explain")
    found = response.json()
    schema = OPERATIONS["explainJob"]["responses"]["200"]["content"]["application/json"]["schema"]
    check(schema, found)
    assert (found["state"], found["runnable"], found["served"]) == ("delayed", False, True)
    assert [reason["code"] for reason in found["reasons"]] == ["delayed", "queue_paused"]
    until = (api.env.now() + timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
    assert found["reasons"][0]["facts"] == {"until": until}
    assert found["reasons"][1]["facts"]["by"] == "ops"
    assert all(reason["blocks"] for reason in found["reasons"])


async def test_a_job_that_is_not_there_answers_so(api: Api) -> None:
    assert code_of(await api.client.get(f"/v1/jobs/{new_id()}/explain")) == (404, "JOB_NOT_FOUND")
    assert code_of(await api.client.get("/v1/jobs/none/explain")) == (404, "JOB_NOT_FOUND")


def test_every_reason_is_documented_once() -> None:
    assert [rule.code for rule in REASON_RULES] == list(ReasonCode)
