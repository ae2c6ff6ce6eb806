"""Lets people in with a key of the API: the key is shown once, its id stands for it afterwards.

Cookies and forms are signed with a secret made of the bootstrap key, which every process of a service has; without one
it is this process's own, and whoever signed in elsewhere is asked again. It is made of nothing that the store holds: to
read the store is not to come in.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from ..control.guard import Guard
from ..domain.api_key import Identity
from ..domain.errors import Unauthenticated

_PURPOSE = b"outlast dashboard"


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
        """Give the id of a key that somebody has shown. Raises `UNAUTHENTICATED`."""
        identity = await self._guard.authenticate(key.strip())
        if identity is None:
            raise Unauthenticated(
                "this key is not known here, or no longer",
                fix="use a key that `outlast keys list` shows to be in force, or the one of OUTLAST_API_KEY_FILE",
            )
        return identity.key_id

    async def known(self, key_id: str) -> Identity:
        """Give who has come in with a key, as it is now. Raises `UNAUTHENTICATED` once it is in force no more."""
        identity = await (self._guard.authenticate("") if self.is_open else self._guard.find(key_id))
        if identity is None:
            raise Unauthenticated("the key of this session is not in force any more", fix="sign in again")
        return identity
