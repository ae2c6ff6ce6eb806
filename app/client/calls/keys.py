"""API keys: make, list, give a new secret, revoke. Needs a key with the scope `admin`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from ..answers.keys import ApiKey, IssuedApiKey
from ..call import Answer, Call, get, get_items, given, path
from ..wire import instant, ms

Scope: TypeAlias = Literal["jobs:read", "jobs:write", "payload:read", "operate", "admin"]


def list_keys() -> Call[tuple[ApiKey, ...]]:
    """Give the keys, newest first, revoked and expired ones too."""
    return get_items("/v1/api-keys", ApiKey)


def get_key(key: ApiKey | str) -> Call[ApiKey]:
    """Give one key."""
    return get(path("v1", "api-keys", _id_of(key)), ApiKey)


def create_key(
    label: str,
    scopes: Sequence[Scope],
    *,
    tenant: str | None = None,
    queues: Sequence[str] | None = None,
    expires_at: datetime | None = None,
    reason: str | None = None,
) -> Call[IssuedApiKey]:
    """Make a key that may do no more than the one that makes it. Its `token` is in this answer alone.

    It is not repeated when no answer comes: look whether there is a key of this label, and revoke it.
    """
    body = given(
        label=label,
        scopes=list(scopes),
        tenant=tenant,
        queues=None if queues is None else list(queues),
        expires_at=instant(expires_at),
        reason=reason,
    )
    return Call(method="POST", path="/v1/api-keys", read=_issued, body=body, is_kept=False)


def rotate_key(
    key: ApiKey | str, *, overlap: timedelta | None = None, replaces: str | None = None, reason: str | None = None
) -> Call[IssuedApiKey]:
    """Give a key a new secret; the one before is taken for the `overlap` more, a day if it is not said.

    It is not repeated when no answer comes: the secret in use could end at once. Where `replaces` is the `last4` of
    that one, it can be asked again. Taken for the overlap all the same, it has time for another key to be made, and
    this one revoked.

    Raises:
        ProblemError: `PRECONDITION_FAILED`: another secret than `replaces` says is in force by now.
    """
    where = path("v1", "api-keys", _id_of(key), "rotate")
    body = given(overlap_ms=ms(overlap), replaces=replaces, reason=reason)
    return Call(method="POST", path=where, read=_issued, body=body, is_kept=False)


def revoke_key(key: ApiKey | str, *, reason: str | None = None) -> Call[ApiKey]:
    """End a key and its secrets for good."""
    where = path("v1", "api-keys", _id_of(key))
    return Call(method="DELETE", path=where, read=_key, query=given(reason=reason))


def _id_of(key: ApiKey | str) -> str:
    return key if isinstance(key, str) else key.id


def _issued(answer: Answer) -> IssuedApiKey:
    return IssuedApiKey.model_validate_json(answer.body)


def _key(answer: Answer) -> ApiKey:
    return ApiKey.model_validate_json(answer.body)
