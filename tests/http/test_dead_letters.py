"""Dead letters over HTTP: groups, the retry of one, and the purge of old ones, counted first."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.control import purge as purge_control
from app.domain.job import JobId
from app.domain.outcome import DeadLettered
from app.domain.state import DeadReason, State
from app.drivers.bulk import bulk_of
from app.http.answers_bulk import BulkOperation
from tests.http.api import Api, code_of
from tests.support.drivers import ERROR

DAY_MS = 86_400_000
PURGE = "/v1/dead-letters/purge"
RETRY = "/v1/dead-letters/retry"


async def dead(api: Api, count: int = 1, **fields: Any) -> list[JobId]:
    """Give dead letters that are two days old."""
    worker = await api.env.register(lease_ms=600_000)
    jobs = []
    for _ in range(count):
        held = await api.env.running(worker, **fields)
        await api.env.close_attempt(held.token, DeadLettered(error=ERROR, reason=DeadReason.TERMINAL))
        jobs.append(held.token.job_id)
    await api.env.advance(timedelta(days=2))
    return jobs


async def test_groups_are_listed_most_first(api: Api) -> None:
    await dead(api, 2, name="jobs.a")
    await dead(api, 1, name="jobs.b")
    answer = await api.client.get("/v1/dead-letters")
    assert answer.status_code == 200
    groups = answer.json()["items"]
    assert [(group["name"], group["count"], group["reason"]) for group in groups] == [
        ("jobs.a", 2, "terminal"),
        ("jobs.b", 1, "terminal"),
    ]
    fields = {"name", "reason", "error_type", "error_code", "count", "first_at", "last_at", "per_hour", "message"}
    assert set(groups[0]) == fields
    assert (groups[0]["per_hour"], groups[0]["message"]) == ([0] * 24, ERROR.message), "two days old"


async def test_old_ones_are_counted_and_then_deleted(api: Api) -> None:
    jobs = await dead(api, 3)
    counted = await api.client.post(PURGE, json={"older_than_ms": DAY_MS, "dry_run": True})
    assert counted.json() == {"dry_run": True, "count": 3, "is_complete": True, "next_after": None}
    assert await api.env.driver.describe(jobs[0]) is not None
    purged = await api.client.post(PURGE, json={"older_than_ms": DAY_MS})
    assert purged.json() == {"dry_run": False, "count": 3, "is_complete": True, "next_after": None}
    assert await api.env.driver.describe(jobs[0]) is None
    again = await api.client.post(PURGE, json={"older_than_ms": DAY_MS})
    assert again.json()["count"] == 0


async def test_young_ones_and_those_of_another_type_stay(api: Api) -> None:
    await dead(api, name="jobs.a")
    assert (await api.client.post(PURGE, json={"older_than_ms": 3 * DAY_MS})).json()["count"] == 0
    assert (await api.client.post(PURGE, json={"older_than_ms": 0, "name": "jobs.b"})).json()["count"] == 0
    assert (await api.client.post(PURGE, json={"older_than_ms": 0, "name": "jobs.a"})).json()["count"] == 1


async def test_a_request_that_has_taken_long_enough_says_where_to_go_on(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge_control, "_REQUEST_SECONDS", 0.0)
    monkeypatch.setattr(purge_control, "_BATCH", 2)
    await dead(api, 3)
    first = (await api.client.post(PURGE, json={"older_than_ms": DAY_MS})).json()
    assert (first["count"], first["is_complete"]) == (2, False)
    second = await api.client.post(PURGE, json={"older_than_ms": DAY_MS, "after": first["next_after"]})
    assert second.json() == {"dry_run": False, "count": 1, "is_complete": True, "next_after": None}


@pytest.mark.parametrize(
    "body", [{}, {"older_than_ms": -1}, {"older_than_ms": "1d"}, {"older_than_ms": 1, "state": "done"}]
)
async def test_what_does_not_fit_is_refused(api: Api, body: dict[str, object]) -> None:
    answer = await api.client.post(PURGE, json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "REQUEST_INVALID")


async def test_a_group_is_counted_and_retried_as_it_is_listed(each_api: Api) -> None:
    api = each_api
    alike = await dead(api, 2, name="jobs.a")
    other = await dead(api, 1, name="jobs.b")
    await api.env.advance(timedelta(days=20))
    (group, _) = (await api.client.get("/v1/dead-letters")).json()["items"]
    asked = {name: group[name] for name in ("name", "reason", "error_type", "error_code")}
    counted = await api.client.post(RETRY, json={"group": asked, "dry_run": True})
    assert (counted.status_code, counted.json()["matched"], counted.json()["notice"]) == (200, 2, None)
    changed = await api.client.post(RETRY, json={"group": asked, "expected_count": 3})
    assert code_of(changed) == (409, "COUNT_CHANGED")
    made = await api.client.post(RETRY, json={"group": asked, "expected_count": 2, "reason": "mended"})
    assert made.status_code == 202
    shown = await api.client.get(made.headers["location"])
    BulkOperation.model_validate(shown.json())
    assert (shown.json()["matched"], shown.json()["reason"]) == (2, "mended")
    error = {"reason": "terminal", "type": ERROR.type, "code": ERROR.code}
    assert shown.json()["selector"]["filter"] | {"tenant": None} == {
        "state": ["dead"], "name": "jobs.a", "queue": None, "tenant": None, "created_after": None,
        "created_before": None, "error": error,
    }  # fmt: skip
    bulk = bulk_of(api.env.driver)
    assert bulk is not None
    await bulk.step()
    states = [(await api.env.describe(job_id)).state for job_id in (*alike, *other)]
    assert states == [State.READY, State.READY, State.DEAD]


async def test_another_error_is_another_group(each_api: Api) -> None:
    api = each_api
    await dead(api, 1, name="jobs.a")

    async def fits(**group: object) -> int:
        asked = {"name": "jobs.a", "reason": "terminal", "error_type": ERROR.type, "error_code": ERROR.code} | group
        answer = await api.client.post(RETRY, json={"group": asked, "dry_run": True})
        assert answer.status_code == 200, answer.text
        return int(answer.json()["matched"])

    assert await fits() == 1
    assert await fits(name="jobs.b") == 0
    assert await fits(reason="expired") == 0
    assert await fits(error_type="KeyError") == 0
    assert await fits(error_type=None) == 0
    assert await fits(error_code=None) == 0


async def test_an_error_in_the_filter_of_an_operation_fits_dead_jobs_alone(api: Api) -> None:
    error = {"reason": "terminal"}
    selector = {"filter": {"state": ["cancelled"], "error": error}}
    refused = await api.client.post("/v1/bulk-operations", json={"action": "retry", "selector": selector})
    assert code_of(refused) == (422, "REQUEST_INVALID")
    assert refused.json()["errors"][0]["pointer"] == "/selector/filter/error"
