"""The vocabulary of API keys: a store keeps them, beside the jobs they open.

Apart from the job store's protocol because no worker asks for any of it. Implemented by the drivers that hold jobs;
one that holds none has no keys. Called by `control`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, runtime_checkable
from uuid import UUID

from ..domain.api_key import KeyId, KeyView, KnownKey, NewKey, NewSecret
from ..domain.audit import AuditEntry


class KeyStore(Protocol):
    """A store of API keys. What changes one leaves its row of the audit in the same commit."""

    async def create(self, key: NewKey, *, audit: AuditEntry | None = None) -> KeyView:
        """Store a new key, durable when this returns; repeating it with the same id is safe.

        Raises:
            RequestInvalid: `MOST_KEYS` are in force already.
        """
        ...

    async def keys(self, *, tenant: str | None = None, limit: int = 1_000) -> tuple[KeyView, ...]:
        """Give keys, the newest first, revoked and expired ones too; with a tenant only that tenant's."""
        ...

    async def key(self, key_id: KeyId, *, tenant: str | None = None) -> KeyView | None:
        """Give one key; None when absent or another tenant's."""
        ...

    async def revoke(
        self, key_id: KeyId, *, by: str, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> KeyView:
        """End a key and both its secrets for good; one that is revoked stays as it is. `NOT_FOUND` as in `key`."""
        ...

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
        """Give a key a new secret; the one before it is taken for `overlap` more, one before that no longer.

        Repeating it with the same secret is safe. With `replaces` only the secret that ends in these four characters
        is replaced, and `PRECONDITION_FAILED` says that another one is in force by now. `NOT_FOUND` as in `key`, and
        for a key that is revoked or expired.
        """
        ...

    async def known(self) -> tuple[KnownKey, ...]:
        """Give every key in force now, by the store's clock, with the secrets that are taken for it."""
        ...

    async def end_session(self, session: UUID, *, lasts: timedelta) -> None:
        """Remember for as long as it `lasts` that a session which was begun with a key has ended. Repeating is safe."""
        ...

    async def ended_sessions(self) -> frozenset[UUID]:
        """Give the sessions that have ended and are remembered."""
        ...

    async def used(self, key_ids: Sequence[KeyId]) -> None:
        """Note that keys were used; a note less than a minute old stays, and one that somebody writes is left."""
        ...


@runtime_checkable
class HasKeys(Protocol):
    """A driver with API keys beside its jobs."""

    @property
    def api_keys(self) -> KeyStore:
        """Give the keys of the database that holds the jobs."""
        ...


def keys_of(driver: object) -> KeyStore | None:
    """Give the API keys beside a driver's jobs, None for a driver without."""
    return driver.api_keys if isinstance(driver, HasKeys) else None
