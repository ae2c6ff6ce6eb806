"""Lets people in at the dashboard with a key of the API: the key is shown once, a handle stands for it afterwards.

The dashboard knows nothing of keys; it is given this by the composition root.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from ..domain.errors import Unauthenticated
from .auth import Auth, Identity

_PURPOSE = b"outlast dashboard"


class Door:
    """The door over `auth`. `key` is the bootstrap key, from which the secret of cookies and forms is derived."""

    def __init__(self, auth: Auth, *, key: str | None) -> None:
        self._auth = auth
        self._key = key
        self._secret = secrets.token_bytes(32) if key is None else _derived(key.encode(), _PURPOSE)

    @property
    def is_open(self) -> bool:
        """Say whether everybody who can connect may do everything."""
        return self._auth.is_open

    @property
    def secret(self) -> bytes:
        """Give what cookies and forms are signed with; another one once the bootstrap key is another."""
        return self._secret

    async def enter(self, key: str) -> str:
        """Give the handle of a key. Raises `UNAUTHENTICATED`."""
        self._auth.authenticate([_bearer(key)])
        return self._handle(key)

    async def known(self, handle: str) -> Identity:
        """Give who is behind a handle now. Raises `UNAUTHENTICATED`."""
        if self._auth.is_open:
            return self._auth.authenticate([])
        if self._key is None or not hmac.compare_digest(handle.encode(), self._handle(self._key).encode()):
            raise Unauthenticated("the key of this session is not known here any more", fix="sign in again")
        return self._auth.authenticate([_bearer(self._key)])

    def _handle(self, key: str) -> str:
        return _derived(self._secret, key.encode()).hex()[:32]


def _derived(secret: bytes, purpose: bytes) -> bytes:
    return hmac.new(secret, purpose, hashlib.sha256).digest()


def _bearer(key: str) -> bytes:
    return b"Bearer " + key.strip().encode()
