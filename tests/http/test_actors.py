"""Whose names a tenant is told: its own keys', and everybody else is the operator of the service."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from app.control.actors import FIELDS
from app.control.guard import BOOTSTRAP_IDENTITY
from app.control.keys import KeyOrder
from app.domain.api_key import Identity, Scope
from app.domain.audit import Acting, AuditQuery
from app.domain.drain import ASKED_FOR_BY, DrainReport, DrainShown
from app.http.app import openapi_document
from tests.conformance.gated import declare
from tests.http.api import Api
from tests.http.test_schedules import NIGHTLY
from tests.http.test_schedules import declare as declare_schedule


async def a_key(api: Api, label: str, tenant: str | None) -> Identity:
    order = KeyOrder(label=label, tenant=tenant, scopes=frozenset(Scope))
    return (await api.services.keys.create(order, by=Acting(actor="tests"))).key.identity


async def _pauses(api: Api, **params: Any) -> list[tuple[str, str]]:
    """Give who acted on which queue, as the caller is told."""
    answer = await api.client.get("/v1/audit", params={"target_kind": "queue", **params})
    assert answer.status_code == 200, answer.text
    return [(row["actor"], row["target"]["id"]) for row in answer.json()["items"]]


async def test_a_tenant_is_told_the_names_of_its_own_keys(each_api: Api) -> None:
    api = each_api
    own, over, other = [await a_key(api, *of) for of in (("shop", "acme"), ("left", "acme"), ("spy", "globex"))]
    everybodys = await a_key(api, "ops", None)
    await api.services.keys.revoke(over.key_id, tenant=None, by=Acting(actor="tests"))
    # A label is free: only the id at its end says whose key it is.
    forged = await a_key(api, f"shop ({own.key_id})", "globex")
    who = [own.name, over.name, other.name, everybodys.name, forged.name, "bootstrap", "cli:root", f"x ({own.key_id})"]
    for number, name in enumerate(who):
        await api.services.queues.pause(f"q{number}", by=name, reason=None)
    told = list(zip([own.name, over.name, *["operator"] * 6], [f"q{number}" for number in range(8)], strict=True))

    api.act_as(own)
    assert await _pauses(api) == told[::-1]
    assert await _pauses(api, actor=own.name) == [(own.name, "q0")]
    assert await _pauses(api, actor="operator") == told[:1:-1]
    for name in who[2:]:
        assert await _pauses(api, actor=name) == [], name
    api.act_as(everybodys)
    assert await _pauses(api, tenant="acme") == [(name, f"q{number}") for number, name in enumerate(who)][::-1]


async def test_who_acted_on_a_tenants_own_job_is_told_alike(each_api: Api) -> None:
    job_id = await each_api.env.enqueue(tenant="acme")
    everybodys, own = await a_key(each_api, "ops", None), await a_key(each_api, "shop", "acme")
    for by in (everybodys, own):
        await each_api.services.jobs.cancel(job_id, reason="stop", tenant=None, by=Acting(actor=by.name))
    each_api.act_as(own)
    rows = (await each_api.client.get("/v1/audit", params={"target": str(job_id)})).json()["items"]
    assert [row["actor"] for row in rows] == [own.name, "operator"]


@pytest.mark.parametrize(("tenant", "told"), [("default", "bootstrap"), ("acme", "operator"), (None, "bootstrap")])
async def test_the_key_of_the_file_is_one_of_the_default_tenants(api: Api, tenant: str | None, told: str) -> None:
    await api.services.queues.pause("mail", by=BOOTSTRAP_IDENTITY.name, reason=None)
    page = await api.services.audit.list(AuditQuery(), seen_by=tenant)
    assert [row.actor for row in page.items] == [told]


# What is of one tenant alone: its jobs, events, keys, webhooks and operations.
_OWN = {"enqueued_by", "emitted_by", "created_by", "revoked_by", "ended_by"}


def test_every_field_that_names_somebody_is_told_to_tenants_or_is_of_their_own() -> None:
    assert set(re.findall(r'"([a-z_]+_by)"', openapi_document())) == _OWN | set(FIELDS)


async def _acted_on(api: Api, by: Acting) -> dict[str, str]:
    """Let somebody act on one of everything that belongs to nobody alone; gives where that is shown."""
    await declare_schedule(api)
    await declare(api.env)
    worker = await api.env.register()
    job_id = await api.env.enqueue(tenant="acme")
    services = api.services
    await services.queues.pause("default", by=by.actor, reason=None)
    await services.schedules.pause(NIGHTLY.name, by=by.actor, reason=None)
    await services.schedules.fire(NIGHTLY.name, by=by, tenant=None)
    await services.limits.set("demo.job", "limit", 4, by=by)
    await services.fleet.drain(str(worker), by=by.actor, reason=None)
    reason, left = f"{ASKED_FOR_BY}{by.actor}", await api.env.register()
    await api.env.driver.show_worker(worker, wakeup=None, drain=DrainShown(phase="accept", reason=reason))
    async with api.env.driver.open_heartbeat() as heartbeat:
        await heartbeat.report_drain(DrainReport(worker_id=left, reason=reason, lasted=timedelta(seconds=1), runs=()))
    return {
        "/v1/queues": "paused_by",
        "/v1/queues/default": "paused_by",
        f"/v1/jobs/{job_id}/explain": "by",
        "/v1/schedules": "paused_by",
        f"/v1/schedules/{NIGHTLY.name}": "fired_by",
        "/v1/limits": "set_by",
        "/v1/workers": "drain_asked_by",
        f"/v1/workers/{worker}": "drain_asked_by",
        "/v1/drain?scope=fleet": "drain_reason",
        "/v1/deploys": "reason",
    }


async def test_who_acted_on_what_is_nobodys_alone_is_told_wherever_it_is_shown(each_api: Api) -> None:
    api = each_api
    own, other, everybodys = [await a_key(api, *of) for of in (("shop", "acme"), ("spy", "globex"), ("ops", None))]
    places = await _acted_on(api, Acting(actor=other.name))
    for seen_by, told in ((own, "operator"), (other, other.name), (everybodys, other.name)):
        api.act_as(seen_by)
        for path, field in places.items():
            answer = await api.client.get(path)
            if seen_by is other and field == "by":
                continue  # another tenant's job
            assert answer.status_code == 200, answer.text
            expected = f"{ASKED_FOR_BY}{told}" if field.endswith("reason") else told
            assert set(re.findall(rf'"{field}":"([^"]+)"', answer.text)) == {expected}, path
            assert (other.key_id in answer.text) is (told != "operator"), path


async def test_what_a_queue_is_compared_by_is_the_same_for_everybody(each_api: Api) -> None:
    own, other = await a_key(each_api, "shop", "acme"), await a_key(each_api, "spy", "globex")
    await each_api.services.queues.pause("mail", by=other.name, reason=None)
    each_api.act_as(own)
    tag = (await each_api.client.get("/v1/queues/mail")).headers["etag"]
    changed = await each_api.client.patch("/v1/queues/mail", json={"concurrency": 4}, headers={"If-Match": tag})
    assert (changed.status_code, changed.json()["paused_by"]) == (200, "operator")
