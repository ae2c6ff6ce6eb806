from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from app.domain.job import JobId
from app.domain.outcome import Completed, Retried, Snoozed
from app.drivers.reading import ListQuery
from app.http.answers import AttemptList, Job, Queue, QueueList, Result, WorkerList
from app.http.answers_list import JobList
from app.http.cursor import write_back_cursor, write_cursor
from app.http.documents import JOB_ID
from app.http.routers import job_list
from tests.http.api import Api, code_of, dead, failure, job_type
from tests.support.drivers import NAME


async def test_a_job_is_described_through_its_life(each_api: Api) -> None:
    api = each_api
    job = await api.post(payload={"n": 1})
    claimed = await api.claim()
    running = await api.get(job)
    Job.model_validate(running)
    assert (running["state"], running["attempt"], running["claim_no"]) == ("running", 1, 1)
    assert running["claim"]["worker_id"] == str(claimed.token.worker_id)
    assert running["claim"]["expires_at"] > running["claim"]["claimed_at"]
    assert (running["wait_ms"], running["duration_ms"]) == (0, None)
    await api.env.advance(timedelta(milliseconds=1500))
    await api.env.close_attempt(claimed.token, Completed(result='{"lines":  3}'))
    done = await api.get(job)
    Job.model_validate(done)
    assert (done["state"], done["result"], done["last_outcome"]) == ("done", {"lines": 3}, "completed")
    assert (done["error"], done["claim"], done["duration_ms"]) == (None, None, 1500)


