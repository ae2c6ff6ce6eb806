"""Webhooks over HTTP: made, changed, rotated and deleted by who may, and named by jobs of their tenant alone."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.audit import Acting
from app.domain.outcome import Completed
from app.http.answers_webhooks import DeliveryList, IssuedWebhook, Webhook, WebhookList
from tests.http.api import MASTERS, Api, code_of, job_type
from tests.support.drivers import NAME

URL = "https://hooks.example.com/jobs"


async def made(api: Api, **fields: Any) -> dict[str, Any]:
    response = await api.client.post("/v1/webhooks", json={"label": "shop", "url": URL, **fields})
    assert response.status_code == 201, response.text
    IssuedWebhook.model_validate(response.json())
    webhook: dict[str, Any] = response.json()
    assert response.headers["Location"] == f"/v1/webhooks/{webhook['id']}"
    return webhook


async def told(api: Api, webhook: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Run a job whose end is told, and give its delivery."""
    await api.post(callback={"secret_id": webhook["id"], **fields})
    await api.finish(Completed())
    response = await api.client.get(f"/v1/webhooks/{webhook['id']}/deliveries")
    DeliveryList.model_validate(response.json())
    found: dict[str, Any] = response.json()["items"][0]
    return found


async def test_a_secret_is_answered_once(each_api: Api) -> None:
    api = each_api
    webhook = await made(api)
    path = f"/v1/webhooks/{webhook['id']}"
    secret = webhook.pop("secret")
    assert secret.startswith("whsec_")
    seen = await api.client.get(path)
    assert (seen.json(), seen.headers["ETag"]) == (webhook, '"1"')
    listed = await api.client.get("/v1/webhooks")
    WebhookList.model_validate(listed.json())
    assert listed.json()["items"] == [webhook]
    turned = await api.client.post(f"{path}/rotate", json={"overlap_ms": 3_600_000, "reason": "it leaked"})
    assert turned.json()["secret"] not in {secret, None}
    assert (turned.json()["secret_number"], turned.json()["previous_until"] is not None) == (2, True)
    everything = seen.text + listed.text + (await api.client.get("/v1/audit")).text + repr(MASTERS)
    assert secret not in everything
    assert turned.json()["secret"] not in everything
    bare = await api.client.post(f"{path}/rotate", headers={"Prefer": "return=minimal"})
    assert bare.json()["secret"] not in {secret, turned.json()["secret"], None}, (
        "whatever is preferred: it is shown once"
    )
    keyed = await api.client.post(f"{path}/rotate", headers={"Idempotency-Key": '"1"'})
    assert code_of(keyed) == (400, "REQUEST_INVALID")


async def test_a_rotation_that_says_what_it_replaces_ends_nothing_when_repeated(each_api: Api) -> None:
    path = f"/v1/webhooks/{(await made(each_api))['id']}/rotate"
    wanted = {"overlap_ms": 3_600_000, "replaces": 1}
    second = await each_api.client.post(path, json=wanted)
    assert (second.status_code, second.json()["secret_number"]) == (200, 2)
    repeated = await each_api.client.post(path, json=wanted)
    assert code_of(repeated) == (412, "PRECONDITION_FAILED")
    assert "number 2" in repeated.json()["detail"]
    after = (await each_api.client.get(path.removesuffix("/rotate"))).json()
    assert (after["secret_number"], after["previous_until"]) == (2, second.json()["previous_until"])
    for none in (0, "1", 2**31):
        assert code_of(await each_api.client.post(path, json={"replaces": none})) == (422, "REQUEST_INVALID")


