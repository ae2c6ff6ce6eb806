"""What callers send about webhooks, and the callback of an enqueue. A part of `requests`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from ..domain.issued import MAX_LABEL_CHARS, MOST_OVERLAP_MS
from ..domain.webhook_address import MAX_URL_CHARS
from .fields import not_null, one_or_more
from .requests import PRINTABLE, Cursor, Key, Strict, printable, whole_number
from .requests_actions import Reason

_Label = Annotated[
    str, BeforeValidator(printable), Field(min_length=1, max_length=MAX_LABEL_CHARS, json_schema_extra=PRINTABLE)
]
_Url = Annotated[
    str, BeforeValidator(printable), Field(min_length=1, max_length=MAX_URL_CHARS, json_schema_extra=PRINTABLE)
]
_MOST_SECRETS = 2_147_483_647


class WebhookBody(Strict):
    """The body of `POST /v1/webhooks`."""

    label: _Label = Field(description="Who receives it; shown in lists and in the audit.")
    url: _Url = Field(description="Where deliveries go: https, and an address of the public internet.")
    tenant: Key | None = Field(
        default=None, description="Whose it is, for a key that acts for several tenants; else the key's own."
    )
    reason: Reason = None


def _changes(schema: dict[str, JsonValue]) -> None:
    not_null(schema, but=("reason",))
    schema |= one_or_more("label", "url", "is_disabled")


class WebhookPatch(Strict):
    """The body of `PATCH /v1/webhooks/{id}`: what to change, one thing or more."""

    model_config = ConfigDict(json_schema_extra=_changes)

    label: _Label | None = None
    url: _Url | None = Field(default=None, description="Deliveries that are on their way go there, too.")
    is_disabled: bool | None = Field(default=None, description="True stops all deliveries, false begins again.")
    reason: Reason = None

    @model_validator(mode="after")
    def _changes_something(self) -> WebhookPatch:
        if not self.model_fields_set - {"reason"}:
            raise ValueError("names nothing to change")
        if None in (getattr(self, name) for name in self.model_fields_set - {"reason"}):
            raise ValueError("a field cannot be null: leave it out to keep its value")
        return self


class WebhookRotateBody(Strict):
    """The body of `POST /v1/webhooks/{id}/rotate`, which may be left out."""

    overlap_ms: Annotated[int, Field(ge=0, le=MOST_OVERLAP_MS)] = Field(
        default=86_400_000, description="How long the secret before goes on signing as well: a day without it."
    )
    replaces: Annotated[int, Field(ge=1, le=_MOST_SECRETS)] | None = Field(
        default=None,
        description="`secret_number` of the one that is to be replaced: `412` when another one signs by now.",
    )
    reason: Reason = None


class DeliveryParams(BaseModel):
    """The query of `GET /v1/webhooks/{id}/deliveries`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int, BeforeValidator(whole_number)] = Field(default=50, ge=1, le=200)
    cursor: Cursor | None = Field(default=None, description="`next_cursor` of the page before.")
