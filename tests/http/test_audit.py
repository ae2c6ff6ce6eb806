from __future__ import annotations

import json
from typing import Any

import pytest

from app.domain.audit import Acting, AuditQuery
from app.domain.outcome import Held
from app.domain.queue import QueueChange
from app.http.answers_audit import AuditList
from app.http.app import openapi_document
from tests.conformance.gated import admit, declare, limited
from tests.http.api import Api, code_of, dead

# What is no operator's action: producers' requests, which name who made them on what they make; and leaving, which
# needs no store.
_NOT_AUDITED = {"enqueueJob", "enqueueBatch", "emitEvent", "startDrain"}


async def _rows(api: Api, **params: Any) -> list[dict[str, Any]]:
    response = await api.client.get("/v1/audit", params=params)
    assert response.status_code == 200, response.text
    AuditList.model_validate(response.json())
    rows: list[dict[str, Any]] = response.json()["items"]
    return rows


async def _actions(api: Api, job: dict[str, Any]) -> list[tuple[str, str, str | None]]:
    return [(row["action"], row["outcome"], row["reason"]) for row in await _rows(api, target=job["id"])]


async def test_every_action_on_a_job_leaves_who_did_it_and_why(each_api: Api) -> None:
    api = each_api
    job = await api.post(delay_ms=60_000)
    path, why = f"/v1/jobs/{job['id']}", {"reason": "because"}
    await api.client.post(f"{path}/run-now", json=why)
    await api.client.patch(path, json={"priority": 1, **why}, headers={"If-Match": "*"})
    await api.client.post(f"{path}/cancel", json=why)
    await api.client.post(f"{path}/cancel")
    await api.client.post(f"{path}/retry", json=why)
    await api.finish(Held(reason="does not fit"))
    await api.client.post(f"{path}/release", json=why)
    await api.finish(dead())
    new = await api.client.post(f"{path}/duplicate", json=why)
    fork = await api.client.post(f"{path}/fork", json=why)
    await api.client.delete(path, params=why)
    assert await _actions(api, job) == [
        ("job.delete", "done", "because"),
        ("job.fork", "done", "because"),
        ("job.duplicate", "done", "because"),
        ("job.release", "done", "because"),
        ("job.retry", "done", "because"),
        ("job.cancel", "already_finished", None),
        ("job.cancel", "cancelled_before_start", "because"),
        ("job.update", "done", "because"),
        ("job.run_now", "made_ready", "because"),
    ]
    rows = await _rows(api, target=job["id"])
    assert {(row["actor"], row["tenant"], row["target"]["kind"]) for row in rows} == {("dev", "default", "job")}
    details = {row["action"]: row["details"] for row in rows}
    assert details["job.update"] == {"before": {"priority": 5}, "after": {"priority": 1}}
    assert details["job.duplicate"] == {"new_id": new.json()["id"], "is_edited": False}
    assert details["job.fork"] == {"new_id": fork.json()["id"]}
    assert details["job.retry"] == {"mode": "resume"}
    assert details["job.delete"]["state"] == "dead"