async def test_a_failed_attempt_is_readable(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    await api.finish(Retried(error=failure("STEP_TOO_LARGE"), delay=timedelta(minutes=1)))
    found = await api.get(job)
    assert (found["state"], found["state_reason"], found["attempt"]) == ("delayed", "retry", 1)
    assert found["last_outcome"] == "retried"
    assert found["error"] == {
        "type": "ValueError", "message": "no such shop", "code": "STEP_TOO_LARGE", "retryable": False,
    }  # fmt: skip
    attempts = await api.client.get(f"/v1/jobs/{job['id']}/attempts")
    AttemptList.model_validate(attempts.json())
    (attempt,) = attempts.json()["items"]
    assert (attempt["number"], attempt["outcome"], attempt["cause"], attempt["counted"]) == (
        1,
        "retried",
        "error",
        True,
    )
    assert attempt["error"]["traceback"] == "Traceback: line 7"
    assert (attempt["host"], attempt["code_version"]) == ("host-a", "1.0.0")


async def test_the_completing_attempt_is_listed_too(each_api: Api) -> None:
    job = await each_api.post()
    await each_api.finish()
    attempts = (await each_api.client.get(f"/v1/jobs/{job['id']}/attempts")).json()["items"]
    assert [(each["number"], each["outcome"], each["error"]) for each in attempts] == [(1, "completed", None)]


async def test_a_snoozed_job_says_what_it_waits_for(api: Api) -> None:
    job = await api.post()
    await api.finish(Snoozed(delay=timedelta(minutes=1)))
    found = await api.get(job)
    assert (found["state"], found["state_reason"], found["last_outcome"]) == ("delayed", "snooze", "suspended")
    waiting = found["waiting_on"]
    assert (waiting["kind"], waiting["until"], waiting["name"]) == ("sleep", found["run_at"], None)


@pytest.mark.parametrize("end", ["", "/attempts", "/result", "/steps", "/timeline", "/logs"])
@pytest.mark.parametrize("job_id", [JOB_ID, "x", "%20", JOB_ID.replace("-", ""), f"{{{JOB_ID}}}", "..", "0"])
async def test_an_id_behind_which_there_is_nothing_is_not_found(api: Api, job_id: str, end: str) -> None:
    response = await api.client.get(f"/v1/jobs/{job_id}{end}")
    assert code_of(response) in ((404, "JOB_NOT_FOUND"), (404, "NOT_FOUND"))


async def test_an_unchanged_job_is_not_sent_again(api: Api) -> None:
    job = await api.post()
    tag = f'"{job["version"]}"'
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        response = await api.client.get(f"/v1/jobs/{job['id']}", headers={"If-None-Match": known})
        assert (response.status_code, response.content, response.headers["etag"]) == (304, b"", tag)
    await api.claim()
    response = await api.client.get(f"/v1/jobs/{job['id']}", headers={"If-None-Match": tag})
    assert response.status_code == 200
    assert response.headers["etag"] != tag


# --- results


async def test_a_result_is_awaited_read_and_refused(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    path = f"/v1/jobs/{job['id']}/result"
    early = await api.client.get(path)
    Result.model_validate(early.json())
    assert (early.status_code, early.json()["state"], early.headers["retry-after"]) == (202, "ready", "1")
    await api.finish(Completed(result="[1, 1.0, -0.0]"))
    done = await api.client.get(path)
    assert done.status_code == 200
    assert b'"result":[1, 1.0, -0.0]' in done.content

    job = await api.post()
    await api.finish(dead())
    failed = await api.client.get(f"/v1/jobs/{job['id']}/result")
    assert code_of(failed) == (409, "JOB_FAILED")
    assert failed.json()["state"] == "dead"
    assert failed.json()["error"]["message"] == "no such shop"


async def test_a_body_that_returned_nothing_has_a_null_result(api: Api) -> None:
    job = await api.post()
    await api.finish(Completed(result=None))
    response = await api.client.get(f"/v1/jobs/{job['id']}/result")
    assert (response.status_code, response.json()["result"]) == (200, None)


# --- lists


async def test_pages_follow_each_other_without_gap_or_repetition(each_api: Api) -> None:
    api = each_api
    made = [(await api.post(payload={"secret": 1}))["id"] for _ in range(7)]
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 3}
    while True:
        response = await api.client.get("/v1/jobs", params=query)
        page = response.json()
        JobList.model_validate(page)
        assert "secret" not in response.text
        seen += [job["id"] for job in page["items"]]
        if page["next_cursor"] is None:
            break
        assert f"cursor={page['next_cursor']}" in response.headers["link"]
        query["cursor"] = page["next_cursor"]
        await api.post()  # what comes later is not on later pages
    assert seen == made[::-1]


async def test_lists_are_filtered(each_api: Api) -> None:
    api = each_api
    await api.env.driver.publish_job_types([job_type("other.job", queue="mail")])
    ready = await api.post()
    delayed = await api.post(delay_ms=60_000)
    mail = await api.post(name="other.job")
    await api.finish()

    async def ids(**query: Any) -> set[str]:
        response = await api.client.get("/v1/jobs", params=query)
        assert response.status_code == 200, response.text
        return {job["id"] for job in response.json()["items"]}

    assert await ids() == {ready["id"], delayed["id"], mail["id"]}
    assert await ids(state="done") == {ready["id"]}
    assert await ids(state=["done", "delayed"]) == {ready["id"], delayed["id"]}
    assert await ids(name="other.job") == {mail["id"]}
    assert await ids(queue="mail", state="ready") == {mail["id"]}
    assert await ids(tenant="default") == {ready["id"], delayed["id"], mail["id"]}
    assert await ids(tenant="another") == set()


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=0", "/limit"),
        ("limit=201", "/limit"),
        ("limit=1.0", "/limit"),
        ("limit=%2B1", "/limit"),
        ("limit=1_0", "/limit"),
        ("limit=", "/limit"),
        ("limit=99999999999999999999", "/limit"),
        ("state=gone", "/state/0"),
        ("state=ready&state=gone", "/state/1"),
        ("name=UPPER", "/name"),
        ("queue=%27%3B--", "/queue"),
        ("tenant=%20", "/tenant"),
        ("name=a&name=b", "/name"),
        ("limit=1&limit=2", "/limit"),
        ("stat=ready", "/stat"),
        ("cursor=" + "a" * 201, "/cursor"),
        ("count=yes", "/count"),
        ("worker_id=01", "/worker_id"),
        ("parent_id=1", "/parent_id"),
        ("tag=", "/tag/0"),
        ("finished_after=today", "/finished_after"),
    ],
)
async def test_a_query_that_does_not_fit_is_named(api: Api, query: str, pointer: str) -> None:
    response = await api.client.get(f"/v1/jobs?{query}")
    assert code_of(response) == (422, "REQUEST_INVALID")
    assert response.json()["errors"][0]["pointer"] == pointer
    assert response.json()["errors"][0]["in"] == "query"


async def test_pages_lead_both_ways(each_api: Api) -> None:
    jobs = [(await each_api.post(tags=["x"]))["id"] for _ in range(5)][::-1]
    await each_api.post()
    first = await each_api.client.get("/v1/jobs?tag=x&limit=2&count=true")
    assert first.json()["count"] == {"value": 5, "capped": False}
    assert first.json()["prev_cursor"] is None
    second = await each_api.client.get(f"/v1/jobs?tag=x&limit=2&cursor={first.json()['next_cursor']}")
    JobList.model_validate(second.json())
    assert [item["id"] for item in second.json()["items"]] == jobs[2:4]
    assert 'rel="next"' in second.headers["link"]
    assert 'rel="prev"' in second.headers["link"]
    assert second.json()["count"] is None
    back = await each_api.client.get(f"/v1/jobs?tag=x&limit=2&cursor={second.json()['prev_cursor']}")
    assert [item["id"] for item in back.json()["items"]] == jobs[:2]
    assert back.json()["prev_cursor"] is None
    on = await each_api.client.get(f"/v1/jobs?tag=x&limit=2&cursor={back.json()['next_cursor']}")
    assert [item["id"] for item in on.json()["items"]] == jobs[2:4]
    for other in ("tag=y", "tag_all=x", "key=x", "error_code=x", f"parent_id={jobs[0]}", "worker_id=1"):
        refused = await each_api.client.get(f"/v1/jobs?{other}&cursor={first.json()['next_cursor']}")
        assert code_of(refused) == (400, "CURSOR_INVALID")


