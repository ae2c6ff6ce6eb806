"""API keys as people handle them: make one, list them, give one a new secret, end one.

A secret is answered once, by the call that makes it. Authority is the caller's: `tenant` is the only one a call may
touch, None for all. Called by the HTTP routes and the command line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ..domain.api_key import (
    Identity,
    KeyId,
    KeyView,
    NewKey,
    Scope,
    check_key,
    new_id,
    new_token,
    unknown_key,
)
from ..domain.audit import Acting, Action, AuditEntry, Target
from ..domain.errors import Forbidden, NotImplementedYet
from ..domain.issued import DEFAULT_OVERLAP, check_overlap
from ..drivers.api_keys import KeyStore
from ..drivers.protocol import JobDriver
from ..steps.repeat import until_known
from .acting import entry_of
from .render import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOrder:
    """A key that is asked for. `lasts` counts from now by the store's clock; it and `expires_at` exclude each other."""

    label: str
    tenant: str | None
    scopes: frozenset[Scope]
    queues: frozenset[str] | None = None
    expires_at: datetime | None = None
    lasts: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A key with its token, which is not to be had again. `repr` never shows it."""

    key: KeyView
    token: str

    def __repr__(self) -> str:
        """Name the key alone."""
        return f"Issued({self.key.id})"


async def _nothing() -> None:
    return None


class KeyControl:
    """The verbs on API keys. `on_change` lets the process know keys as they are, once one was changed here."""

    def __init__(
        self, store: KeyStore | None, *, driver: JobDriver, on_change: Callable[[], Awaitable[None]] = _nothing
    ) -> None:
        self._found = store
        self._driver = driver
        self._on_change = on_change

    async def create(self, order: KeyOrder, *, by: Acting, grant: Identity | None = None) -> Issued:
        """Make a key; the only time its token is to be seen.

        Made by a key that ends, `grant`, it ends with that unless it is to end before.

        Raises:
            RequestInvalid: it could do nothing, would have expired, or there are too many.
            Forbidden: the key could do what the caller, `grant`, may not, or for longer.
        """
        now = await self._driver.database_time()
        if order.lasts is not None:
            order = replace(order, expires_at=now + order.lasts, lasts=None)
        if grant is not None:
            ends_at = await self._end_of(grant)
            order = replace(order, expires_at=ends_at) if order.expires_at is None else order
            check_grant(grant, order, ends_at=ends_at)
        key_id = new_id()
        token, secret = new_token(key_id)
        key = NewKey(
            id=key_id,
            secret=secret,
            label=order.label,
            tenant=order.tenant,
            scopes=order.scopes,
            queues=order.queues,
            expires_at=order.expires_at,
            created_by=by.actor,
        )
        check_key(key, now=now)
        audit = _entry(
            by,
            Action.KEY_CREATE,
            key_id,
            key.tenant,
            label=key.label,
            scopes=sorted(key.scopes),
            queues=None if key.queues is None else sorted(key.queues),
            expires_at=None if key.expires_at is None else key.expires_at.isoformat(),
        )
        view = await until_known(lambda: self._store.create(key, audit=audit))
        await self._on_change()
        return Issued(key=view, token=token)

    async def list(self, *, tenant: str | None) -> tuple[KeyView, ...]:
        """Give keys, the newest first, those that are over too; at most 1,000."""
        return await self._store.keys(tenant=tenant)

    async def find(self, key_id: str, *, tenant: str | None) -> KeyView:
        """Give one key. Raises `NOT_FOUND`."""
        view = await self._store.key(KeyId(key_id), tenant=tenant)
        if view is None:
            raise unknown_key(key_id)
        return view

    async def rotate(
        self,
        key_id: str,
        *,
        tenant: str | None,
        by: Acting,
        overlap: timedelta = DEFAULT_OVERLAP,
        grant: Identity | None = None,
        replaces: str | None = None,
    ) -> Issued:
        """Give a key a new secret; the one before it is taken for `overlap` more, and one before that no more.

        `replaces` are the last four characters of the secret that is meant: asked twice, the first one alone is done.

        Raises:
            NotFound: there is none to be seen, or it is over.
            PreconditionFailed: another secret than `replaces` says is in force by now.
            Forbidden: the key may do what the caller, `grant`, may not, or for longer: its new secret would be the
                caller's.
        """
        check_overlap(overlap)
        before = await self.find(key_id, tenant=tenant)
        if grant is not None:
            check_grant(grant, _order_of(before), ends_at=await self._end_of(grant))
        token, secret = new_token(before.id, unlike=before.last4)
        overlap_ms = round(overlap.total_seconds() * 1000)
        audit = _entry(by, Action.KEY_ROTATE, before.id, before.tenant, label=before.label, overlap_ms=overlap_ms)
        view = await until_known(
            lambda: self._store.rotate(
                before.id, secret, overlap=overlap, replaces=replaces, tenant=tenant, audit=audit
            )
        )
        await self._on_change()
        return Issued(key=view, token=token)

    async def revoke(self, key_id: str, *, tenant: str | None, by: Acting) -> KeyView:
        """End a key for good, within five seconds in every process. Raises `NOT_FOUND`."""
        before = await self.find(key_id, tenant=tenant)
        audit = _entry(by, Action.KEY_REVOKE, before.id, before.tenant, label=before.label)
        view = await self._store.revoke(before.id, by=by.actor, tenant=tenant, audit=audit)
        await self._on_change()
        return view

    async def _end_of(self, identity: Identity) -> datetime | None:
        view = await self._store.key(KeyId(identity.key_id))
        return None if view is None else view.expires_at

    @property
    def _store(self) -> KeyStore:
        if self._found is None:
            raise NotImplementedYet("this store has no API keys", fix="set OUTLAST_DATABASE_URL to postgresql://…")
        return self._found


def check_grant(identity: Identity, order: KeyOrder, *, ends_at: datetime | None = None) -> None:
    """Refuse a key that could do what its maker, whose key ends at `ends_at`, may not.

    Raises:
        Forbidden: another tenant, a scope or a queue beyond the caller's own, or an end after the caller's.
    """
    if identity.tenant is not None and order.tenant != identity.tenant:
        raise Forbidden(
            f"the key {identity.name!r} may not make keys for another tenant", fix="leave `tenant` out, or use its own"
        )
    identity.check(*sorted(order.scopes))
    if identity.queues is not None and (order.queues is None or not order.queues <= identity.queues):
        raise Forbidden(
            f"the key {identity.name!r} is bound to queues, and the new one would not be",
            fix=f"name some of {', '.join(sorted(identity.queues))}",
        )
    if ends_at is not None and (order.expires_at is None or order.expires_at > ends_at):
        raise Forbidden(
            f"the key {identity.name!r} ends at {ends_at.isoformat()}, and the other one would go on",
            fix="give `expires_at` at or before that, or use a key that lasts as long",
        )


def key_document(key: KeyView) -> Document:
    """Give the representation of a key; it never has a secret."""
    return {
        "id": key.id,
        "label": key.label,
        "tenant": key.tenant,
        "scopes": sorted(key.scopes),
        "queues": None if key.queues is None else sorted(key.queues),
        "last4": key.last4,
        "previous_last4": key.previous_last4,
        "previous_until": key.previous_until,
        "created_at": key.created_at,
        "created_by": key.created_by,
        "rotated_at": key.rotated_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "revoked_by": key.revoked_by,
        "last_used_at": key.last_used_at,
    }


def _order_of(key: KeyView) -> KeyOrder:
    return KeyOrder(label=key.label, tenant=key.tenant, scopes=key.scopes, queues=key.queues, expires_at=key.expires_at)


def _entry(by: Acting, action: Action, key_id: str, tenant: str | None, **details: object) -> AuditEntry | None:
    return entry_of(by, action, Target.KEY, key_id, tenant=tenant, details=details)
