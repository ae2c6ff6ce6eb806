"""The page of keys: a secret is seen once, what cannot be made comes back, and each change is in the audit."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest

from app.domain.api_key import Identity, Scope
from tests.dashboard.test_door import sign_in, status
from tests.dashboard.visitor import KEY, Visitor
from tests.http.test_actors import a_key
from tests.http.test_schedules import NIGHTLY, declare

_SECRET = re.compile(r"ol_[0-9a-f]{16}_[0-9a-f]{64}")
_TOKEN = re.compile(r'name="token" value="([0-9a-f]+)"')


async def made(visitor: Visitor, **fields: object) -> tuple[str, str]:
    """Make a key on the page: its id, and the token that was shown."""
    response = await visitor.send("/keys", {"label": "shop", "scope": ["jobs:read"], **fields})
    assert response.status_code == 201, response.text
    assert response.headers["cache-control"] == "no-store"
    (token,) = set(_SECRET.findall(response.text))
    return token.split("_")[1], token


async def test_a_secret_is_shown_once_and_opens(visitor: Visitor) -> None:
    key_id, token = await made(visitor, scope=["jobs:read", "operate"], days="30", queues="mail, sms")
    for path in ("/keys", f"/keys/{key_id}", "/audit"):
        page = await visitor.see(path)
        assert token.rpartition("_")[2] not in page
        assert token[-4:] in page or path == "/audit"
    (key,) = (await visitor.api.client.get("/v1/api-keys")).json()["items"]
    assert (key["scopes"], key["queues"], key["tenant"]) == (["jobs:read", "operate"], ["mail", "sms"], None)
    ends, began = datetime.fromisoformat(key["expires_at"]), datetime.fromisoformat(key["created_at"])
    assert abs(ends - began - timedelta(days=30)) < timedelta(minutes=1)


async def test_a_key_gets_a_new_secret_and_ends_on_its_page(stranger: Visitor) -> None:
    admin = await sign_in(stranger, KEY)
    found = _TOKEN.search((await admin.get("/ui/keys")).text)
    assert found is not None
    form = {"token": found[1], "label": "caller", "scope": "jobs:read"}
    first = _SECRET.findall((await admin.post("/ui/keys", data=form)).text)[0]
    key_id = first.split("_")[1]
    caller = await sign_in(stranger, first)
    assert await status(caller) == 200
    assert f'name="replaces" value="{first[-4:]}"' in (await admin.get(f"/ui/keys/{key_id}")).text
    wanted = {"token": found[1], "hours": "0", "reason": "leaked", "replaces": first[-4:]}
    turned = await admin.post(f"/ui/keys/{key_id}/rotate", data=wanted)
    second = _SECRET.findall(turned.text)[0]
    twice = await admin.post(f"/ui/keys/{key_id}/rotate", data=wanted)
    assert (twice.status_code, "PRECONDITION_FAILED" in twice.text) == (412, True), "the secret just shown stays"
    assert second != first
    assert (await status(caller), await status(await sign_in(stranger, second))) == (303, 200)
    over = await admin.post(f"/ui/keys/{key_id}/revoke", data={"token": found[1], "reason": "they left"})
    assert over.status_code == 303
    assert "revoked" in (await admin.get(f"/ui/keys/{key_id}")).text
    again = await sign_in(stranger, second)
    assert await status(again) == 303
    rows = (await stranger.api.client.get(f"/v1/audit?target={key_id}&target_kind=key")).json()["items"]
    done = [(row["action"], row["reason"]) for row in rows if row["action"].startswith("key.")]
    assert done == [("key.revoke", "they left"), ("key.rotate", "leaked"), ("key.create", None)]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"label": ""}, "REQUEST_INVALID"),
        ({"scope": []}, "REQUEST_INVALID"),
        ({"scope": ["root"]}, "REQUEST_INVALID"),
        ({"days": "0"}, "REQUEST_INVALID"),
        ({"days": "soon"}, "REQUEST_INVALID"),
        ({"queues": "NOT A NAME"}, "REQUEST_INVALID"),
    ],
)
async def test_a_key_that_cannot_be_comes_back_with_its_form(
    visitor: Visitor, fields: dict[str, object], code: str
) -> None:
    response = await visitor.send("/keys", {"label": "kept", "scope": ["jobs:read"], "reason": "mine", **fields})
    assert response.status_code == 422, response.text
    assert f"<code>{code}</code>" in response.text
    assert 'value="mine"' in response.text
    assert (await visitor.api.client.get("/v1/api-keys")).json()["items"] == []


async def test_no_key_is_made_beyond_its_maker(visitor: Visitor) -> None:
    limited = Identity(name="limited", tenant="mine", scopes=frozenset({Scope.JOBS_READ, Scope.ADMIN}))
    token = await visitor.token()
    visitor.api.act_as(limited)
    page = await visitor.see("/keys")
    assert 'value="operate"' not in page
    assert 'name="tenant"' not in page
    for fields in ({"scope": ["operate"]}, {"scope": ["jobs:read"], "tenant": "other"}):
        response = await visitor.browser.post("/ui/keys", data={"token": token, "label": "x", **fields})
        assert response.status_code == 403
        assert "FORBIDDEN" in response.text


async def test_another_tenants_key_reads_as_an_absent_one(visitor: Visitor) -> None:
    key_id, _ = await made(visitor, tenant="theirs")
    visitor.api.act_as(Identity(name="mine", tenant="mine", scopes=frozenset(Scope)))
    assert key_id not in await visitor.see("/keys")
    assert (await visitor.get(f"/keys/{key_id}")).status_code == 404
    for verb in ("rotate", "revoke"):
        assert (await visitor.send(f"/keys/{key_id}/{verb}")).status_code == 404


async def test_the_audit_tells_a_tenant_the_names_of_its_own_keys(visitor: Visitor) -> None:
    (mine, _), (theirs, _) = [await made(visitor, label=label, tenant=label) for label in ("mine", "theirs")]
    for number, label, key_id in ((1, "mine", mine), (2, "theirs", theirs)):
        await visitor.api.services.queues.pause(f"q{number}", by=f"{label} ({key_id})", reason=None)
    visitor.api.act_as(Identity(name=f"mine ({mine})", tenant="mine", scopes=frozenset(Scope)))
    page = await visitor.see("/audit?action=queue.pause")
    assert (f"mine ({mine})" in page, theirs in page, "operator" in page) == (True, False, True)
    found = await visitor.see("/audit?actor=operator&action=queue.pause")
    assert ("q1" in found, "q2" in found) == (False, True)
    assert "Nobody has done anything that matches" in await visitor.see(f"/audit?actor=theirs ({theirs})")


async def test_pages_tell_a_tenant_no_other_ones_name(visitor: Visitor) -> None:
    api = visitor.api
    other = await a_key(api, "spy", "theirs")
    await declare(api)
    job_id = await api.env.enqueue(tenant="mine")
    await api.services.queues.pause("default", by=other.name, reason=None)
    await api.services.schedules.pause(NIGHTLY.name, by=other.name, reason=None)
    places = ("/queues", "/queues/default", "/", f"/jobs/{job_id}", f"/schedules/{NIGHTLY.name}")
    for tenant, is_told in ((None, True), ("mine", False)):
        api.act_as(Identity(name="who looks", tenant=tenant, scopes=frozenset(Scope)))
        assert [other.key_id in await visitor.see(path) for path in places] == [is_told] * len(places)


async def test_who_makes_no_keys_is_not_led_to_them(visitor: Visitor) -> None:
    assert 'href="/ui/keys"' in await visitor.see("/")
    visitor.api.act_as(Identity(name="reader", tenant=None, scopes=frozenset({Scope.JOBS_READ})))
    assert 'href="/ui/keys"' not in await visitor.see("/")