@pytest.mark.parametrize("job_id", [UUID(int=0), UUID(int=2**128 - 1)])
async def test_a_cursor_at_the_end_of_all_ids_leads_nowhere(each_api: Api, job_id: UUID) -> None:
    await each_api.post()
    filters = job_list._filters(ListQuery(tenant=None), "-created_at")
    for write in (write_cursor, write_back_cursor):
        cursor = write(JobId(job_id), filters)
        page = (await each_api.client.get(f"/v1/jobs?cursor={cursor}")).json()
        assert len(page["items"]) <= 1


async def test_a_cursor_is_good_for_the_filters_it_came_from(api: Api) -> None:
    for _ in range(3):
        await api.post()
    cursor = (await api.client.get("/v1/jobs?limit=1&state=ready&state=done")).json()["next_cursor"]
    assert (await api.client.get(f"/v1/jobs?limit=2&state=done&state=ready&cursor={cursor}")).status_code == 200
    for other in ("state=ready", f"name={NAME}", "tenant=default", ""):
        assert code_of(await api.client.get(f"/v1/jobs?{other}&cursor={cursor}")) == (400, "CURSOR_INVALID")


@pytest.mark.parametrize("cursor", ["", "x", "a" * 34, "AQ", "!!!!", "%F0%9F%A6%8A", "a" * 200])
async def test_a_made_up_cursor_is_refused(api: Api, cursor: str) -> None:
    assert code_of(await api.client.get(f"/v1/jobs?cursor={cursor}")) == (400, "CURSOR_INVALID")


# --- queues, workers, job types


async def test_queues_are_listed_paused_and_resumed(each_api: Api) -> None:
    api = each_api
    await api.post()
    await api.env.advance(timedelta(seconds=2))
    queues = (await api.client.get("/v1/queues")).json()
    QueueList.model_validate(queues)
    (queue,) = queues["items"]
    assert queue["depth"] == {"delayed": 0, "ready": 1, "running": 0, "suspended": 0, "held": 0}
    assert (queue["oldest_ready_ms"], queue["is_paused"]) == (2000, False)
    paused = await api.client.post("/v1/queues/default/pause", json={"reason": "the server moves"})
    Queue.model_validate(paused.json())
    assert paused.status_code == 200
    assert (paused.json()["paused_by"], paused.json()["pause_reason"]) == ("dev", "the server moves")
    assert await api.env.claim(await api.env.register()) == ()
    again = await api.client.post("/v1/queues/default/pause")
    assert again.json()["pause_reason"] == "the server moves"
    resumed = await api.client.post("/v1/queues/default/resume", json={})
    assert (resumed.status_code, resumed.json()["is_paused"]) == (200, False)
    assert (await api.client.get("/v1/queues/default")).json() == resumed.json()
    assert len(await api.env.claim(await api.env.register())) == 1


async def test_a_queue_nobody_has_named_is_not_found_but_can_be_paused(each_api: Api) -> None:
    api = each_api
    assert code_of(await api.client.get("/v1/queues/mail")) == (404, "NOT_FOUND")
    assert code_of(await api.client.post("/v1/queues/A%20B/pause")) == (422, "REQUEST_INVALID")
    assert (await api.client.post("/v1/queues/mail/resume")).json()["is_paused"] is False
    assert (await api.client.post("/v1/queues/mail/pause")).json()["is_paused"] is True
    assert (await api.client.get("/v1/queues/mail")).json()["is_paused"] is True


async def test_workers_are_listed(each_api: Api) -> None:
    await each_api.post()
    claimed = await each_api.claim()
    workers = (await each_api.client.get("/v1/workers")).json()
    WorkerList.model_validate(workers)
    (worker,) = workers["items"]
    assert (worker["id"], worker["running"], worker["queues"]) == (str(claimed.token.worker_id), 1, ["default"])


async def test_job_types_are_described_as_they_were_published(each_api: Api) -> None:
    api = each_api
    await api.env.driver.publish_job_types([job_type("b.type", schema={"maximum": 1.5e300}), job_type("a.type")])
    response = await api.client.get("/v1/job-types")
    assert [each["name"] for each in response.json()["items"]] == ["a.type", "b.type", NAME]
    one = await api.client.get("/v1/job-types/b.type")
    assert b'"payload_schema":{"maximum": 1.5e+300}' in one.content
    assert one.json()["code_version"] == "1.0.0"
    assert one.json()["published_at"]
    assert code_of(await api.client.get("/v1/job-types/nope")) == (404, "NOT_FOUND")
