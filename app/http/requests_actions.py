"""What operators send: bodies of actions on one job, and the query of the audit. A part of `requests`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from ..domain.audit import MAX_ACTOR_CHARS, Action, Target
from ..domain.edit import JobPatch
from ..domain.job import MAX_PRIORITY, MAX_TAGS
from ..domain.retry import MOST_ATTEMPTS
from .fields import not_null, one_or_more
from .requests import PRINTABLE, Cursor, Instant, Key, Strict, Tag, printable, whole_number

Reason = Annotated[Key | None, Field(description="Why, in your own words; kept in the audit.")]


class ReasonBody(Strict):
    """The body of an action that asks for nothing else; it may be left out."""

    reason: Reason = None


def _changes(schema: dict[str, JsonValue]) -> None:
    not_null(schema, but=("reason",))
    schema |= one_or_more("priority", "run_at", "tags", "max_attempts")


class PatchBody(Strict):
    """The body of `PATCH /v1/jobs/{id}`: the fields to change, one or more."""

    model_config = ConfigDict(json_schema_extra=_changes)

    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY)] | None = Field(
        default=None, description="0 to 9, lower first. A ready job becomes the last of its new priority."
    )
    run_at: Instant | None = Field(
        default=None,
        description="Another time for a delayed or ready job, from a day ago to five years ahead; one that has passed"
        " makes it ready.",
    )
    tags: Annotated[list[Tag], Field(max_length=MAX_TAGS)] | None = Field(
        default=None, description="All of its tags from now on."
    )
    max_attempts: Annotated[int, Field(ge=1, le=MOST_ATTEMPTS)] | None = Field(
        default=None, description="Its budget of counted failures, also above the job type's own."
    )
    reason: Reason = None

    @model_validator(mode="after")
    def _changes_something(self) -> PatchBody:
        if not self.model_fields_set - {"reason"}:
            raise ValueError("names no field to change")
        if None in (getattr(self, name) for name in self.model_fields_set - {"reason"}):
            raise ValueError("a field cannot be null: leave it out to keep its value")
        return self

    def patch(self) -> JobPatch:
        """Give the change that is asked for."""
        tags = None if self.tags is None else tuple(self.tags)
        return JobPatch(priority=self.priority, run_at=self.run_at, tags=tags, max_attempts=self.max_attempts)


class DuplicateBody(Strict):
    """The body of `POST /v1/jobs/{id}/duplicate`, which may be left out."""

    input_patch: Any = Field(
        default=None,
        description="A JSON merge patch (RFC 7396) for the payload: members replace those of the same name, null"
        " removes one. What it leaves alone is kept byte for byte.",
    )
    reason: Reason = None


class DeleteParams(BaseModel):
    """The query of `DELETE /v1/jobs/{id}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: Reason = None


class AuditParams(BaseModel):
    """The query of `GET /v1/audit`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    actor: Annotated[
        str | None, BeforeValidator(printable), Field(max_length=MAX_ACTOR_CHARS, json_schema_extra=PRINTABLE)
    ] = Field(
        default=None,
        description="Who acted: the name of a key, or `cli:` and an account; a tenant's `operator` is everybody else.",
    )
    action: Action | None = Field(default=None, description="What was done.")
    target_kind: Target | None = Field(default=None, description="What kind of thing it was done to.")
    target: Annotated[str | None, BeforeValidator(printable), Field(max_length=512, json_schema_extra=PRINTABLE)] = (
        Field(default=None, description="Its id or name.")
    )
    tenant: Key | None = Field(default=None, description="A tenant the key may act for.")
    created_after: Instant | None = Field(default=None, description="Not before this time.")
    created_before: Instant | None = Field(default=None, description="Before this time.")
    limit: Annotated[int, BeforeValidator(whole_number)] = Field(default=50, ge=1, le=200)
    cursor: Cursor | None = Field(default=None, description="`next_cursor` of the page before.")
