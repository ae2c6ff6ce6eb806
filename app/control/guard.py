"""Who may come in: the token of a caller made into who it is, for every surface of a process.

Without keys nothing is served but `dev` on loopback, openly. A token is one of an API key, or the bootstrap key of a
file, which is there for the time before keys are made. Digests are compared in constant time, whether or not there is
such a key. Beside the requests it notes which keys were used and who was turned away. Called by `http` and by the
dashboard.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from ..domain.api_key import Identity, KeyId, Scope, opens, read_token
from ..domain.errors import OutlastError, SettingsInvalid
from ..domain.job import DEFAULT_TENANT
from ..drivers.api_keys import KeyStore
from .key_ring import KeyRing
from .refusals import Refusals

_WRITE_SECONDS = 10.0
_USE_SECONDS = 60.0

OPEN_IDENTITY = Identity(name="dev", tenant=None, scopes=frozenset(Scope), key_id="dev")
BOOTSTRAP_IDENTITY = Identity(name="bootstrap", tenant=DEFAULT_TENANT, scopes=frozenset(Scope), key_id="bootstrap")


class Guard:
    """Knows callers by their tokens.

    `store` has the API keys, `bootstrap` is the key of the file; with neither, the service is open to everybody who can
    connect. `refusals` is where who was turned away is noted.
    """

    def __init__(
        self,
        bootstrap: str | None,
        *,
        store: KeyStore | None = None,
        refusals: Refusals | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bootstrap = None if bootstrap is None else hashlib.sha256(bootstrap.encode()).digest()
        self._ring = None if store is None else KeyRing(store, monotonic=monotonic)
        self._store = store
        self._refusals = refusals
        self._monotonic = monotonic
        self._ended: dict[UUID, float] = {}
        self._used: set[KeyId] = set()
        self._used_at = monotonic()
        self._over = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Say whether everybody who can connect may do everything."""
        return self._bootstrap is None and self._ring is None

    async def check_keys(self) -> None:
        """Refuse to serve, once the store is open, if no key whatever would be let in.

        Raises:
            SettingsInvalid: there is no bootstrap key and no API key in force.
        """
        if self._bootstrap is None and self._ring is not None and not await self._ring.has_any():
            raise SettingsInvalid(
                "there is no API key in force, and no bootstrap key: nobody could ever be let in",
                fix="make a key with `outlast keys create --label NAME --scope admin`, or name a file with one in"
                " OUTLAST_API_KEY_FILE, for example one made with `openssl rand -hex 32`",
            )

    async def authenticate(self, token: str) -> Identity | None:
        """Give the caller that holds a token, None for one that is not taken.

        Raises:
            DriverUnavailable: whether it is, is not known: the store of keys has been away for seconds.
        """
        if self.is_open:
            return OPEN_IDENTITY
        taken = read_token(token)
        if taken is None or self._ring is None:
            return self._of_file(token)
        known = await self._ring.find(taken.key_id)
        if not opens(taken, known) or known is None:
            return self._of_file(token)
        self._used.add(taken.key_id)
        return known.identity

    async def find(self, key_id: str, was_shown: Callable[[bytes], bool]) -> Identity | None:
        """Give the caller of a key in force by its id, for one who has shown the key before; None for one that is not.

        `was_shown` says of a secret's digest whether it is the one that was shown: a key whose secrets in force are all
        others is not this caller's any more.

        Raises:
            DriverUnavailable: whether it is, is not known.
        """
        if key_id == BOOTSTRAP_IDENTITY.key_id:
            return BOOTSTRAP_IDENTITY if self._bootstrap is not None and was_shown(self._bootstrap) else None
        known = None if self._ring is None else await self._ring.find(KeyId(key_id))
        if known is None or not any(was_shown(digest) for digest in known.digests):
            return None
        self._used.add(KeyId(key_id))
        return known.identity

    async def end_session(self, session: UUID, *, lasts: timedelta) -> None:
        """End a session that was begun with a key, here at once and in every process as soon as a key would end.

        Raises:
            DriverUnavailable: the store is away; here it has ended all the same.
        """
        self._ended[session] = self._monotonic() + lasts.total_seconds()
        self._ended = {each: until for each, until in self._ended.items() if until > self._monotonic()}
        if self._store is not None:
            await self._store.end_session(session, lasts=lasts)

    async def has_ended(self, session: UUID) -> bool:
        """Say whether a session was ended. Raises `DRIVER_UNAVAILABLE` when that is not known."""
        return session in self._ended or (self._ring is not None and await self._ring.has_ended(session))

    async def holds(self, identity: Identity) -> bool:
        """Say whether a caller that came in may stay: its key is in force still, and what it was.

        While the store is away everybody stays; there is nothing to be seen then.
        """
        if self._ring is None or identity.key_id in (OPEN_IDENTITY.key_id, BOOTSTRAP_IDENTITY.key_id):
            return True
        try:
            known = await self._ring.find(KeyId(identity.key_id))
        except OutlastError:
            return True
        return known is not None and known.identity == identity

    async def changed(self) -> None:
        """Know keys as they are now, here and at once: one was just made, changed or revoked by this process."""
        if self._ring is not None:
            await self._ring.read_again()

    def refused(self, error: OutlastError, identity: Identity | None, *, address: str | None, path: str) -> None:
        """Note that a caller was turned away, for the audit."""
        if self._refusals is not None:
            self._refusals.note(error, identity, address=address, path=path)

    # --- beside the requests

    def open(self) -> None:
        """Begin again after a `stop`; `run` follows."""
        self._over = asyncio.Event()

    def stop(self) -> None:
        """Let `run` write what is left and return."""
        self._over.set()

    async def run(self, on_failed: Callable[[OutlastError], object]) -> None:
        """Write what was noted, every few seconds and once more at `stop`; never on the path of a request."""
        while not self._over.is_set():
            try:
                async with asyncio.timeout(_WRITE_SECONDS):
                    await self._over.wait()
            except TimeoutError:
                pass
            is_last = self._over.is_set()
            try:
                await self.write(with_use=is_last or self._monotonic() - self._used_at >= _USE_SECONDS)
            except OutlastError as error:
                on_failed(error)
        if self._ring is not None:
            await self._ring.close()

    async def write(self, *, with_use: bool = True) -> None:
        """Write who was turned away and, now and then, which keys were used."""
        if self._refusals is not None:
            await self._refusals.write()
        if with_use and self._used and self._store is not None:
            used, self._used, self._used_at = self._used, set(), self._monotonic()
            await self._store.used(tuple(used))

    def _of_file(self, token: str) -> Identity | None:
        if self._bootstrap is None:
            return None
        return BOOTSTRAP_IDENTITY if hmac.compare_digest(_digest(token), self._bootstrap) else None


def digest_of(identity: Identity, token: str) -> bytes:
    """Give the digest of the secret in a token that was taken for a caller."""
    taken = read_token(token)
    return taken.digest if taken is not None and taken.key_id == identity.key_id else _digest(token)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
