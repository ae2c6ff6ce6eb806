"""What a job type keeps back is in no answer, on either store, but for the one that is asked for it and noted."""

from __future__ import annotations

import json

import pytest

from app.domain.outcome import Completed
from app.domain.snapshot import JobTypeDoc
from tests.http.api import Api, code_of, job_type
from tests.http.runs import record, step
from tests.http.test_schedules import declare, shown
from tests.http.test_streams import following
from tests.support.drivers import NAME

pytestmark = pytest.mark.timeout(40)

PAYLOAD = {"card": {"number": "4111"}, "n": 9007199254740993, "apiKey": "marlin"}


async def keep_back(api: Api, *paths: str, name: str = NAME) -> None:
    """Publish the job type with places that are kept back."""
    document = json.loads(job_type().document)
    document["policy"] = {**document.get("policy", {}), "redact": list(paths)}
    await api.env.driver.publish_job_types([JobTypeDoc(name=name, code_version="2", document=json.dumps(document))])


async def test_no_answer_has_what_the_type_keeps_back(each_api: Api) -> None:
    api, client = each_api, each_api.client
    await keep_back(api, "card.number", "**.inner")
    made = await api.post(payload=PAYLOAD)
    assert made["payload"] == PAYLOAD | {"card": {"number": "[redacted]"}}, "the answer to the enqueue, too"
    claimed = await api.claim()
    await record(api, claimed, step("load", value='{"inner": "cod", "total": 1.5e300}'))
    assert '{"inner": "[redacted]", "total": 1.5e300}' in (await client.get(made["links"]["steps"])).text
    await api.env.close_attempt(claimed.token, Completed(result='{"a": {"inner": "tuna"}, "b": 1.50}'))
    seen = (await client.get(made["links"]["self"])).json()
    assert (seen["payload"], seen["result"]) == (made["payload"], {"a": {"inner": "[redacted]"}, "b": 1.5})
    assert (await client.get(made["links"]["result"])).json()["result"] == seen["result"]
    (listed,) = (await client.get("/v1/jobs?include=payload,result")).json()["items"]
    assert (listed["payload"], listed["result"]) == (seen["payload"], seen["result"])
    (recorded,) = (await client.get(f"{made['links']['self']}?include=steps")).json()["steps"]["items"]
    assert recorded["value"] == {"inner": "[redacted]", "total": 1.5e300}
    copy = (await client.post(f"{made['links']['self']}/duplicate")).json()
    assert copy["payload"] == made["payload"]
    whole = (await client.post(f"{copy['links']['self']}/reveal")).json()
    assert whole["payload"] == PAYLOAD, "the copy is whole"


async def test_a_reveal_shows_all_and_leaves_a_row_each_time(each_api: Api) -> None:
    api, client = each_api, each_api.client
    await keep_back(api, "*")
    made = await api.post(payload=PAYLOAD)
    for reason in ("a refund", None):
        whole = await client.post(f"{made['links']['self']}/reveal", json={"reason": reason} if reason else None)
        assert (whole.status_code, whole.json()["payload"]) == (200, PAYLOAD)
    rows = (await client.get("/v1/audit?action=job.reveal")).json()["items"]
    assert [(row["reason"], row["target"]["id"], row["tenant"], row["details"]) for row in rows] == [
        (None, made["id"], "default", {"name": NAME}),
        ("a refund", made["id"], "default", {"name": NAME}),
    ]
    absent = "01a20d87-0a2c-7ae8-b8a0-c0396c8e24a7"
    assert code_of(await client.post(f"/v1/jobs/{absent}/reveal")) == (404, "JOB_NOT_FOUND")
    again = await client.post(f"{made['links']['self']}/reveal", headers={"Idempotency-Key": '"x"'})
    assert code_of(again) == (400, "REQUEST_INVALID")


async def test_a_newer_publication_counts_for_older_jobs(each_api: Api) -> None:
    made = await each_api.post(payload={"a": 1, "b": 2})
    await keep_back(each_api, "b")
    await each_api.client.get("/v1/job-types")
    assert (await each_api.client.get(made["links"]["self"])).json()["payload"] == {"a": 1, "b": "[redacted]"}


async def test_a_step_that_is_followed_lacks_it_as_well(each_api: Api) -> None:
    api = each_api
    await keep_back(api, "inner")
    job = await api.post()
    async with following(api, job) as reader:
        claimed = await api.claim()
        await record(api, claimed, step("load", value='{"inner": 1, "n": 2}'))
        sent = await reader.until("step")
    assert sent[-1].data["value"] == {"inner": "[redacted]", "n": 2}


async def test_the_payload_of_a_schedule_lacks_it_as_well(each_api: Api) -> None:
    await declare(each_api)
    await keep_back(each_api, "shop", name="reports.make")
    assert (await shown(each_api))["payload"] == {"shop": "[redacted]"}
    (listed,) = (await each_api.client.get("/v1/schedules")).json()["items"]
    assert listed["payload"] == {"shop": "[redacted]"}


async def test_what_is_asked_for_by_name_lacks_it_as_well(each_api: Api) -> None:
    api, client = each_api, each_api.client
    await keep_back(api, "inner")
    made = await api.post(payload={"inner": 1, "n": 2})
    claimed = await api.claim()
    await record(api, claimed, step("load", value='{"inner": 1, "n": 2}'))
    await api.env.close_attempt(claimed.token, Completed(result='{"inner": 1, "n": 2}'))
    (listed,) = (await client.get("/v1/jobs?include=payload,result")).json()["items"]
    one = (await client.get(f"{made['links']['self']}?include=steps")).json()
    kept = {"inner": "[redacted]", "n": 2}
    assert [listed["payload"], listed["result"], one["payload"], one["steps"]["items"][0]["value"]] == [kept] * 4
