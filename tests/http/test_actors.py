"""Whose names a tenant is told: its own keys', and everybody else is the operator of the service."""

from __future__ import annotations

from typing import Any

import pytest

from app.control.guard import BOOTSTRAP_IDENTITY
from app.control.keys import KeyOrder
from app.domain.api_key import Identity, Scope
from app.domain.audit import Acting, AuditQuery
from tests.http.api import Api


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
