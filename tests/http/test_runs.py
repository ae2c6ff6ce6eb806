"""Reading runs: steps, waits, lines, progress, timelines; and retrying, forking and releasing them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx

from app.domain.job import ClaimedJob
from app.domain.outcome import Completed, Held, Retried
from app.domain.step import NewWait, Place, StepKind
from app.http.answers import Job
from app.http.run_answers import LineList, StepList, Timeline
from tests.http.api import BASE_URL, Api, code_of, dead, failure
from tests.http.runs import approval, record, say, sleep, step, suspend
from tests.support.drivers import new_job

HOUR = timedelta(hours=1)


async def test_steps_are_given_as_they_were_recorded(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    claimed = await api.claim()
    await record(api, claimed, step("load", value='{"total": 1.5e300}'), step("charge", 1, place=Place("1.0", 0)))
    await suspend(api, claimed, approval(2))
    response = await api.client.get(job["links"]["steps"])
    assert response.status_code == 200
    assert '{"total": 1.5e300}' in response.text
    StepList.model_validate(response.json())
    load, charge = response.json()["items"]
    assert (load["name"], load["kind"], load["branch"], load["number"]) == ("load", "run", "", 0)
    assert (load["claim_no"], load["code_version"], load["duration_ms"]) == (1, "1.0.0", 250)
    assert (charge["branch"], charge["value"]) == ("1.0", "charge")
    assert load["seq"] < charge["seq"]
    (wait,) = response.json()["waits"]
    assert (wait["name"], wait["kind"], wait["event"], wait["key"]) == ("approval", "event", "order.approved", "7")
    assert (wait["child_id"], wait["has_failed"]) == (None, False)


async def test_a_suspended_job_says_what_it_waits_for(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    claimed = await api.claim()
    await suspend(api, claimed, approval(0), sleep("cool-off", 1, HOUR))
    shown = await api.get(job)
    Job.model_validate(shown)
    assert (shown["state"], shown["state_reason"], shown["last_outcome"]) == ("suspended", "event", "suspended")
    waiting = shown["waiting_on"]
    assert (waiting["kind"], waiting["name"], waiting["event"], waiting["others"]) == (
        *("event", "approval", "order.approved", 1),
    )
    assert waiting["until"] is not None
    result = await api.client.get(job["links"]["result"])
    assert (result.status_code, result.json()["state"], result.json()["result"]) == (202, "suspended", None)
    (listed,) = (await api.client.get("/v1/jobs?state=suspended")).json()["items"]
    assert (listed["id"], listed["waiting_on"]) == (job["id"], None)


async def test_a_step_that_was_waited_for_says_how_it_ended(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    await suspend(api, await api.claim(), approval(0, timeout=HOUR), sleep("cool-off", 1, timedelta(days=1)))
    await api.env.advance(HOUR)
    assert await api.env.driver.wake() == 1
    (only,) = (await api.client.get(job["links"]["steps"])).json()["items"]
    assert (only["name"], only["timed_out"], only["value"], only["duration_ms"]) == ("approval", True, None, 3_600_000)
    assert (await api.get(job))["state"] == "ready"


async def test_lines_and_progress_are_read_back(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    claimed = await api.claim()
    before = (await api.client.get(job["links"]["self"])).headers["etag"]
    await say(api, claimed, "loaded order 7", "charged", progress=(0.4, "2 of 5"))
    response = await api.client.get(job["links"]["logs"])
    LineList.model_validate(response.json())
    assert [line["message"] for line in response.json()["items"]] == ["loaded order 7", "charged"]
    assert response.json()["progress"]["value"] == 0.4
    shown = await api.client.get(job["links"]["self"], headers={"If-None-Match": before})
    assert shown.status_code == 200, "progress is a part of the representation"
    assert (shown.json()["progress"]["value"], shown.json()["progress"]["message"]) == (0.4, "2 of 5")
    again = await api.client.get(job["links"]["self"], headers={"If-None-Match": shown.headers["etag"]})
    assert again.status_code == 304


async def test_long_runs_are_read_page_by_page(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    claimed = await api.claim()
    await record(api, claimed, *(step(f"step {number}", number) for number in range(5)))
    await say(api, claimed, "first", "second", "third")
    names, lines = [f"step {number}" for number in range(5)], ["first", "second", "third"]
    for what, said, field in (("steps", names, "name"), ("logs", lines, "message")):
        found: list[str] = []
        page = await api.client.get(f"{job['links'][what]}?limit=2")
        while True:
            found += [item[field] for item in page.json()["items"]]
            if page.json()["next_cursor"] is None:
                assert "link" not in page.headers
                break
            page = await api.client.get(page.headers["link"].partition(">")[0].removeprefix("<"))
        assert found == said
    first = await api.client.get(f"{job['links']['steps']}?limit=2")
    cursor = first.json()["next_cursor"]
    transport = httpx.ASGITransport(app=api.app, root_path="/mounted")
    async with httpx.AsyncClient(transport=transport, base_url=BASE_URL) as below:
        page = await below.get(f"/mounted{job['links']['steps']}?limit=2")
    assert page.headers["link"] == f'</mounted{job["links"]["steps"]}?limit=2&cursor={cursor}>; rel="next"'
    assert code_of(await api.client.get(f"{job['links']['logs']}?cursor={cursor}")) == (400, "CURSOR_INVALID")
    assert code_of(await api.client.get(f"{job['links']['logs']}?limit=1001")) == (422, "REQUEST_INVALID")


async def test_runs_of_another_tenant_are_absent(locked: Api) -> None:
    other = await locked.env.enqueue(tenant="north")
    for what in ("steps", "timeline", "logs", "events"):
        for job_id in (str(other), "nonsense"):
            assert code_of(await locked.client.get(f"/v1/jobs/{job_id}/{what}")) == (404, "JOB_NOT_FOUND")
    for action in ("retry", "fork", "release"):
        assert code_of(await locked.client.post(f"/v1/jobs/{other}/{action}")) == (404, "JOB_NOT_FOUND")


# --- timelines --------------------------------------------------------------------------------------------------------


async def _lived(api: Api) -> dict[str, object]:
    """Let a job wait a second, work, sleep an hour, wait two seconds, fail, be retried, and end."""
    second = timedelta(seconds=1)
    job = await api.post()
    await api.env.advance(second)
    claimed = await api.claim()
    await api.env.advance(second)
    await record(api, claimed, step("load", lasted=second))
    await suspend(api, claimed, sleep("cool-off", 1, HOUR))
    await api.env.advance(HOUR)
    assert await api.env.driver.wake() == 1
    await api.env.advance(2 * second)
    claimed = await api.claim()
    await api.env.advance(second)
    await api.env.close_attempt(claimed.token, Retried(error=failure(), delay=second))
    await api.env.advance(second)
    assert await api.env.driver.promote() == 1
    claimed = await api.claim()
    await record(api, claimed, step("charge", 2, lasted=timedelta()))
    await api.env.advance(second)
    await api.env.close_attempt(claimed.token, Completed(result="1"))
    return job


async def test_a_timeline_has_every_part_of_a_life(each_api: Api) -> None:
    api = each_api
    job = await _lived(api)
    response = await api.client.get(f"/v1/jobs/{job['id']}/timeline")
    Timeline.model_validate(response.json())
    spans = [(span["kind"], span["name"], span["claim_no"], span["duration_ms"]) for span in response.json()["spans"]]
    assert spans == [
        ("queue", "queue", 1, 1_000),
        ("attempt", "attempt 1", 1, 1_000),
        ("step", "load", 1, 1_000),
        ("wait", "cool-off", 1, 3_600_000),
        ("queue", "queue", 2, 2_000),
        ("attempt", "attempt 2", 2, 1_000),
        ("replay", "load", 2, 0),
        ("replay", "cool-off", 2, 0),
        ("queue", "queue", 3, 1_000),
        ("attempt", "attempt 3", 3, 1_000),
        ("replay", "load", 3, 0),
        ("replay", "cool-off", 3, 0),
        ("step", "charge", 3, 0),
    ]
    attempts = [span for span in response.json()["spans"] if span["kind"] == "attempt"]
    assert [(span["outcome"], span["counted"], span["inferred"]) for span in attempts] == [
        ("suspended", False, True),
        ("retried", True, False),
        ("completed", True, False),
    ]
    assert attempts[1]["error"]["message"] == "no such shop"
    assert [span["replayed"] for span in response.json()["spans"]].count(True) == 4


async def test_what_goes_on_has_no_end_in_a_timeline(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    (queued,) = (await api.client.get(job["links"]["timeline"])).json()["spans"]
    assert (queued["kind"], queued["ended_at"], queued["duration_ms"]) == ("queue", None, None)
    claimed = await api.claim()
    _, running = (await api.client.get(job["links"]["timeline"])).json()["spans"]
    assert (running["kind"], running["ended_at"], running["claim_no"]) == ("attempt", None, 1)
    await suspend(api, claimed, approval(0))
    *_, attempt, wait = (await api.client.get(job["links"]["timeline"])).json()["spans"]
    assert (attempt["outcome"], attempt["inferred"]) == ("suspended", True)
    assert (wait["kind"], wait["event"], wait["ended_at"]) == ("wait", "order.approved", None)


async def test_what_a_fork_brings_along_is_replayed_only(each_api: Api) -> None:
    api = each_api
    job = await _ended(api)
    await api.env.advance(HOUR)
    new = (await api.client.post(f"/v1/jobs/{job['id']}/fork", json={"from_step": "mail"})).json()
    await api.claim()
    spans = (await api.client.get(new["links"]["timeline"])).json()["spans"]
    assert [(span["kind"], span["name"], span["claim_no"]) for span in spans] == [
        ("queue", "queue", 1),
        ("attempt", "attempt 1", 1),
        ("replay", "load", 1),
        ("replay", "charge", 1),
    ]


# --- retry, fork, release ---------------------------------------------------------------------------------------------


async def _names(api: Api, job_id: str) -> list[str]:
    return [each["name"] for each in (await api.client.get(f"/v1/jobs/{job_id}/steps")).json()["items"]]


async def _ended(api: Api) -> dict[str, str]:
    job: dict[str, str] = await api.post()
    claimed = await api.claim()
    await record(api, claimed, step("load"), step("charge", 1), step("mail", 2))
    await api.env.close_attempt(claimed.token, dead())
    return job


async def test_a_retry_goes_on_from_the_record_or_from_a_step_or_begins_anew(each_api: Api) -> None:
    api = each_api
    job = await _ended(api)
    path = f"/v1/jobs/{job['id']}/retry"
    missing = await api.client.post(path, json={"from_step": "ship"})
    assert code_of(missing) == (404, "NOT_FOUND")
    assert (await api.client.post(path)).json()["run_id"] == job["run_id"]
    assert await _names(api, job["id"]) == ["load", "charge", "mail"]
    await api.finish(dead())
    assert (await api.client.post(path, json={"from_step": "charge"})).json()["state"] == "ready"
    assert await _names(api, job["id"]) == ["load"]
    await api.finish(dead())
    fresh = (await api.client.post(path, json={"mode": "fresh"})).json()
    assert (fresh["state"], await _names(api, job["id"])) == ("ready", [])
    assert fresh["run_id"] != job["run_id"]


async def test_a_fork_is_a_new_job_with_the_history(each_api: Api) -> None:
    api = each_api
    job = await _ended(api)
    response = await api.client.post(f"/v1/jobs/{job['id']}/fork", json={"from_step": "mail"})
    Job.model_validate(response.json())
    assert response.status_code == 201
    new = response.json()
    assert response.headers["location"] == new["links"]["self"]
    assert (new["parent_id"], new["state"], new["claim_no"]) == (job["id"], "ready", 0)
    assert await _names(api, new["id"]) == ["load", "charge"]
    whole = (await api.client.post(f"/v1/jobs/{job['id']}/fork")).json()
    assert whole["id"] != new["id"]
    assert await _names(api, whole["id"]) == ["load", "charge", "mail"]
    assert await _names(api, job["id"]) == ["load", "charge", "mail"]
    assert code_of(await api.client.post(f"/v1/jobs/{job['id']}/fork", json={"from_step": "ship"})) == (
        404,
        "NOT_FOUND",
    )


async def _held(api: Api) -> tuple[dict[str, Any], ClaimedJob]:
    job: dict[str, Any] = await api.post()
    claimed = await api.claim()
    await record(api, claimed, step("load"))
    await api.env.close_attempt(claimed.token, Held(reason="step 0 is 'load', not 'fetch'"))
    return job, claimed


async def test_a_held_job_says_why_and_is_released(each_api: Api) -> None:
    api = each_api
    job, _ = await _held(api)
    shown = await api.get(job)
    assert (shown["state"], shown["state_reason"]) == ("held", "step 0 is 'load', not 'fetch'")
    assert (await api.client.get(job["links"]["result"])).status_code == 202
    resume = await api.client.post(f"/v1/jobs/{job['id']}/retry")
    assert (code_of(resume), resume.json()["state"]) == ((409, "JOB_STATE_CONFLICT"), "held")
    spans = (await api.client.get(job["links"]["timeline"])).json()["spans"]
    (held,) = [span for span in spans if span["name"] == "held"]
    assert (held["kind"], held["ended_at"]) == ("queue", None)
    released = await api.client.post(f"/v1/jobs/{job['id']}/release")
    assert (released.status_code, released.json()["state"]) == (200, "ready")
    again = await api.client.post(f"/v1/jobs/{job['id']}/release")
    assert (code_of(again), again.json()["state"]) == ((409, "JOB_STATE_CONFLICT"), "ready")
    assert await _names(api, job["id"]) == ["load"]


async def test_a_held_job_is_retried_fresh(each_api: Api) -> None:
    api = each_api
    job, _ = await _held(api)
    fresh = await api.client.post(f"/v1/jobs/{job['id']}/retry", json={"mode": "fresh"})
    assert (fresh.status_code, fresh.json()["state"]) == (200, "ready")
    assert await _names(api, job["id"]) == []


async def test_a_call_that_failed_shows_its_child(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    claimed = await api.claim()
    child = new_job(parent_id=claimed.token.job_id)
    await suspend(api, claimed, NewWait(name="part", kind=StepKind.CALL, place=Place("", 0), child=child))
    shown = await api.get(job)
    assert (shown["waiting_on"]["kind"], shown["waiting_on"]["child_id"]) == ("call", str(child.id))
    await api.finish(dead())
    (wait,) = (await api.client.get(job["links"]["steps"])).json()["waits"]
    assert (wait["child_state"], wait["has_failed"], wait["error"]["message"]) == ("dead", True, "no such shop")
    assert (await api.client.get(job["links"]["steps"])).json()["children"] == [str(child.id)]
