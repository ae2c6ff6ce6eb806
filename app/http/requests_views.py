"""The queries of slots, limits, deploys and the preview of a schedule. A part of `requests`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ..control.fleet import LARGEST_WORKER_ID
from ..control.schedules import MOST_FIRES
from .requests import Cursor, Instant, Key, Name, whole_number, worker_number


class SlotParams(BaseModel):
    """The query of `GET /v1/slots`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name | None = Field(default=None, description="The job type.")
    tenant: Key | None = Field(default=None, description="A tenant the key may act for.")
    limit: Annotated[int, BeforeValidator(whole_number)] = Field(default=50, ge=1, le=200)
    cursor: Cursor | None = Field(default=None, description="`next_cursor` of the page before.")


class LimitParams(BaseModel):
    """The query of `GET /v1/limits`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name | None = Field(default=None, description="The job type.")


class DeployParams(BaseModel):
    """The query of `GET /v1/deploys`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int, BeforeValidator(whole_number)] = Field(default=20, ge=1, le=50)
    before: Annotated[int | None, BeforeValidator(worker_number)] = Field(
        default=None,
        ge=1,
        le=LARGEST_WORKER_ID,
        description="`next_before` of the page before: only workers of lower ids.",
    )


Rule = Annotated[str, Field(max_length=255, json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f]*$"})]


class PreviewParams(BaseModel):
    """The query of `GET /v1/schedules/preview`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cron: Rule = Field(description="Five fields, or one of `@hourly @daily @weekly @monthly @yearly`.")
    tz: Rule = Field(description="A zone of the IANA database, such as `Europe/Berlin`.")
    n: Annotated[int, BeforeValidator(whole_number)] = Field(
        default=5, ge=1, le=MOST_FIRES, description="How many times to show."
    )
    after: Instant | None = Field(default=None, description="Times after this one; after now without it.")
