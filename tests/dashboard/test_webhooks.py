"""The pages of webhooks, as a browser without scripts sees and uses them."""

from __future__ import annotations

import re
from uuid import UUID

from app.domain.audit import Acting
from app.domain.state import State
from app.domain.webhook import Callback, DeliveryState, Try, WebhookId
from app.drivers.webhooks import webhooks_of
from tests.dashboard.test_door import sign_in
from tests.dashboard.visitor import KEY, Visitor
from tests.support.drivers import new_job

ODD = '"><svg onload=alert(1)>'
URL = "https://hooks.example.com/jobs"
BY = Acting(actor="ada")


async def made(visitor: Visitor, label: str = "shop") -> str:
    """Make a webhook on its page, and give its id."""
    page = (await visitor.send("/webhooks", {"label": label, "url": URL, "reason": "they ask for it"})).text
    assert re.search(r"whsec_[A-Za-z0-9+/]{43}=", page), page
    found = re.search(r"wh_[0-9a-f]{16}", page)
    assert found is not None
    return found[0]


async def failed(visitor: Visitor, webhook_id: str) -> None:
    """End a job that is told of, and let the telling fail."""
    store = webhooks_of(visitor.env.driver)
    assert store is not None
    job = new_job(callback=Callback(webhook=WebhookId(webhook_id), ends=frozenset({State.CANCELLED})).text())
    await visitor.env.driver.enqueue(job)
    await visitor.env.driver.cancel(job.id, reason="stop")
    carriers = []

    def carried(_: object) -> object:
        carriers.append(new_job("outlast.webhooks.deliver"))
        return carriers[0]

    await store.carry(carried)  # type: ignore[arg-type] # of whatever it is given
    (delivery,) = (await store.deliveries(WebhookId(webhook_id))).items
    tried = Try(at=visitor.env.now(), status=500, error=ODD, duration_ms=12)
    assert await store.note(delivery.id, carriers[0].id, tried, DeliveryState.FAILED)


async def test_a_secret_is_shown_once(visitor: Visitor) -> None:
    webhook_id = await made(visitor, ODD)
    listed = await visitor.see("/webhooks")
    shown = await visitor.see(f"/webhooks/{webhook_id}")
    for page in (listed, shown):
        assert "<svg onload" not in page
        assert "whsec_" not in page
        assert webhook_id in page
    turned = (await visitor.send(f"/webhooks/{webhook_id}/rotate")).text
    assert "whsec_" in turned
    assert "the one before signs until" in turned
    for page, status in ((shown, 412), (turned, 200)):
        number = re.search(r'name="replaces" value="([0-9]+)"', page)
        assert number is not None
        answer = await visitor.browser.post(
            f"/ui/webhooks/{webhook_id}/rotate", data={"token": await visitor.token(), "replaces": number[1]}
        )
        assert answer.status_code == status, "asked twice from one page it is done once"


async def test_a_delivery_that_failed_is_seen_and_sent_again(visitor: Visitor) -> None:
    webhook_id = await made(visitor)
    await failed(visitor, webhook_id)
    page = await visitor.see(f"/webhooks/{webhook_id}")
    assert "<code>500</code>" in page
    assert "<svg onload" not in page
    found = re.search(r'name="delivery" value="([0-9a-f-]{36})"', page)
    assert found is not None
    again = await visitor.act(f"/webhooks/{webhook_id}/resend", {"delivery": found[1]})
    assert "On its way again" in again
    assert "Send again" not in again


async def test_a_webhook_is_disabled_enabled_and_deleted(visitor: Visitor) -> None:
    webhook_id = await made(visitor)
    off = await visitor.act(f"/webhooks/{webhook_id}/disable", {"reason": "it moves"})
    assert "Disabled: it moves" in off
    assert "Disabled: it moves" not in await visitor.act(f"/webhooks/{webhook_id}/enable")
    assert webhook_id not in await visitor.act(f"/webhooks/{webhook_id}/delete", {"reason": "unused"})
    rows = (await visitor.api.client.get("/v1/audit", params={"target_kind": "webhook"})).json()["items"]
    assert [(row["action"], row["reason"]) for row in rows] == [
        ("webhook.delete", "unused"),
        ("webhook.update", None),
        ("webhook.update", "it moves"),
        ("webhook.create", "they ask for it"),
    ]


async def test_another_tenants_webhook_has_no_page(stranger: Visitor) -> None:
    control = stranger.api.services.webhooks
    theirs = await control.create(label="theirs", url=URL, tenant="acme", by=BY)
    browser = await sign_in(stranger, KEY)
    assert "theirs" not in (await browser.get("/ui/webhooks")).text
    assert (await browser.get("/ui/webhooks")).status_code == 200
    assert (await browser.get(f"/ui/webhooks/{theirs.webhook.id}")).status_code == 404


async def test_older_deliveries_are_on_a_page_of_their_own(visitor: Visitor) -> None:
    webhook_id = await made(visitor)
    store = webhooks_of(visitor.env.driver)
    assert store is not None
    for _ in range(51):
        job = new_job(callback=Callback(webhook=WebhookId(webhook_id), ends=frozenset({State.CANCELLED})).text())
        await visitor.env.driver.enqueue(job)
        await visitor.env.driver.cancel(job.id, reason="stop")
    page = await visitor.see(f"/webhooks/{webhook_id}")
    older = re.search(r'href="/ui(/webhooks/[^"]*before=[^"]*)"', page)
    assert older is not None
    assert (await visitor.see(older[1])).count("/ui/jobs/") < page.count("/ui/jobs/")
    for odd in ("no", "9" * 18 + f"~{UUID(int=1)}", f"9999-12-31T23:59:59-23:59~{UUID(int=1)}"):
        response = await visitor.browser.get(f"/ui/webhooks/{webhook_id}", params={"before": odd})
        assert response.status_code == 400, odd