async def test_a_webhook_is_changed_and_deleted_as_it_was_seen(each_api: Api) -> None:
    api = each_api
    webhook = await made(api)
    path = f"/v1/webhooks/{webhook['id']}"
    off = await api.client.patch(path, json={"is_disabled": True, "reason": "it moves"}, headers={"If-Match": '"1"'})
    Webhook.model_validate(off.json())
    assert (off.json()["is_disabled"], off.json()["disabled_reason"], off.headers["ETag"]) == (True, "it moves", '"2"')
    stale = await api.client.patch(path, json={"label": "x"}, headers={"If-Match": '"1"'})
    assert code_of(stale) == (412, "PRECONDITION_FAILED")
    for other in ('"one"', 'W/"2"', "", '"1", "3"', '"99999999999999999999"'):
        refused = await api.client.patch(path, json={"label": "x"}, headers={"If-Match": other})
        assert code_of(refused) == (412, "PRECONDITION_FAILED"), other
    odd = await api.client.patch(path, json={"label": "x"}, headers={"If-Match": "2"})
    assert code_of(odd) == (422, "REQUEST_INVALID")
    change, either = {"is_disabled": False, "label": "new", "url": f"{URL}/2"}, {"If-Match": '"7", , "2"'}
    on = await api.client.patch(path, json=change, headers=either)
    assert (on.json()["is_disabled"], on.json()["label"], on.json()["url"]) == (False, "new", f"{URL}/2")
    assert (await api.client.delete(path, params={"reason": "unused"})).status_code == 204
    assert code_of(await api.client.get(path)) == (404, "NOT_FOUND")
    assert code_of(await api.client.delete(path)) == (404, "NOT_FOUND")
    rows = (await api.client.get("/v1/audit", params={"target_kind": "webhook"})).json()["items"]
    assert [(row["action"], row["reason"], row["tenant"]) for row in rows] == [
        ("webhook.delete", "unused", "default"),
        ("webhook.update", None, "default"),
        ("webhook.update", "it moves", "default"),
        ("webhook.create", None, "default"),
    ]


async def test_changing_it_twice_with_one_key_changes_it_once(api: Api) -> None:
    webhook = await made(api)
    sent: dict[str, Any] = {"json": {"is_disabled": True}, "headers": {"Idempotency-Key": '"once"'}}
    first = await api.client.patch(f"/v1/webhooks/{webhook['id']}", **sent)
    again = await api.client.patch(f"/v1/webhooks/{webhook['id']}", **sent)
    assert (first.status_code, again.status_code, again.json()) == (200, 200, first.json())
    assert again.headers["Idempotency-Replayed"] == "true"


@pytest.mark.parametrize(
    "url",
    [
        *("http://hooks.example.com/", "ftp://hooks.example.com/", "https://127.0.0.1/", "https://[::1]/", "https://"),
        *("https://169.254.169.254/latest", "https://[::ffff:169.254.169.254]/", "https://10.1.2.3/", "https://a b/"),
        *("https://user:word@hooks.example.com/", "https://hooks.example.com/#x", "https://2130706433/", "hooks"),
        *("https://0x7f000001/", "https://[fe80::1]/", "https://[fd00:ec2::254]/", "https://100.64.0.1/"),
        *("https://hooks.example.com:99999/", "javascript:alert(1)", "https://hooks.exämple.com/", "https://127.1/"),
        *("https://[64:ff9b::a9fe:a9fe]/", "https://[2002:a9fe:a9fe::]/", "https://0.0.0.0/", "//hooks.example.com/"),
    ],
)
async def test_an_address_that_may_not_be_called_is_refused(api: Api, url: str) -> None:
    response = await api.client.post("/v1/webhooks", json={"label": "shop", "url": url})
    assert code_of(response) == (422, "CALLBACK_REFUSED"), response.text
    assert response.json()["fix"]
    webhook = await made(api)
    changed = await api.client.patch(f"/v1/webhooks/{webhook['id']}", json={"url": url})
    assert code_of(changed) == (422, "CALLBACK_REFUSED")


@pytest.mark.parametrize(
    "body",
    [
        *({}, {"label": "x"}, {"url": URL}, {"label": "", "url": URL}, {"label": "a\nb", "url": URL}),
        *({"label": "x", "url": 7}, {"label": "x", "url": URL, "secret": "whsec_x"}, {"label": "x" * 101, "url": URL}),
    ],
)
async def test_a_body_that_does_not_fit_is_refused(api: Api, body: dict[str, Any]) -> None:
    assert code_of(await api.client.post("/v1/webhooks", json=body)) == (422, "REQUEST_INVALID")


