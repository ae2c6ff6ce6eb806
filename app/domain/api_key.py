"""API keys: what one may do and for whom, how its token is made and read, and what a store keeps of it.

A token is `ol_<id>_<secret>`. The id is no secret: it finds the row. The secret is 256 random bits, so its SHA-256
says nothing about it, and a slow hash would only slow down the service. Nothing here ever holds a secret for longer
than it takes to hand it out once. Called by `control`, `http` and the drivers.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NewType

from .errors import Forbidden, NotFound, PreconditionFailed, RequestInvalid
from .issued import check_label, turned, unfit
from .job import NAME_PATTERN
from .text import is_printable

KeyId = NewType("KeyId", str)

# Every process of the API holds all keys that are in force.
MOST_KEYS = 10_000

# How people tell two secrets of a key apart.
LAST4_PATTERN = "^[0-9a-f]{4}$"
_TOKEN = re.compile(r"ol_([0-9a-f]{16})_([0-9a-f]{64})")
_NOBODYS = hashlib.sha256(b"nobody's").digest()


class Scope(StrEnum):
    """What a key may do."""

    JOBS_READ = "jobs:read"
    JOBS_WRITE = "jobs:write"
    PAYLOAD_READ = "payload:read"
    OPERATE = "operate"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A caller. `tenant` is the one it may act for, None for all of them; `queues` those it may act on, None for all.

    `key_id` stands for the key through all its secrets; `name` is what the audit calls the caller.
    """

    name: str
    tenant: str | None
    scopes: frozenset[Scope]
    key_id: str = "dev"
    queues: frozenset[str] | None = None

    def may(self, scope: Scope) -> bool:
        """Say whether the caller holds a scope."""
        return scope in self.scopes

    def check(self, *scopes: Scope) -> None:
        """Raise `FORBIDDEN` unless the caller holds every scope."""
        missing = [scope.value for scope in scopes if scope not in self.scopes]
        if missing:
            raise Forbidden(
                f"the key {self.name!r} lacks the scope {', '.join(missing)}",
                fix="use a key that has it; `outlast keys create --scope "
                + " --scope ".join(missing)
                + "` makes one, `outlast keys list` shows what each may do",
                missing=missing,
            )

    def check_queue(self, queue: str) -> None:
        """Raise `FORBIDDEN` unless the caller may act on a queue and its jobs."""
        if self.queues is not None and queue not in self.queues:
            raise Forbidden(
                f"the key {self.name!r} may not act on the queue {queue!r}",
                fix=f"use a key for that queue; this one is for {', '.join(sorted(self.queues))}",
            )

    def check_every_tenant(self, what: str) -> None:
        """Raise `FORBIDDEN` for a caller of one tenant: what it asks for is between tenants."""
        if self.tenant is not None:
            raise Forbidden(
                f"the key {self.name!r} acts for one tenant, and {what} are between tenants",
                fix="use a key for all tenants (`outlast keys create --all-tenants`), or the command line",
            )

    def check_every_queue(self, what: str) -> None:
        """Raise `FORBIDDEN` for a caller bound to queues: what it asks for is not about one of them alone."""
        if self.queues is not None:
            raise Forbidden(
                f"the key {self.name!r} is bound to queues, and {what} is not about one queue alone",
                fix="use a key that is not bound to queues",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is sent as a bearer token, taken apart. `repr` never shows the secret."""

    key_id: KeyId
    digest: bytes

    def __repr__(self) -> str:
        """Name the key alone."""
        return f"Token({self.key_id})"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSecret:
    """A secret's traces: its SHA-256 and the last four characters, by which people tell two apart."""

    digest: bytes
    last4: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key to be stored. `tenant=None` is a key for all tenants, `queues=None` one for all queues."""

    id: KeyId
    secret: NewSecret
    label: str
    tenant: str | None
    scopes: frozenset[Scope]
    created_by: str
    queues: frozenset[str] | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyView:
    """A key as people see it. `previous_last4` is set while a secret that was replaced is still taken."""

    id: KeyId
    label: str
    tenant: str | None
    scopes: frozenset[Scope]
    queues: frozenset[str] | None
    last4: str
    previous_last4: str | None
    previous_until: datetime | None
    created_at: datetime
    created_by: str
    rotated_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    last_used_at: datetime | None

    @property
    def identity(self) -> Identity:
        """Give the caller that holds this key."""
        name = f"{self.label} ({self.id})"
        return Identity(name=name, tenant=self.tenant, scopes=self.scopes, key_id=self.id, queues=self.queues)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKey:
    """A key in force, and the SHA-256 of every secret that is taken for it."""

    identity: Identity
    digests: tuple[bytes, ...]


def new_id() -> KeyId:
    """Mint a key's id."""
    return KeyId(secrets.token_hex(8))


def new_token(key_id: KeyId, *, unlike: str | None = None) -> tuple[str, NewSecret]:
    """Make a secret for a key: the token to be shown once, and what is kept of it.

    It ends otherwise than in the four characters `unlike`, by which the secret before is told from it.
    """
    secret = secrets.token_hex(32)
    while secret[-4:] == unlike:
        secret = secrets.token_hex(32)
    kept = NewSecret(digest=hashlib.sha256(secret.encode()).digest(), last4=secret[-4:])
    return f"ol_{key_id}_{secret}", kept


def read_token(text: str) -> Token | None:
    """Take a bearer token apart; None for what cannot be one of ours."""
    found = _TOKEN.fullmatch(text)
    if found is None:
        return None
    return Token(key_id=KeyId(found[1]), digest=hashlib.sha256(found[2].encode()).digest())


def opens(token: Token, known: KnownKey | None) -> bool:
    """Say whether a token's secret is one of a key's. Two digests are compared whether or not there is a key."""
    digests = () if known is None else known.digests
    first, second = (*digests, _NOBODYS, _NOBODYS)[:2]
    is_first = hmac.compare_digest(token.digest, first)
    is_second = hmac.compare_digest(token.digest, second)
    return (is_first or is_second) and known is not None


def check_key(key: NewKey, *, now: datetime) -> None:
    """Raise `REQUEST_INVALID` for a key that could do nothing, or stands for nothing."""
    check_label(key.label, fix="name who uses the key")
    if not key.scopes:
        raise unfit("scopes", "a key without a scope may do nothing", "name at least one scope")
    if key.queues is not None and not key.queues:
        raise unfit("queues", "a key for no queue may do nothing", "name queues, or leave them out for all of them")
    for queue in key.queues or ():
        if not re.fullmatch(NAME_PATTERN, queue):
            raise unfit("queues", f"{queue[:64]!r} is not the name of a queue", f"match {NAME_PATTERN}")
    if key.tenant is not None and not is_printable(key.tenant):
        raise unfit("tenant", "this is not a tenant", "give 1 to 255 printable characters")
    if key.expires_at is not None and key.expires_at <= now:
        raise unfit("expires_at", "the key would have expired already", "give a time to come")


def unknown_key(key_id: str) -> NotFound:
    """Give the refusal of an id that no key has, or another tenant's."""
    return NotFound(f"there is no API key {key_id[:64]!r}", fix="list the keys with `outlast keys list`")


def turned_key(key_id: KeyId, last4: str) -> PreconditionFailed:
    """Give the refusal of a rotation that was asked for before another one took place."""
    return turned(f"key {key_id}", f"ending in {last4}")


def too_many_keys() -> RequestInvalid:
    """Give the refusal of a key beyond the most that may be in force."""
    return RequestInvalid(
        f"{MOST_KEYS} API keys are in force already", fix="revoke those that nobody uses: `outlast keys list`"
    )
