"""Webhooks in PostgreSQL: their table, and what people see and do of deliveries.

What callers of one tenant read is read behind the wall. Called by `control`, the worker and the carriers through the
driver.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

from ...domain.audit import UNCHANGED, AuditEntry
from ...domain.job import JobId, NewJob
from ...domain.webhook import (
    GONE,
    MOST_WEBHOOKS,
    TRIES_KEPT,
    Delivery,
    DeliveryId,
    DeliveryPage,
    DeliveryState,
    NewWebhook,
    SecretRef,
    Try,
    Webhook,
    WebhookChange,
    WebhookId,
    stale,
    still_pending,
    too_many_webhooks,
    unknown_delivery,
    unknown_webhook,
)
from ..webhooks import WebhookStore
from .audit import audited
from .database import Database, Raw, Row
from .look import look
from .tenant_wall import behind
from .webhook_carry import carry
from .webhook_rows import CARRIED, DELIVERY, PENDING, STATE_CODES, WEBHOOK, delivery_of, try_text, webhook_of

# How many there may be is asked, not held: two that are made at once may both be the last.
_CREATE = f"""
insert into outlast.webhook(id, tenant, label, url, master, created_by)
select $1, $2, $3, $4, $5, $6
where (select count(*) from outlast.webhook w where w.tenant = $2) < {MOST_WEBHOOKS}
on conflict (id) do nothing"""  # noqa: S608  a number of our own
_ONE = f"select {WEBHOOK} from outlast.webhook w where w.id = $1 and ($2::text is null or w.tenant = $2)"  # noqa: S608
_LIST = f"""
select {WEBHOOK} from outlast.webhook w where ($1::text is null or w.tenant = $1)
order by w.created_at desc, w.id desc limit $2"""  # noqa: S608  fragments of our own
_HOLD = "select w.version from outlast.webhook w where w.id = $1 and ($2::text is null or w.tenant = $2) for update"
_CHANGE = """
update outlast.webhook w set label = coalesce($2, w.label), url = coalesce($3, w.url), version = w.version + 1,
  disabled_at = case when $4::boolean then coalesce(w.disabled_at, outlast.clock())
    when $4 is null then w.disabled_at end,
  disabled_why = case when $4::boolean then coalesce(w.disabled_why, $5) when $4 is null then w.disabled_why end
where w.id = $1 and (w.label <> coalesce($2, w.label) or w.url <> coalesce($3, w.url)
  or (w.disabled_at is not null) is distinct from coalesce($4, w.disabled_at is not null))
returning w.id"""
_ROTATE = """
update outlast.webhook w set previous_no = w.secret_no, previous_master = w.master,
  previous_until = outlast.clock() + $5::interval, secret_no = $3, master = $4, rotated_at = outlast.clock()
where w.id = $1 and ($2::text is null or w.tenant = $2) and w.secret_no = $3 - 1 returning w.id"""
_DELETE = """
with w as (
  delete from outlast.webhook w where w.id = $1 and ($2::text is null or w.tenant = $2) returning w.id),
d as (delete from outlast.delivery where webhook = any(array(select id from w)))
select id from w"""

_DELIVERIES = f"""
select {DELIVERY} from (
  select d.* from outlast.delivery d
  where d.webhook = $1 and ($2::text is null or d.tenant = $2)
    and ($3::timestamptz is null or (d.ended_at, d.id) < ($3, $4::uuid))
  order by d.ended_at desc, d.id desc limit $5) d {CARRIED}
order by d.ended_at desc, d.id desc"""  # noqa: S608  fragments of our own
_DELIVERY = f"""
select {DELIVERY} from outlast.delivery d {CARRIED}
where d.id = $1 and ($2::text is null or d.tenant = $2)"""  # noqa: S608  same
_LOCK = "select d.id from outlast.delivery d where d.id = $1 for update"
_RESEND = f"update outlast.delivery set carrier = null, state = {PENDING} where id = $1"  # noqa: S608  a code of our own
_NOTE = f"""
with d as (
  update outlast.delivery d set state = $4, tried = d.tried + 1,
    tries = (case when d.tried >= {TRIES_KEPT} then d.tries::jsonb - 0 else d.tries::jsonb end || $3::text::jsonb)::text
  where d.id = $1 and d.carrier = $2 returning d.webhook),
w as (
  update outlast.webhook w set disabled_at = outlast.clock(), disabled_why = $6, version = w.version + 1
  where $5::boolean and w.id = any(array(select webhook from d)) and w.disabled_at is null)
