"""The way in over HTTP: whether this process may serve at all, and the token that a request carries.

Off loopback nothing is served without a key; on loopback without one only `dev` serves, openly, to pages of its own
origin. The edge authenticates every request by `control.guard`; routes name the scope they need.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import Path

from ..control.guard import Guard
from ..domain.api_key import Identity as Identity  # noqa: PLC0414 - words of this module's users
from ..domain.api_key import Scope as Scope  # noqa: PLC0414
from ..domain.errors import SettingsInvalid, Unauthenticated

_SHORTEST_KEY = 20
_LONGEST_KEY = 512
_MAKE_ONE = "name a file with a key in OUTLAST_API_KEY_FILE, for example one made with `openssl rand -hex 32`"


def check_way_in(*, host: str, has_key: bool, has_store: bool, is_dev: bool) -> bool:
    """Decide whether a process that listens on `host` serves openly (True), or asks for keys.

    Raises `SETTINGS_INVALID` where serving would let strangers in, or could let nobody in: without a key and without a
    store of keys anywhere but in `dev` on loopback. Whether such a store has keys is asked once it is open.
    """
    if has_key:
        return False
    if is_dev and is_loopback(host):
        return True
    if has_store:
        return False
    if not is_loopback(host):
        raise SettingsInvalid(
            f"there is no key and {host} can be reached from other machines"
            if host
            else "there is no key, and which address the server binds to is not known here",
            fix=_MAKE_ONE,
        )
    raise SettingsInvalid("there is no key, and only `outlast dev` serves without one", fix=_MAKE_ONE)


async def authenticate(guard: Guard, headers: Sequence[bytes]) -> Identity:
    """Give the caller behind a request's `Authorization` headers.

    Raises:
        Unauthenticated: there is no token, or one that is not taken.
    """
    token = "" if guard.is_open else _bearer_token(headers)
    identity = await guard.authenticate(token)
    if identity is None:
        raise _not_known()
    return identity


async def check_held(guard: Guard, identity: Identity) -> None:
    """Refuse a caller whose request waited, and whose key ended meanwhile. Raises `UNAUTHENTICATED`."""
    if not await guard.holds(identity):
        raise _not_known()


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


def _not_known() -> Unauthenticated:
    return Unauthenticated(
        "this key is not known here, or no longer",
        fix="send a key that `outlast keys list` shows to be in force; a new one is known after a second",
    )


def _bearer_token(headers: Sequence[bytes]) -> str:
    scheme, _, token = (headers[0] if len(headers) == 1 else b"").partition(b" ")
    if scheme.lower() != b"bearer" or not token.strip():
        raise Unauthenticated("the request carries no key", fix="send `Authorization: Bearer KEY`")
    return token.strip().decode("latin-1")
