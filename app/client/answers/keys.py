"""API keys as the service answers them."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from .shown import Shown


class ApiKey(Shown):
    """A key, without its secret. `tenant` None acts for all of them, `queues` None on all of them."""

    id: str
    label: str
    tenant: str | None = None
    scopes: tuple[str, ...]
    queues: tuple[str, ...] | None = None
    last4: str
    previous_last4: str | None = None
    previous_until: datetime | None = None
    created_at: datetime
    created_by: str
    rotated_at: datetime | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    last_used_at: datetime | None = None


class IssuedApiKey(ApiKey):
    """A key with its token, which is not to be had again; `repr` never shows it."""

    token: str = Field(repr=False)
