"""API keys beside the jobs of a memory driver: the readable reference for what a store of them does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from ...domain.api_key import (
    MOST_KEYS,
    KeyId,
    KeyView,
    KnownKey,
    NewKey,
    NewSecret,
    too_many_keys,
    turned_key,
    unknown_key,
)
from ...domain.audit import UNCHANGED, AuditEntry
from ..api_keys import KeyStore
from .audit import keep
from .store import Store

_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A key with the traces of its secrets."""

    view: KeyView
    digest: bytes
    previous: bytes | None = None


class MemoryKeys:
    """A `KeyStore` in a memory driver. What each verb does is said by the protocol."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: dict[KeyId, _Row] = {}
        self._ended: dict[UUID, datetime] = {}

    async def create(self, key: NewKey, *, audit: AuditEntry | None = None) -> KeyView:
        """Store a new key."""
        with self._store.statement() as now:
            if key.id not in self._rows:
                if sum(_in_force(row.view, now) for row in self._rows.values()) >= MOST_KEYS:
                    raise too_many_keys()
                self._rows[key.id] = _Row(view=_view(key, now), digest=key.secret.digest)
            keep(self._store, audit, now)
            return self._shown(key.id, now)

    async def keys(self, *, tenant: str | None = None, limit: int = 1_000) -> tuple[KeyView, ...]:
        """Give keys, the newest first."""
        with self._store.statement() as now:
            found = [self._shown(key_id, now) for key_id in self._rows if self._is_seen(key_id, tenant)]
            return tuple(sorted(found, key=lambda view: (view.created_at, view.id), reverse=True)[:limit])

    async def key(self, key_id: KeyId, *, tenant: str | None = None) -> KeyView | None:
        """Give one key."""
        with self._store.statement() as now:
            return self._shown(key_id, now) if self._is_seen(key_id, tenant) else None

    async def revoke(
        self, key_id: KeyId, *, by: str, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> KeyView:
        """End a key for good."""
        with self._store.statement() as now:
            if not self._is_seen(key_id, tenant):
                raise unknown_key(key_id)
            is_new = self._rows[key_id].view.revoked_at is None
            if is_new:
                self._change(key_id, lambda view: replace(view, revoked_at=now, revoked_by=by))
            keep(self._store, audit if is_new or audit is None else audit.came_to(UNCHANGED), now)
            return self._shown(key_id, now)

    async def rotate(
        self,
        key_id: KeyId,
        secret: NewSecret,
        *,
        overlap: timedelta,
        replaces: str | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> KeyView:
        """Give a key a new secret."""
        with self._store.statement() as now:
            if not self._is_seen(key_id, tenant):
                raise unknown_key(key_id)
            row = self._rows[key_id]
            if row.digest != secret.digest and replaces not in {None, row.view.last4}:
                raise turned_key(key_id, row.view.last4)
            if not _in_force(row.view, now):
                raise unknown_key(key_id)
            if row.digest != secret.digest:
                view = replace(
                    row.view,
                    last4=secret.last4,
                    previous_last4=row.view.last4,
                    previous_until=now + overlap,
                    rotated_at=now,
                )
                self._rows[key_id] = _Row(view=view, digest=secret.digest, previous=row.digest)
            keep(self._store, audit, now)
            return self._shown(key_id, now)

    async def known(self) -> tuple[KnownKey, ...]:
        """Give every key in force."""
        with self._store.statement() as now:
            return tuple(_known(row, now) for row in self._rows.values() if _in_force(row.view, now))

    async def end_session(self, session: UUID, *, lasts: timedelta) -> None:
        """Remember that a session has ended."""
        with self._store.statement() as now:
            self._ended = {each: until for each, until in self._ended.items() if until > now}
            self._ended.setdefault(session, now + lasts)

    async def ended_sessions(self) -> frozenset[UUID]:
        """Give the sessions that have ended."""
        with self._store.statement() as now:
            return frozenset(each for each, until in self._ended.items() if until > now)

    async def used(self, key_ids: Sequence[KeyId]) -> None:
        """Note that keys were used."""
        with self._store.statement() as now:
            for key_id in self._rows.keys() & set(key_ids):
                before = self._rows[key_id].view.last_used_at
                if before is None or before <= now - _MINUTE:
                    self._change(key_id, lambda view: replace(view, last_used_at=now))

    def _is_seen(self, key_id: KeyId, tenant: str | None) -> bool:
        row = self._rows.get(key_id)
        return row is not None and tenant in {None, row.view.tenant}

    def _change(self, key_id: KeyId, change: Callable[[KeyView], KeyView]) -> None:
        row = self._rows[key_id]
        self._rows[key_id] = replace(row, view=change(row.view))

    def _shown(self, key_id: KeyId, now: datetime) -> KeyView:
        view = self._rows[key_id].view
        if view.previous_until is None or view.previous_until > now:
            return view
        return replace(view, previous_last4=None, previous_until=None)


def _in_force(view: KeyView, now: datetime) -> bool:
    return view.revoked_at is None and (view.expires_at is None or view.expires_at > now)


def _known(row: _Row, now: datetime) -> KnownKey:
    until = row.view.previous_until
    previous = () if row.previous is None or until is None or until <= now else (row.previous,)
    return KnownKey(identity=row.view.identity, digests=(row.digest, *previous))


def _view(key: NewKey, now: datetime) -> KeyView:
    return KeyView(
        id=key.id,
        label=key.label,
        tenant=key.tenant,
        scopes=key.scopes,
        queues=key.queues,
        last4=key.secret.last4,
        previous_last4=None,
        previous_until=None,
        created_at=now,
        created_by=key.created_by,
        rotated_at=None,
        expires_at=key.expires_at,
        revoked_at=None,
        revoked_by=None,
        last_used_at=None,
    )


_: type[KeyStore] = MemoryKeys
