"""Lets people in with a key of the API: the key is shown once, a handle stands for it afterwards.

The handle is the key's id and a fingerprint of the secret that was shown: once that secret is taken no more, neither is
the handle, also where the key goes on with another.

Cookies and forms are signed with a secret made of the bootstrap key, which every process of a service has; without one
it is this process's own, and whoever signed in elsewhere is asked again. It is made of nothing that the store holds: to
read the store is not to come in.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import timedelta
from uuid import UUID

from ..control.guard import Guard, digest_of
from ..domain.api_key import Identity
from ..domain.errors import OutlastError, Unauthenticated

_PURPOSE = b"outlast dashboard"
_FINGERPRINT = 32


class Door:
    """The door over `guard`. `key` is the bootstrap key of the file, if there is one."""

    def __init__(self, guard: Guard, *, key: str | None) -> None:
        self._guard = guard
        own = secrets.token_bytes(32)
        self.secret = own if key is None else hmac.new(key.encode(), _PURPOSE, hashlib.sha256).digest()

    @property
    def is_open(self) -> bool:
        """Say whether everybody who can connect may do everything."""
        return self._guard.is_open

    async def enter(self, key: str) -> str:
        """Give the handle of a key that somebody has shown. Raises `UNAUTHENTICATED`."""
        key = key.strip()
        identity = await self._guard.authenticate(key)
        if identity is None:
            raise Unauthenticated(
                "this key is not known here, or no longer",
                fix="use a key that `outlast keys list` shows to be in force, or the one of OUTLAST_API_KEY_FILE",
            )
        return f"{identity.key_id}.{self._fingerprint(identity.key_id, digest_of(identity, key))}"

    async def known(self, handle: str) -> Identity:
        """Give who has come in with a key, as it is now. Raises `UNAUTHENTICATED` once its secret is not in force."""
        if self.is_open:
            identity = await self._guard.authenticate("")
        else:
            key_id, _, shown = handle.partition(".")
            identity = await self._guard.find(
                key_id, lambda digest: hmac.compare_digest(shown.encode(), self._fingerprint(key_id, digest).encode())
            )
        if identity is None:
            raise Unauthenticated("the key of this session is not in force any more", fix="sign in again")
        return identity

    async def leave(self, session: UUID, *, lasts: timedelta) -> None:
        """Let nobody in again with a session: also not with a copy of its cookie."""
        await self._guard.end_session(session, lasts=lasts)

    async def check_session(self, session: UUID) -> None:
        """Refuse a session that was ended. Raises `UNAUTHENTICATED`."""
        if await self._guard.has_ended(session):
            raise Unauthenticated("this session was ended", fix="sign in again")

    def turned_away(self, error: OutlastError, visitor: Identity | None, *, address: str | None, path: str) -> None:
        """Note for the audit that somebody was turned away."""
        self._guard.refused(error, visitor, address=address, path=path)

    def _fingerprint(self, key_id: str, digest: bytes) -> str:
        """Give what stands for a secret in a cookie; without this service's own secret it says nothing."""
        return hmac.new(self.secret, b"shown\0" + key_id.encode() + digest, hashlib.sha256).hexdigest()[:_FINGERPRINT]
