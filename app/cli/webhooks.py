"""`outlast webhooks`: who is told when jobs end, what was told, and what came of it; straight on the store.

A secret is printed once, on stdout, by the commands that make one; they need the master key that the service has.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..domain.issued import DEFAULT_OVERLAP
from ..domain.job import DEFAULT_TENANT
from ..domain.webhook import Delivery, Webhook, WebhookChange
from .acting import Reason, acting
from .durations import overlap_of
from .jobs_print import print_rows, safe, time_of
from .report import say
from .store import with_webhooks

if TYPE_CHECKING:
    from ..control.webhooks import IssuedWebhook

webhooks = typer.Typer(no_args_is_help=True)

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Lines = Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")]
_Id = Annotated[str, typer.Argument(help="The webhook's id: `wh_…`.")]
_COLUMNS = ("id", "label", "tenant", "address", "secrets", "state")
_TOLD = ("id", "job", "ended as", "at", "state", "tries", "last answer")


@webhooks.command("create")
def create(
    url: Annotated[str, typer.Argument(help="Where deliveries go: https, and a public address.")],
    *,
    label: Annotated[str, typer.Option(help="Who receives it; shown in lists and in the audit.")],
    tenant: Annotated[str, typer.Option(help="Whose jobs may name it.")] = DEFAULT_TENANT,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Make a webhook and print its secret, which is not shown again."""
    _hand_out(
        with_webhooks(db, lambda control: control.create(label=label, url=url, tenant=tenant, by=acting(reason))),
        as_json=as_json,
    )


@webhooks.command("list")
def list_webhooks(
    *,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    as_json: _Lines = False,
    db: _Db = None,
) -> None:
    """List webhooks, the newest first; never a secret."""
    found = with_webhooks(db, lambda control: control.list(tenant=tenant))
    if as_json:
        for webhook in found:
            _print_webhook(webhook)
    elif found:
        print_rows((_COLUMNS, *(_row(webhook) for webhook in found)))
    else:
        say("no webhooks; `outlast webhooks create https://… --label NAME` makes one")


@webhooks.command("rotate")
def rotate(
    webhook_id: _Id,
    *,
    overlap: Annotated[str, typer.Option(help="How long the secret before signs as well: `0s`, `1h`, `7d`.")] = (
        f"{DEFAULT_OVERLAP.days}d"
    ),
    replaces: Annotated[
        int | None, typer.Option(min=1, help="The number of the secret that is meant, as `list --json` has it.")
    ] = None,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Give a webhook a new secret and print it; the one before signs beside it for a while."""
    lasts = overlap_of(overlap)
    _hand_out(
        with_webhooks(
            db,
            lambda control: control.rotate(
                webhook_id, tenant=None, by=acting(reason), overlap=lasts, replaces=replaces
            ),
        ),
        as_json=as_json,
    )


@webhooks.command("disable")
def disable(webhook_id: _Id, *, reason: Reason = None, as_json: _Json = False, db: _Db = None) -> None:
    """Stop deliveries to a webhook; those that come up meanwhile fail, and can be sent again."""
    _change(webhook_id, WebhookChange(is_disabled=True, why=reason), reason, db, as_json=as_json)


@webhooks.command("enable")
def enable(webhook_id: _Id, *, reason: Reason = None, as_json: _Json = False, db: _Db = None) -> None:
    """Begin deliveries to a webhook again."""
    _change(webhook_id, WebhookChange(is_disabled=False), reason, db, as_json=as_json)


@webhooks.command("delete")
def delete(
    webhook_id: _Id,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    reason: Reason = None,
    db: _Db = None,
) -> None:
    """Delete a webhook with what is known of its deliveries."""
    if not yes:
        typer.confirm(f"Delete {webhook_id} and its deliveries?", abort=True, err=True)
    with_webhooks(db, lambda control: control.delete(webhook_id, tenant=None, by=acting(reason)))
    say(f"{webhook_id} is deleted; jobs that name it tell nobody")


@webhooks.command("deliveries")
def deliveries(
    webhook_id: _Id,
    *,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many.")] = 50,
    as_json: _Lines = False,
    db: _Db = None,
) -> None:
    """List what was told to a webhook, the newest first."""
    page = with_webhooks(db, lambda control: control.deliveries(webhook_id, tenant=None, limit=limit))
    if as_json:
        for delivery in page.items:
            _print_delivery(delivery)
    elif page.items:
        print_rows((_TOLD, *(_told(delivery) for delivery in page.items)))
    else:
        say("nothing was told to it yet")


@webhooks.command("resend")
def resend(
    webhook_id: _Id,
    delivery_id: Annotated[str, typer.Argument(help="The delivery's id.")],
    *,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Tell a webhook once more, under the same message id."""
    found = with_webhooks(db, lambda control: control.resend(webhook_id, delivery_id, tenant=None, by=acting(reason)))
    if as_json:
        _print_delivery(found)
        return
    say(f"{found.id} is on its way again")


def _change(webhook_id: str, change: WebhookChange, reason: str | None, db: str | None, *, as_json: bool) -> None:
    found = with_webhooks(db, lambda control: control.change(webhook_id, change, tenant=None, by=acting(reason)))
    if as_json:
        _print_webhook(found)
        return
    say(f"{found.id} ({safe(found.label)}): {_state(found)}")


def _hand_out(issued: IssuedWebhook, *, as_json: bool) -> None:
    """Print a secret on stdout alone, so that it can be piped into a file; the talk goes to stderr."""
    if as_json:
        _print_webhook(issued.webhook, secret=issued.secret)
        return
    print(issued.secret)
    say(f"{issued.webhook.id} ({safe(issued.webhook.label)}): keep the secret now, it is not shown again")


def _row(webhook: Webhook) -> tuple[str, ...]:
    return (
        webhook.id,
        safe(webhook.label),
        safe(webhook.tenant),
        safe(webhook.url),
        str(len(webhook.signing)),
        _state(webhook),
    )


def _state(webhook: Webhook) -> str:
    if webhook.disabled_at is None:
        return "enabled"
    return f"disabled at {time_of(webhook.disabled_at)}: {safe(webhook.disabled_why or '-')}"


def _told(delivery: Delivery) -> tuple[str, ...]:
    last = delivery.last
    said = "-" if last is None else str(last.status or last.error)
    return (
        str(delivery.id),
        f"{safe(delivery.ended.name)} {delivery.ended.job_id}",
        delivery.ended.state.value,
        time_of(delivery.ended.ended_at),
        delivery.state.value,
        str(delivery.tried),
        safe(said),
    )


def _print_webhook(webhook: Webhook, **more: object) -> None:
    from ..control.render import render
    from ..control.webhooks import webhook_document

    sys.stdout.write(render(webhook_document(webhook) | more).decode() + "\n")


def _print_delivery(delivery: Delivery) -> None:
    from ..control.render import render
    from ..control.webhooks import delivery_document

    sys.stdout.write(render(delivery_document(delivery)).decode() + "\n")
