"""What callers send about bulk operations, field by field; a part of `requests`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ..domain.bulk import MOST_IDS, BulkVerdict, ErrorKind, JobFilter
from ..domain.job import MAX_PRIORITY
from ..domain.state import State
from .fields import exactly_one, needs, only_with
from .requests import Cursor, Instant, JobFilterFields, Key, Name, Strict, UuidText, whole_number

# What every client can count to: an answer says it again.
_MOST_MEANT = 2**53 - 1
ActionWord = Literal["cancel", "retry", "release", "delete", "run_now", "reschedule", "set_priority"]


class ErrorFields(Strict):
    """One kind of dead letters, as `GET /v1/dead-letters` groups them."""

    reason: str = Field(max_length=255, description="Why they stopped.")
    type: str | None = Field(default=None, max_length=8_192, description="The last error's type; null for none.")
    code: str | None = Field(default=None, max_length=8_192, description="The last error's code; null for none.")

    def kind(self) -> ErrorKind:
        """Give it as a value."""
        return ErrorKind(reason=self.reason, type=self.type, code=self.code)


class BulkFilterFields(JobFilterFields):
    """The filter of bulk operations."""

    model_config = ConfigDict(
        json_schema_extra=needs("error", "state", {"type": "array", "minItems": 1, "items": {"const": "dead"}})
    )

    error: ErrorFields | None = Field(
        default=None, description="Dead jobs whose last error is of this kind, however old; with `state: [dead]`."
    )

    def jobs(self) -> JobFilter:
        """Give the filter; whose jobs it may find is the caller's to say."""
        return replace(super().jobs(), error=None if self.error is None else self.error.kind())


class BulkSelector(Strict):
    """Which jobs: some by their ids, or all that fit a filter."""

    model_config = ConfigDict(json_schema_extra=exactly_one("ids", "filter"))

    ids: list[UuidText] | None = Field(default=None, min_length=1, max_length=MOST_IDS, description="These jobs.")
    filter: BulkFilterFields | None = Field(
        default=None, description="All jobs that fit when the operation is made. Without times, of the last 7 days."
    )


class BulkBody(Strict):
    """The body of `POST /v1/bulk-operations`."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [*only_with("priority", "action", "set_priority"), *only_with("run_at", "action", "reschedule")]
        }
    )

    action: ActionWord = Field(description="What is done to each job.")
    selector: BulkSelector = Field(description="Which jobs; one of `ids` and `filter`.")
    dry_run: bool = Field(default=False, description="Only count, and change nothing.")
    expected_count: int | None = Field(
        default=None, ge=0, le=_MOST_MEANT, description="How many jobs are meant: with another number nothing is done."
    )
    reason: Key | None = Field(default=None, description="Why; kept with the operation, and with what is cancelled.")
    priority: int | None = Field(default=None, ge=0, le=MAX_PRIORITY, description="For `set_priority`.")
    run_at: Instant | None = Field(default=None, description="For `reschedule`.")


class DeadGroupFields(Strict):
    """One group of dead letters, as `GET /v1/dead-letters` gives it."""

    name: Name = Field(description="The job type.")
    reason: str = Field(max_length=255, description="Why they stopped.")
    error_type: str | None = Field(default=None, max_length=8_192, description="The last error's type; null for none.")
    error_code: str | None = Field(default=None, max_length=8_192, description="The last error's code; null for none.")

    def jobs(self) -> JobFilter:
        """Give the filter that fits the group alone."""
        error = ErrorKind(reason=self.reason, type=self.error_type, code=self.error_code)
        return JobFilter(states=frozenset({State.DEAD}), name=self.name, error=error)


class DeadRetryBody(Strict):
    """The body of `POST /v1/dead-letters/retry`."""

    group: DeadGroupFields = Field(description="Which dead letters.")
    dry_run: bool = Field(default=False, description="Only count, and change nothing.")
    expected_count: int | None = Field(
        default=None, ge=0, le=_MOST_MEANT, description="How many jobs are meant: with another number nothing is done."
    )
    reason: Key | None = Field(default=None, description="Why; kept with the operation and in the audit.")


class BulkListParams(BaseModel):
    """The query of `GET /v1/bulk-operations`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tenant: Key | None = Field(default=None, description="A tenant the key may act for.")
    limit: Annotated[int, BeforeValidator(whole_number)] = Field(default=50, ge=1, le=200)
    cursor: Cursor | None = Field(default=None, description="`next_cursor` of the page before.")


def _verdict(value: object) -> object:
    if not isinstance(value, str) or value not in set(BulkVerdict):
        raise ValueError(f"must be one of {', '.join(BulkVerdict)}")
    return BulkVerdict(value)


class BulkItemParams(BaseModel):
    """The query of `GET /v1/bulk-operations/{id}/items`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    verdict: list[Annotated[BulkVerdict, BeforeValidator(_verdict, json_schema_input_type=BulkVerdict)]] = Field(
        default_factory=list, description="Repeat it to ask for several; without one, all jobs, undecided ones too."
    )
    limit: Annotated[int, BeforeValidator(whole_number)] = Field(default=50, ge=1, le=200)
    cursor: Cursor | None = Field(default=None, description="`next_cursor` of the page before.")
