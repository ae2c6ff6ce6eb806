"""Webhooks: who is told when jobs end, what was told and what came of it; make, disable, rotate, send again."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

from starlette.responses import Response

from ...control.webhooks import IssuedWebhook
from ...domain.errors import CursorInvalid
from ...domain.text import read_uuid
from ...domain.webhook import DeliveryId, WebhookChange
from ..visit import ADMIN, OPERATE, Visit

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Of a time within the years that have a date.
_MICROS = re.compile(r"[0-9]{1,17}")


async def page(visit: Visit) -> Response:
    """Give every webhook."""
    found = await visit.services.webhooks.list(tenant=visit.tenant)
    return visit.page("webhooks.html", title="Webhooks", at="webhooks", webhooks=found, may_make=visit.may(ADMIN))


async def one(visit: Visit) -> Response:
    """Give one webhook with its deliveries."""
    return await _shown(visit, visit.part("webhook_id"))


async def make(visit: Visit) -> Response:
    """Make one, and show its secret this once."""
    form = await visit.form()
    issued = await visit.services.webhooks.create(
        label=form.one("label"), url=form.one("url"), tenant=visit.tenant, by=visit.acting(form)
    )
    return await _shown(visit, issued.webhook.id, issued)


async def rotate(visit: Visit) -> Response:
    """Give one a new secret, and show it this once."""
    form = await visit.form()
    by = visit.acting(form)
    issued = await visit.services.webhooks.rotate(
        visit.part("webhook_id"), tenant=visit.tenant, by=by, replaces=form.number("replaces")
    )
    return await _shown(visit, issued.webhook.id, issued)


async def disable(visit: Visit) -> Response:
    """Stop deliveries."""
    form, webhook_id = await visit.form(), visit.part("webhook_id")
    by = visit.acting(form)
    change = WebhookChange(is_disabled=True, why=by.reason)
    await visit.services.webhooks.change(webhook_id, change, tenant=visit.tenant, by=by)
    return visit.go(f"/webhooks/{webhook_id}", said="Disabled: what would be delivered fails, and can be sent again")


async def enable(visit: Visit) -> Response:
    """Let deliveries begin again."""
    form, webhook_id = await visit.form(), visit.part("webhook_id")
    by = visit.acting(form)
    change = WebhookChange(is_disabled=False)
    await visit.services.webhooks.change(webhook_id, change, tenant=visit.tenant, by=by)
    return visit.go(f"/webhooks/{webhook_id}", said="Enabled: ends of jobs are told again")


async def delete(visit: Visit) -> Response:
    """Delete one with what is known of its deliveries."""
    form = await visit.form()
    await visit.services.webhooks.delete(visit.part("webhook_id"), tenant=visit.tenant, by=visit.acting(form))
    return visit.go("/webhooks", said="Deleted")


async def resend(visit: Visit) -> Response:
    """Send a delivery once more."""
    form, webhook_id = await visit.form(), visit.part("webhook_id")
    by = visit.acting(form)
    await visit.services.webhooks.resend(webhook_id, form.one("delivery"), tenant=visit.tenant, by=by)
    return visit.go(f"/webhooks/{webhook_id}", said="On its way again, under the same message id")


async def _shown(visit: Visit, webhook_id: str, issued: IssuedWebhook | None = None) -> Response:
    webhook = await visit.services.webhooks.find(webhook_id, tenant=visit.tenant)
    before = None if issued is not None else _place(visit.asked("before"))
    told = await visit.services.webhooks.deliveries(webhook_id, tenant=visit.tenant, before=before)
    return visit.page(
        "webhook.html",
        status=HTTPStatus.OK,
        title=webhook.label,
        at="webhooks",
        webhook=webhook,
        deliveries=told.items,
        older=None if told.next_before is None else _word(told.next_before),
        secret=None if issued is None else issued.secret,
        may_act=visit.may(ADMIN),
        may_resend=visit.may(OPERATE),
    )


def _word(place: tuple[datetime, DeliveryId]) -> str:
    """Give where a page ended as it stands in an address: the microseconds of its last delivery, and its id."""
    return f"{(place[0] - _EPOCH) // _MICROSECOND}~{place[1]}"


def _place(text: str) -> tuple[datetime, DeliveryId] | None:
    if not text:
        return None
    micros, _, last = text.partition("~")
    found = read_uuid(last)
    if found is None or not _MICROS.fullmatch(micros):
        raise CursorInvalid(
            "the page cannot be found: its cursor was not given out here", fix="start at the first page"
        )
    return _EPOCH + int(micros) * _MICROSECOND, DeliveryId(found)
