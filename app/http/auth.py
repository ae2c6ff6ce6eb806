"""Who is asking: the bootstrap key, what a caller may do, and whether this process may serve at all.

Off loopback nothing is served without a key; on loopback without one only `dev` serves, openly, to pages of its own
origin. Keys are compared as SHA-256 digests in constant time: a key is long and random, so a slow hash would only
slow down the service. The edge authenticates every request; routes name the scope they need.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ..domain.errors import Forbidden, SettingsInvalid, Unauthenticated
from ..domain.job import DEFAULT_TENANT

_SHORTEST_KEY = 20
_LONGEST_KEY = 512


class Scope(StrEnum):
    """What a key may do."""

    JOBS_READ = "jobs:read"
    JOBS_WRITE = "jobs:write"
    PAYLOAD_READ = "payload:read"
    OPERATE = "operate"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A caller. `tenant` is the one it may act for, None for all of them."""

    name: str
    tenant: str | None
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        """Say whether the caller holds a scope."""
        return scope in self.scopes

    def check(self, *scopes: Scope) -> None:
        """Raise `FORBIDDEN` unless the caller holds every scope."""
        missing = [scope.value for scope in scopes if scope not in self.scopes]
        if missing:
            raise Forbidden(
                f"the key {self.name!r} lacks the scope {', '.join(missing)}", fix="use a key that has the scope"
            )


_OPEN_IDENTITY = Identity(name="dev", tenant=None, scopes=frozenset(Scope))
_BOOTSTRAP_IDENTITY = Identity(name="bootstrap", tenant=DEFAULT_TENANT, scopes=frozenset(Scope))


class Auth:
    """Turns an `Authorization` header into an identity. `key=None` is the open service of `dev`."""

    def __init__(self, key: str | None) -> None:
        self._digest = None if key is None else hashlib.sha256(key.encode()).digest()

    @property
    def is_open(self) -> bool:
        """Say whether everybody who can connect may do everything."""
        return self._digest is None

    def authenticate(self, headers: Sequence[bytes]) -> Identity:
        """Give the caller behind the request's `Authorization` headers. Raises `UNAUTHENTICATED`."""
        if self._digest is None:
            return _OPEN_IDENTITY
        secret = _bearer_secret(headers)
        if not hmac.compare_digest(hashlib.sha256(secret).digest(), self._digest):
            raise Unauthenticated(
                "this key is not known here", fix="send the key in the file of OUTLAST_API_KEY_FILE as a bearer token"
            )
        return _BOOTSTRAP_IDENTITY


def decide_auth(*, host: str, key: str | None, is_dev: bool) -> Auth:
    """Decide how a process that listens on `host` authenticates.

    Raises `SETTINGS_INVALID` where serving would let strangers in: without a key anywhere but in `dev` on loopback.
    """
    if key is not None:
        return Auth(key)
    if not is_loopback(host):
        raise SettingsInvalid(
            f"there is no key and {host} can be reached from other machines"
            if host
            else "there is no key, and which address the server binds to is not known here",
            fix="name a file with a key in OUTLAST_API_KEY_FILE, for example one made with `openssl rand -hex 32`",
        )
    if not is_dev:
        raise SettingsInvalid(
            "there is no key, and only `outlast dev` serves without one",
            fix="name a file with a key in OUTLAST_API_KEY_FILE, for example one made with `openssl rand -hex 32`",
        )
    return Auth(None)


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach an address to bind to."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def read_key_file(path: Path) -> str:
    """Read the bootstrap key from its file. Raises `SETTINGS_INVALID` for a file that cannot hold a key."""
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsInvalid(
            f"the key file {path} cannot be read: {type(exc).__name__}",
            fix="point OUTLAST_API_KEY_FILE to a readable text file with one key",
        ) from exc
    if not _SHORTEST_KEY <= len(key) <= _LONGEST_KEY or not all("!" <= char <= "~" for char in key):
        raise SettingsInvalid(
            f"the key file {path} does not hold one key of {_SHORTEST_KEY} to {_LONGEST_KEY} printable characters",
            fix="make one with `openssl rand -hex 32` and store it alone in the file",
        )
    return key


def _bearer_secret(headers: Sequence[bytes]) -> bytes:
    scheme, _, secret = (headers[0] if len(headers) == 1 else b"").partition(b" ")
    if scheme.lower() != b"bearer" or not secret.strip():
        raise Unauthenticated("the request carries no key", fix="send `Authorization: Bearer KEY`")
    return secret.strip()