select count(*) from d"""  # noqa: S608  a number of our own


class PostgresWebhooks:
    """A `WebhookStore` in PostgreSQL. What each verb does is said by the protocol."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def create(self, webhook: NewWebhook, *, audit: AuditEntry | None = None) -> Webhook:
        """Store a new webhook."""
        binds = (webhook.id, webhook.tenant, webhook.label, webhook.url, webhook.master, webhook.created_by)

        async def once(conn: Raw) -> Row | None:
            await conn.execute(self._db.in_schema(_CREATE), *binds)
            return await self._row(conn, webhook.id, None)

        found = await audited(self._db, once, audit, lambda entry, row: entry if row is not None else None)
        if found is None:
            raise too_many_webhooks()
        return webhook_of(found)

    async def webhooks(self, *, tenant: str | None = None, limit: int = 1_000) -> tuple[Webhook, ...]:
        """Give webhooks."""
        rows = await look(
            self._db, lambda db: behind(db, tenant, lambda conn: conn.fetch(db.in_schema(_LIST), tenant, limit))
        )
        return tuple(webhook_of(row) for row in rows)

    async def webhook(self, webhook_id: WebhookId, *, tenant: str | None = None) -> Webhook | None:
        """Give one."""
        row = await behind(self._db, tenant, lambda conn: self._row(conn, webhook_id, tenant))
        return None if row is None else webhook_of(row)

    async def change(
        self,
        webhook_id: WebhookId,
        change: WebhookChange,
        *,
        version: int | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> Webhook:
        """Change a webhook."""
        why = change.why or "disabled by hand"

        async def once(conn: Raw) -> tuple[bool, Row]:
            async with conn.transaction():
                held = await conn.fetchval(self._db.in_schema(_HOLD), webhook_id, tenant)
                if held is None:
                    raise unknown_webhook(webhook_id)
                if version not in {None, held}:
                    raise stale(webhook_id)
                binds = (webhook_id, change.label, change.url, change.is_disabled, why)
                is_new = await conn.fetchval(self._db.in_schema(_CHANGE), *binds) is not None
                return is_new, await self._found(conn, webhook_id, tenant)

        _, row = await audited(
            self._db, once, audit, lambda entry, answer: entry if answer[0] else entry.came_to(UNCHANGED)
        )
        return webhook_of(row)

    async def rotate(
        self,
        webhook_id: WebhookId,
        secret: SecretRef,
        *,
        overlap: timedelta,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> Webhook:
        """Let it sign with its next secret."""

        async def once(conn: Raw) -> tuple[bool, Row]:
            binds = (webhook_id, tenant, secret.number, secret.master, overlap)
            is_new = await conn.fetchval(self._db.in_schema(_ROTATE), *binds) is not None
            return is_new, await self._found(conn, webhook_id, tenant)

        _, row = await audited(
            self._db, once, audit, lambda entry, answer: entry if answer[0] else entry.came_to(UNCHANGED)
        )
        return webhook_of(row)

    async def delete(
        self, webhook_id: WebhookId, *, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> None:
        """Delete it with its deliveries."""

        async def once(conn: Raw) -> None:
            if await conn.fetchval(self._db.in_schema(_DELETE), webhook_id, tenant) is None:
                raise unknown_webhook(webhook_id)

        await audited(self._db, once, audit, lambda entry, _: entry)

    async def deliveries(
        self,
        webhook_id: WebhookId,
        *,
        tenant: str | None = None,
        before: tuple[datetime, DeliveryId] | None = None,
        limit: int = 50,
    ) -> DeliveryPage:
        """Give one page."""
        at, last = before or (None, None)
        binds = (webhook_id, tenant, at, last, limit + 1)
        rows = await look(
            self._db, lambda db: behind(db, tenant, lambda conn: conn.fetch(db.in_schema(_DELIVERIES), *binds))
        )
        items = tuple(delivery_of(row) for row in rows[:limit])
        rest = None if len(rows) <= limit else (items[-1].ended.ended_at, items[-1].id)
        return DeliveryPage(items=items, next_before=rest)

    async def delivery(self, delivery_id: DeliveryId, *, tenant: str | None = None) -> Delivery | None:
        """Give one delivery."""
        row = await behind(self._db, tenant, lambda conn: self._delivery(conn, delivery_id, tenant))
        return None if row is None else delivery_of(row)

    async def resend(
        self,
        webhook_id: WebhookId,
        delivery_id: DeliveryId,
        *,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> Delivery:
        """Have it carried once more."""

        async def once(conn: Raw) -> Row:
            async with conn.transaction():
                await conn.execute(self._db.in_schema(_LOCK), delivery_id)
                found = await self._delivery(conn, delivery_id, tenant)
                if found is None or found["webhook"] != webhook_id:
                    raise unknown_delivery(delivery_id)
                if found["state"] == PENDING:
                    raise still_pending(delivery_id)
                await conn.execute(self._db.in_schema(_RESEND), delivery_id)
                again = await self._delivery(conn, delivery_id, tenant)
                return again or found

        return delivery_of(await audited(self._db, once, audit, lambda entry, _: entry))

    async def carry(self, make: Callable[[Delivery], NewJob], *, batch: int = 500) -> int:
        """Make jobs of deliveries."""
        return await carry(self._db, make, batch)

    async def note(
        self, delivery_id: DeliveryId, carrier: JobId, tried: Try, state: DeliveryState, *, gone: bool = False
    ) -> bool:
        """Note a try."""
        binds = (delivery_id, carrier, try_text(tried), STATE_CODES[state], gone, GONE)
        count: int = await self._db.run(lambda conn: conn.fetchval(self._db.in_schema(_NOTE), *binds))
        return count > 0

    async def _row(self, conn: Raw, webhook_id: WebhookId, tenant: str | None) -> Row | None:
        return await conn.fetchrow(self._db.in_schema(_ONE), webhook_id, tenant)

    async def _found(self, conn: Raw, webhook_id: WebhookId, tenant: str | None) -> Row:
        row = await self._row(conn, webhook_id, tenant)
        if row is None:
            raise unknown_webhook(webhook_id)
        return row

    async def _delivery(self, conn: Raw, delivery_id: UUID, tenant: str | None) -> Row | None:
        return await conn.fetchrow(self._db.in_schema(_DELIVERY), delivery_id, tenant)


_: type[WebhookStore] = PostgresWebhooks