async def test_what_is_refused_leaves_none(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    path = f"/v1/jobs/{job['id']}"
    for answer in (
        await api.client.post(f"{path}/retry"),
        await api.client.post(f"{path}/release"),
        await api.client.delete(path),
        await api.client.patch(path, json={"priority": 1}, headers={"If-Match": '"another"'}),
        await api.client.patch(path, json={"priority": 1}),
        await api.client.post(f"{path}/fork", json={"from_step": "no"}),
    ):
        assert answer.status_code >= 400
    assert await _rows(api) == []


async def test_queues_workers_and_the_outbox_are_acted_on_by_somebody(each_api: Api) -> None:
    api = each_api
    worker = await api.env.register()
    await api.client.post("/v1/queues/mail/pause", json={"reason": "it moves"})
    await api.client.post("/v1/queues/mail/resume", json={"reason": "it has moved"})
    await api.client.post(f"/v1/workers/{worker}/drain", json={"reason": "its node goes"})
    assert await api.services.outbox.replay(None, by="dev", reason="mended") == 0
    rows = await _rows(api)
    assert [(row["action"], row["target"]["kind"], row["target"]["id"], row["outcome"]) for row in rows] == [
        ("outbox.replay", "outbox", "all", "unchanged"),
        ("worker.drain", "worker", str(worker), "done"),
        ("queue.resume", "queue", "mail", "done"),
        ("queue.pause", "queue", "mail", "done"),
    ]
    assert [row["reason"] for row in rows] == ["mended", "its node goes", "it has moved", "it moves"]


async def test_limits_and_slots_are_acted_on_by_somebody(each_api: Api) -> None:
    api = each_api
    await declare(api.env, 4)
    (job_id,) = await limited(api.env)
    await admit(api.env, await api.env.register())
    await api.client.post(f"/v1/jobs/{job_id}/cancel")
    await api.client.post(f"/v1/jobs/{job_id}/release-slots", json={"reason": "it hangs"})
    for _ in range(2):
        await api.client.post("/v1/limits/demo.job/limit", json={"n": 2, "reason": "less"})
    await api.client.post("/v1/limits/demo.job/other", json={"n": 2})
    rows = [row for row in await _rows(api) if row["action"] != "job.cancel"]
    assert [(row["action"], row["target"]["id"], row["outcome"], row["reason"], row["details"]) for row in rows] == [
        ("limit.set", "demo.job/limit", "unchanged", "less", {"before": 2, "after": 2}),
        ("limit.set", "demo.job/limit", "done", "less", {"before": None, "after": 2}),
        ("job.release_slots", str(job_id), "done", "it hangs", {"slots": 1}),
    ]
    assert {(row["actor"], row["tenant"]) for row in rows} == {("dev", None), ("dev", "default")}


async def test_pages_follow_each_other_under_the_same_filters(each_api: Api) -> None:
    api = each_api
    jobs = [await api.post() for _ in range(3)]
    for job in jobs:
        await api.client.post(f"/v1/jobs/{job['id']}/cancel")
    first = await api.client.get("/v1/audit", params={"limit": 2, "action": "job.cancel"})
    cursor = first.json()["next_cursor"]
    assert f"cursor={cursor}" in first.headers["Link"]
    second = await api.client.get("/v1/audit", params={"limit": 2, "action": "job.cancel", "cursor": cursor})
    found = [row["target"]["id"] for page in (first, second) for row in page.json()["items"]]
    assert found == [job["id"] for job in reversed(jobs)]
    assert second.json()["next_cursor"] is None
    other = await api.client.get("/v1/audit", params={"limit": 2, "actor": "dev", "cursor": cursor})
    assert code_of(other) == (400, "CURSOR_INVALID")


async def test_a_key_sees_its_tenants_rows_alone(locked: Api) -> None:
    theirs = await locked.env.enqueue(tenant="other")
    await locked.services.jobs.cancel(theirs, reason="stop", tenant=None, by=Acting(actor="somebody"))
    own = await locked.post()
    await locked.client.post(f"/v1/jobs/{own['id']}/cancel")
    await locked.client.post("/v1/queues/mail/pause")
    assert [row["action"] for row in await _rows(locked)] == ["queue.pause", "job.cancel"]
    assert {row["actor"] for row in await _rows(locked)} == {"bootstrap"}
    assert await _rows(locked, target=str(theirs)) == []
    assert code_of(await locked.client.get("/v1/audit", params={"tenant": "other"})) == (403, "FORBIDDEN")


async def test_nothing_in_a_row_names_another_tenant(locked: Api) -> None:
    """What is done to a queue is told to all of its tenants, and to none what another one's weight is."""
    change = QueueChange(concurrency=4, weights={"default": 2, "globex": 3, "initech": None})
    await locked.services.queues.limit("mail", change, by="ops")
    await locked.services.queues.limit("mail", QueueChange(weights={"globex": 1}), by="ops")
    await locked.client.get("/v1/jobs/globex-7", headers={"Authorization": "Bearer no"})
    await locked.guard.write()
    answer = await locked.client.get("/v1/audit")
    assert [row["details"] for row in answer.json()["items"]] == [
        {"weights": {}},
        {"concurrency": 4, "weights": {"default": 2}},
    ]
    assert "globex" not in answer.text
    assert "initech" not in answer.text
    everything = (await locked.services.audit.list(AuditQuery(), seen_by=None)).items
    assert [row.action for row in everything] == ["auth.refused", "queue.update", "queue.update"]
    assert json.loads(everything[2].details)["weights"] == {"default": 2, "globex": 3, "initech": "none"}


@pytest.mark.parametrize(
    "params",
    [{"action": "job.explode"}, {"target_kind": "moon"}, {"limit": 0}, {"created_after": "today"}, {"actor": "a\nb"}],
)
async def test_a_filter_that_is_none_is_refused(api: Api, params: dict[str, Any]) -> None:
    assert code_of(await api.client.get("/v1/audit", params=params)) == (422, "REQUEST_INVALID")


def test_every_operation_that_changes_something_is_known_to_leave_a_row_or_not_to() -> None:
    """A new one has to be thought of here: it leaves a row, or somebody says why not."""
    paths = json.loads(openapi_document())["paths"]
    changing = {
        operation["operationId"]
        for path in paths.values()
        for method, operation in path.items()
        if method not in {"get", "head"}
    }
    assert changing - _NOT_AUDITED == {
        *("createApiKey", "rotateApiKey", "revokeApiKey"),
        *("cancelJob", "retryJob", "forkJob", "releaseJob", "runJobNow", "updateJob", "deleteJob", "duplicateJob"),
        *("revealJob", "createBulkOperation", "abortBulkOperation", "purgeDeadLetters", "retryDeadLetters"),
        "updateQueue",
        *("pauseQueue", "resumeQueue", "drainWorker", "pauseSchedule", "resumeSchedule", "triggerSchedule"),
        *("releaseSlots", "setLimit", "createApiKey", "rotateApiKey", "revokeApiKey"),
        *("createWebhook", "updateWebhook", "rotateWebhook", "deleteWebhook", "resendDelivery"),
    }
