"""What callers are answered about API keys; a part of `answers`."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from ..domain.api_key import Scope
from .answers import Answer


class ApiKey(Answer):
    """A key. Its secret is not kept, so nothing here has it."""

    id: str
    label: str
    tenant: str | None = Field(description="Null for all tenants.")
    scopes: list[Scope]
    queues: list[str] | None = Field(description="Null for all queues.")
    last4: str = Field(description="The end of its secret, by which to tell two apart.")
    previous_last4: str | None = Field(description="The end of the secret before, while that is still taken.")
    previous_until: datetime | None
    created_at: datetime
    created_by: str
    rotated_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    last_used_at: datetime | None = Field(description="To the minute.")


class IssuedApiKey(ApiKey):
    """A key with its token, which is answered this once."""

    token: str


class ApiKeyList(Answer):
    """Keys, the newest first."""

    items: list[ApiKey]
