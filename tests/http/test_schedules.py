"""Schedules over HTTP: what is due, what became of it, what an operator may do, and what an expression means."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from app.domain.schedule import Overlap, Plan, Planned
from app.drivers.schedules import ScheduleStore, schedules_of
from app.http.answers_schedules import Schedule as ScheduleAnswer
from app.jobs import job, schedule
from app.jobs.describe import job_type_docs
from tests.http.api import Api, code_of
from tests.support.drivers import new_job

PREVIEW = "/v1/schedules/preview"


@job("reports.make", queue="reports", tenant="{shop}")
async def make_report(shop: str) -> None: ...


NIGHTLY = schedule(
    "nightly",
    job=make_report,
    cron="30 1 * * *",
    tz="America/New_York",
    payload={"shop": "default"},
    overlap="skip",
    priority=7,
    tags=["night"],
)


def store_of(api: Api) -> ScheduleStore:
    store = schedules_of(api.env.driver)
    assert store is not None
    return store


async def declare(api: Api) -> ScheduleStore:
    await api.env.driver.publish_job_types(job_type_docs([make_report], code_version="1"))
    await store_of(api).declare([NIGHTLY.declaration(code_version="1")])
    return store_of(api)


async def shown(api: Api, name: str = "nightly") -> dict[str, Any]:
    response = await api.client.get(f"/v1/schedules/{name}")
    assert response.status_code == 200, response.text
    ScheduleAnswer.model_validate_json(response.content)
    found: dict[str, Any] = response.json()
    return found


async def test_a_schedule_shows_what_it_is_and_when_it_is_due(each_api: Api) -> None:
    await declare(each_api)
    document = await shown(each_api)
    assert (document["job"], document["cron"], document["tz"]) == ("reports.make", "30 1 * * *", "America/New_York")
    assert document["description"] == "At 01:30 every day"
    assert (document["catch_up"], document["overlap"], document["max_catch_up"]) == ("latest", "skip", 10)
    assert document["payload"] == {"shop": "default"}
    assert (document["options"]["priority"], document["options"]["tags"]) == (7, ["night"])
    assert (document["is_declared"], document["is_paused"], document["code_version"]) == (True, False, "1")
    assert document["occurrences"] == []
    fires = document["next_fires"]
    assert len(fires) == 5
    for fire in fires:
        assert datetime.fromisoformat(fire["at"]) == datetime.fromisoformat(fire["local"])
        assert fire["local"][11:16] == "01:30"


async def test_what_became_of_the_last_twenty_is_there_newest_first(each_api: Api) -> None:
    store = await declare(each_api)
    at = each_api.env.now()
    planned = tuple(Planned(at=at + timedelta(days=n), job=new_job()) for n in range(22))
    digest = NIGHTLY.declaration(code_version="1").digest
    await store.decide(Plan(name="nightly", digest=digest, until=at, planned=planned, overlap=Overlap.ALLOW))
    rows = (await shown(each_api))["occurrences"]
    wanted = [str(each.job.id) for each in reversed(planned) if each.job is not None][:20]
    assert [row["job_id"] for row in rows] == wanted
    assert {row["outcome"] for row in rows} == {"fired"}
    (listed,) = (await each_api.client.get("/v1/schedules")).json()["items"]
    assert (listed["name"], len(listed["next_fires"]), len(listed["occurrences"])) == ("nightly", 1, 1)


async def test_a_schedule_that_nobody_declares_any_more_says_so(each_api: Api) -> None:
    await declare(each_api)
    await each_api.env.advance(timedelta(minutes=5))
    document = await shown(each_api)
    assert (document["is_declared"], document["next_fires"]) == (False, [])


async def test_pause_and_resume(each_api: Api) -> None:
    await declare(each_api)
    paused = await each_api.client.post("/v1/schedules/nightly/pause", json={"reason": "moves"})
    assert paused.status_code == 200
    document = paused.json()
    assert (document["is_paused"], document["pause_reason"], document["next_fires"]) == (True, "moves", [])
    again = (await each_api.client.post("/v1/schedules/nightly/pause")).json()
    assert again["paused_at"] == document["paused_at"]
    resumed = (await each_api.client.post("/v1/schedules/nightly/resume", json={})).json()
    assert (resumed["is_paused"], resumed["paused_by"], len(resumed["next_fires"])) == (False, None, 5)


async def test_trigger_enqueues_the_job_as_declared(each_api: Api) -> None:
    await declare(each_api)
    response = await each_api.client.post("/v1/schedules/nightly/trigger")
    assert response.status_code == 201
    decided = response.json()
    assert (decided["outcome"], decided["why"]) == ("fired", None)
    assert response.headers["location"] == f"/v1/jobs/{decided['job_id']}"
    found = (await each_api.client.get(response.headers["location"])).json()
    assert (found["name"], found["queue"], found["priority"]) == ("reports.make", "reports", 7)
    assert (found["tags"], found["enqueued_by"], found["payload"]) == (
        ["night"],
        "schedule:nightly",
        {"shop": "default"},
    )
    (row,) = (await shown(each_api))["occurrences"]
    assert (row["job_id"], row["fired_by"]) == (decided["job_id"], "dev")


async def test_trigger_refuses_a_job_of_another_tenant_and_what_nobody_runs(api: Api, locked: Api) -> None:
    other = schedule("other", job=make_report, cron="@daily", tz="UTC", payload={"shop": "elsewhere"})
    for each in (api, locked):
        await store_of(each).declare([other.declaration(code_version="1")])
    assert code_of(await api.client.post("/v1/schedules/other/trigger")) == (404, "JOB_UNKNOWN")
    await locked.env.driver.publish_job_types(job_type_docs([make_report], code_version="1"))
    assert code_of(await locked.client.post("/v1/schedules/other/trigger")) == (403, "FORBIDDEN")


@pytest.mark.parametrize("verb", ["pause", "resume", "trigger"])
async def test_verbs_on_an_unknown_schedule_are_not_found(api: Api, verb: str) -> None:
    assert code_of(await api.client.post(f"/v1/schedules/x/{verb}")) == (404, "NOT_FOUND")
    assert code_of(await api.client.get("/v1/schedules/x")) == (404, "NOT_FOUND")


@pytest.mark.parametrize("verb", ["pause", "resume", "trigger"])
async def test_a_body_that_does_not_fit_changes_nothing(api: Api, verb: str) -> None:
    await declare(api)
    response = await api.client.post(f"/v1/schedules/nightly/{verb}", json={"colour": "red"})
    assert code_of(response) == (422, "REQUEST_INVALID")
    document = await shown(api)
    assert (document["is_paused"], document["occurrences"]) == (False, [])


async def test_a_preview_marks_what_the_clock_does(api: Api) -> None:
    query = {"cron": "30 1 * * *", "tz": "America/New_York", "n": "2", "after": "2026-10-31T12:00:00Z"}
    answer = (await api.client.get(PREVIEW, params=query)).json()
    assert answer == {
        "cron": "30 1 * * *",
        "tz": "America/New_York",
        "description": "At 01:30 every day",
        "after": "2026-10-31T12:00:00Z",
        "fires": [
            {"at": "2026-11-01T05:30:00Z", "local": "2026-11-01T01:30:00-04:00", "dst": "first"},
            {"at": "2026-11-02T06:30:00Z", "local": "2026-11-02T01:30:00-05:00", "dst": None},
        ],
    }
    query |= {"cron": "30 2 * * *", "n": "1", "after": "2026-03-07T12:00:00Z"}
    (fire,) = (await api.client.get(PREVIEW, params=query)).json()["fires"]
    assert fire == {"at": "2026-03-08T07:00:00Z", "local": "2026-03-08T03:00:00-04:00", "dst": "moved"}
    query |= {"cron": "*/30 * * * *", "n": "4", "after": "2026-11-01T04:45:00Z"}
    fires = (await api.client.get(PREVIEW, params=query)).json()["fires"]
    assert [fire["dst"] for fire in fires] == ["first", "first", "second", "second"]


async def test_a_preview_begins_now_and_shows_five(api: Api) -> None:
    answer = (await api.client.get(PREVIEW, params={"cron": "@hourly", "tz": "UTC"})).json()
    assert answer["cron"] == "0 * * * *"
    assert datetime.fromisoformat(answer["after"]) == api.env.now()
    assert len(answer["fires"]) == 5


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"cron": "0 0 30 2 *", "tz": "UTC"}, "SCHEDULE_INVALID"),
        ({"cron": "1--100000000 * * * *", "tz": "UTC"}, "SCHEDULE_INVALID"),
        ({"cron": "0 30 9 * * *", "tz": "UTC"}, "SCHEDULE_INVALID"),
        ({"cron": "@daily", "tz": "Mars/Olympus"}, "SCHEDULE_INVALID"),
        ({"cron": "@daily", "tz": ""}, "SCHEDULE_INVALID"),
        ({"cron": "@daily"}, "REQUEST_INVALID"),
        ({"tz": "UTC"}, "REQUEST_INVALID"),
        ({"cron": "@daily", "tz": "UTC", "n": "0"}, "REQUEST_INVALID"),
        ({"cron": "@daily", "tz": "UTC", "n": "101"}, "REQUEST_INVALID"),
        ({"cron": "@daily", "tz": "UTC", "after": "yesterday"}, "REQUEST_INVALID"),
        ({"cron": "@daily", "tz": "UTC", "colour": "red"}, "REQUEST_INVALID"),
        ({"cron": "9" * 256, "tz": "UTC"}, "REQUEST_INVALID"),
    ],
)
async def test_a_preview_of_what_cannot_work_is_refused(api: Api, query: dict[str, str], code: str) -> None:
    assert code_of(await api.client.get(PREVIEW, params=query)) == (422, code)


@pytest.mark.parametrize(
    ("after", "count"),
    [
        ("0001-01-01T00:00:00Z", 5),
        ("9990-01-01T00:00:00Z", 5),
        ("9996-06-01T00:00:00Z", 2),
        ("9999-12-31T23:59:59Z", 0),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Apia", "America/New_York"])
async def test_a_preview_at_an_end_of_the_calendar_shows_what_there_is(
    api: Api, after: str, count: int, zone: str
) -> None:
    for cron in ("0 0 1 1 *", "* 0 1 1 *"):
        query = {"cron": cron, "tz": zone, "n": "5", "after": after}
        response = await api.client.get(PREVIEW, params=query)
        assert response.status_code == 200
        assert len(response.json()["fires"]) >= (count if zone == "UTC" else min(count, 1))
