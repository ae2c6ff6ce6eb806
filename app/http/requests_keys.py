"""What callers send about API keys. A part of `requests`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from ..domain.api_key import LAST4_PATTERN, Scope
from ..domain.issued import MAX_LABEL_CHARS, MOST_OVERLAP_MS
from ..domain.job import NAME_PATTERN
from .requests import PRINTABLE, Instant, Key, Strict, printable
from .requests_actions import Reason

_MOST_QUEUES = 100


def _scope(value: object) -> object:
    if isinstance(value, str) and value in {scope.value for scope in Scope}:
        return Scope(value)
    raise ValueError(f"must be one of {', '.join(Scope)}")


_ScopeWord = Annotated[Scope, BeforeValidator(_scope, json_schema_input_type=Scope)]


class KeyBody(Strict):
    """The body of `POST /v1/api-keys`."""

    label: Annotated[
        str, BeforeValidator(printable), Field(min_length=1, max_length=MAX_LABEL_CHARS, json_schema_extra=PRINTABLE)
    ] = Field(description="Who uses it; shown in lists and in the audit.")
    scopes: Annotated[
        list[_ScopeWord], Field(min_length=1, max_length=len(Scope), json_schema_extra={"uniqueItems": True})
    ] = Field(description="What it may do; no more than the key that makes it.")
    tenant: Key | None = Field(default=None, description="Whom it acts for: without it, as the key that makes it.")
    queues: (
        Annotated[
            list[Annotated[str, Field(pattern=NAME_PATTERN)]],
            Field(min_length=1, max_length=_MOST_QUEUES, json_schema_extra={"uniqueItems": True}),
        ]
        | None
    ) = Field(default=None, description="The queues it may enqueue to and act on; all of them without it.")
    expires_at: Instant | None = Field(default=None, description="When it ends by itself.")
    reason: Reason = None

    @model_validator(mode="after")
    def _names_each_once(self) -> KeyBody:
        for name in ("scopes", "queues"):
            given = getattr(self, name)
            if given is not None and len(set(given)) != len(given):
                raise ValueError(f"{name} names one twice")
        return self


class RotateBody(Strict):
    """The body of `POST /v1/api-keys/{id}/rotate`, which may be left out."""

    overlap_ms: Annotated[int, Field(ge=0, le=MOST_OVERLAP_MS)] = Field(
        default=86_400_000, description="How long the secret before goes on being taken: a day without it."
    )
    replaces: Annotated[str, Field(pattern=LAST4_PATTERN)] | None = Field(
        default=None,
        description="`last4` of the secret that is to be replaced: `412` when another one is in force by now.",
    )
    reason: Reason = None