async def test_a_delivery_is_seen_and_sent_again(each_api: Api) -> None:
    api = each_api
    webhook = await made(api)
    delivery = await told(api, webhook, url=f"{URL}/7", events=["done"])
    assert (delivery["state"], delivery["url"], delivery["job_state"]) == ("pending", f"{URL}/7", "done")
    assert (delivery["job_name"], delivery["attempts"], delivery["tries"]) == (NAME, 0, [])
    path = f"/v1/webhooks/{webhook['id']}/deliveries"
    assert code_of(await api.client.post(f"{path}/{delivery['id']}/resend")) == (409, "JOB_STATE_CONFLICT")
    assert code_of(await api.client.post(f"{path}/{webhook['id']}/resend")) == (404, "NOT_FOUND")
    assert code_of(await api.client.get(path, params={"cursor": "no"})) == (400, "CURSOR_INVALID")
    assert code_of(await api.client.get(path, params={"limit": 0})) == (422, "REQUEST_INVALID")
    await told(api, webhook)
    page = await api.client.get(path, params={"limit": 1})
    first, linked = page.json(), page.links["next"]["url"]
    # Put into an address as it was answered, by hand or from `Link`.
    for address in (f"{path}?limit=1&cursor={first['next_cursor']}", linked):
        second = (await api.client.get(address)).json()
        assert second["next_cursor"] is None
        assert {each["items"][0]["id"] for each in (first, second)} > {delivery["id"]}
    other = await made(api)
    elsewhere = await api.client.get(f"/v1/webhooks/{other['id']}/deliveries?cursor={first['next_cursor']}")
    assert code_of(elsewhere) == (400, "CURSOR_INVALID"), "a cursor is of one list"
    late = f"9999-12-31T23:59:59-23:59~{delivery['id']}"
    assert code_of(await api.client.get(path, params={"cursor": late})) == (400, "CURSOR_INVALID")


@pytest.mark.parametrize(
    ("callback", "code"),
    [
        ({}, "REQUEST_INVALID"),
        ({"secret_id": "mine"}, "REQUEST_INVALID"),
        ({"secret_id": f"wh_{'0' * 16}", "events": []}, "REQUEST_INVALID"),
        ({"secret_id": f"wh_{'0' * 16}", "events": ["ready"]}, "REQUEST_INVALID"),
        ({"secret_id": f"wh_{'0' * 16}"}, "CALLBACK_REFUSED"),
        ({"secret_id": "own", "url": "https://hooks.example.org/jobs"}, "CALLBACK_REFUSED"),
        ({"secret_id": "own", "url": "http://hooks.example.com/jobs"}, "CALLBACK_REFUSED"),
        ({"secret_id": "own", "url": "https://hooks.example.com:8443/jobs"}, "CALLBACK_REFUSED"),
        ({"secret_id": "own", "url": "https://hooks.example.com@10.0.0.1/jobs"}, "CALLBACK_REFUSED"),
    ],
)
async def test_a_job_names_a_webhook_of_its_tenant_and_its_origin(api: Api, callback: Any, code: str) -> None:
    webhook = await made(api)
    if callback.get("secret_id") == "own":
        callback = callback | {"secret_id": webhook["id"]}
    job = {"name": NAME, "payload": {}, "callback": callback}
    response = await api.client.post("/v1/jobs", json=job)
    assert code_of(response) == (422, code), response.text
    many = await api.client.post("/v1/job-batches", json={"jobs": [{"name": NAME, "payload": {}}, job]})
    assert code_of(many) == (422, code), many.text
    assert (await api.client.get("/v1/jobs")).json()["items"] == []


async def test_another_tenants_webhook_is_no_webhook(locked: Api) -> None:
    other = await made(locked)
    await locked.env.driver.publish_job_types([job_type("shop.job", tenant={"template": "{shop}"})])
    control = locked.services.webhooks
    theirs = await control.create(label="x", url=URL, tenant="acme", by=Acting(actor="ada"))
    refused = []
    for webhook_id in (theirs.webhook.id, f"wh_{'0' * 16}"):
        callback = {"secret_id": webhook_id}
        response = await locked.client.post("/v1/jobs", json={"name": NAME, "payload": {}, "callback": callback})
        assert code_of(response) == (422, "CALLBACK_REFUSED")
        refused.append(response.json()["detail"].replace(webhook_id, ""))
    assert refused[0] == refused[1]
    forbidden = await locked.client.post("/v1/webhooks", json={"label": "x", "url": URL, "tenant": "acme"})
    assert code_of(forbidden) == (403, "FORBIDDEN")
    assert other["tenant"] == "default"
