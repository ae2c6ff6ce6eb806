"""What callers send, field by field: strict models whose bounds are those of the store.

Nothing is coerced and nothing unknown is let through. Fields that belong to the contract and are not built yet are
known here, so that they can be refused as such. Called by the routers; the OpenAPI document is made from them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from ..control.fleet import LARGEST_WORKER_ID
from ..domain.bulk import JobFilter
from ..domain.job import LONGEST_DURATION, MAX_PRIORITY, MAX_TAGS, NAME_PATTERN
from ..domain.limit import MOST_SLOTS
from ..domain.queue import MOST_LIMIT
from ..domain.retry import MOST_ATTEMPTS
from ..domain.state import State
from ..domain.step import STEP_NAME_MOST
from ..domain.text import MAX_KEY_CHARS, MAX_TAG_CHARS, is_printable, read_uuid
from ..domain.turns import MOST_WEIGHT, MOST_WEIGHTS
from ..domain.webhook import WEBHOOK_PATTERN
from ..domain.webhook_address import MAX_URL_CHARS
from .fields import at_most_one, never_with

_LONGEST_MS = LONGEST_DURATION // timedelta(milliseconds=1)
_INSTANT = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt]((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(\.\d{1,9})?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
)
_MICROSECOND_DIGITS = 6


def _instant(value: object) -> object:
    """Read RFC 3339 with an offset; a number is no instant, and neither are 24:00, a 60th second or a naive time."""
    match = _INSTANT.fullmatch(value) if isinstance(value, str) and value.isascii() else None
    if match is None:
        raise ValueError("must be a time like 2027-01-31T12:00:00Z")
    date, time, fraction, offset = match.groups()
    micros = (fraction or ".0")[1:][:_MICROSECOND_DIGITS].ljust(_MICROSECOND_DIGITS, "0")
    try:
        written = f"{date}T{time}.{micros}{'+00:00' if offset in 'Zz' else offset}"
        return datetime.fromisoformat(written).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("is no instant of the calendar") from None


def _uuid(value: object) -> object:
    found = read_uuid(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("must be a UUID")
    return found


def printable(value: object) -> object:
    """Let a text of printable characters through that is not blank."""
    if isinstance(value, str) and not is_printable(value, max_chars=len(value)):
        raise ValueError("must be printable characters, and not blank")
    return value


def _state(value: object) -> object:
    if not isinstance(value, str) or value not in set(State):
        raise ValueError(f"must be one of {', '.join(State)}")
    return State(value)


def whole_number(value: object) -> object:
    """Read a decimal number of a query; a sign, a blank or an underscore is none."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value, re.ASCII):
        return int(value)
    if isinstance(value, int):
        return value
    raise ValueError("must be a whole number")


def worker_number(value: object) -> object:
    """Read an id as `next_before` gives it: it has one spelling."""
    if isinstance(value, str) and re.fullmatch(r"[1-9][0-9]{0,9}", value, re.ASCII) and int(value) <= LARGEST_WORKER_ID:
        return int(value)
    raise ValueError("must be the id of a worker, without a sign or leading zeros")


Name = Annotated[str, Field(pattern=NAME_PATTERN, description="Lower-case letters, digits and `_.:-`.")]
# Printable and not blank, as far as every dialect of patterns can say it: format characters and those that are not
# assigned are left to `printable`.
PRINTABLE: dict[str, JsonValue] = {"pattern": r"^ *[^\s\x00-\x1f\x7f-\x9f](?:[^\s\x00-\x1f\x7f-\x9f]| )*$"}
Key = Annotated[
    str, BeforeValidator(printable), Field(min_length=1, max_length=MAX_KEY_CHARS, json_schema_extra=PRINTABLE)
]
StepName = Annotated[
    str, BeforeValidator(printable), Field(min_length=1, max_length=STEP_NAME_MOST, json_schema_extra=PRINTABLE)
]
Tag = Annotated[
    str, BeforeValidator(printable), Field(min_length=1, max_length=MAX_TAG_CHARS, json_schema_extra=PRINTABLE)
]
Cursor = Annotated[str, Field(max_length=200, json_schema_extra={"pattern": "^[A-Za-z0-9_-]*$"})]
Instant = Annotated[datetime, BeforeValidator(_instant, json_schema_input_type=datetime)]
StateWord = Annotated[State, BeforeValidator(_state, json_schema_input_type=State)]
UuidText = Annotated[UUID, BeforeValidator(_uuid, json_schema_input_type=UUID)]
Milliseconds = Annotated[int, Field(ge=1, le=_LONGEST_MS)]


class Strict(BaseModel):
    """A body: its fields and nothing else, each of its own type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CallbackBody(Strict):
    """Who is told when a job ends."""

    secret_id: Annotated[str, Field(pattern=WEBHOOK_PATTERN)] = Field(
        description="The webhook, of the job's tenant, whose secret signs."
    )
    url: Annotated[str, BeforeValidator(printable), Field(min_length=1, max_length=MAX_URL_CHARS)] | None = Field(
        default=None, description="Another address than the webhook's own, of the same scheme, host and port."
    )
    events: Annotated[list[Literal["done", "dead", "cancelled"]], Field(min_length=1, max_length=3)] | None = Field(
        default=None, description="The ends to be told of; all of them without it."
    )


# Facts of the enqueuer's own: no list and no object among them.
_Flat = Annotated[
    dict[str, Any],
    Field(json_schema_extra={"additionalProperties": {"type": ["string", "number", "boolean", "null"]}}),
]


class EnqueueBody(Strict):
    """The body of `POST /v1/jobs`."""

    model_config = ConfigDict(json_schema_extra=at_most_one("run_at", "delay_ms"))

    name: Name = Field(description="The job type.")
    payload: Any = Field(
        description="What the job is about: any JSON the job type's schema accepts, kept and given back byte for byte."
    )
    queue: Name | None = Field(default=None, description="Another queue than the job type's own.")
    priority: int | None = Field(default=None, ge=0, le=MAX_PRIORITY, description="0 to 9, lower first.")
    run_at: Instant | None = Field(
        default=None, description="Not before this time, RFC 3339. From a day ago to five years ahead."
    )
    delay_ms: int | None = Field(default=None, ge=0, le=_LONGEST_MS, description="Not before so long from now.")
    max_attempts: int | None = Field(default=None, ge=1, le=MOST_ATTEMPTS, description="At most the job type's own.")
    timeout_ms: Milliseconds | None = Field(default=None, description="One attempt's time; at most the job type's own.")
    idempotency_key: Key | None = Field(
        default=None, description="At most one live job per name, tenant and key; a second enqueue gives the first job."
    )
    on_conflict: Literal["return", "error"] | None = Field(
        default=None, description="What a taken key does: give the job that has it, or answer `JOB_DUPLICATE`."
    )
    dedupe_for_ms: Milliseconds | None = Field(
        default=None, description="The key stays taken at least so long from now, even when the job has ended."
    )
    tags: list[Tag] = Field(default_factory=list, max_length=MAX_TAGS, description="Words to find the job by.")
    meta: _Flat | None = Field(
        default=None, description="Facts of the caller's own, flat, at most 4 KiB, kept and given back byte for byte."
    )
    parent_id: UuidText | None = Field(default=None, description="The job this one belongs to.")
    callback: CallbackBody | None = Field(default=None, description="Who is told when the job ends.")

    @model_validator(mode="after")
    def _one_start(self) -> EnqueueBody:
        if self.run_at is not None and self.delay_ms is not None:
            raise ValueError("run_at and delay_ms exclude each other")
        return self


class CancelBody(Strict):
    """The body of `POST /v1/jobs/{id}/cancel`, which may be left out."""

    reason: Key | None = Field(default=None, description="Becomes the job's `state_reason`.")


class RetryBody(Strict):
    """The body of `POST /v1/jobs/{id}/retry`, which may be left out."""

    model_config = ConfigDict(json_schema_extra=never_with("from_step", "mode", "fresh"))

    mode: Literal["resume", "fresh"] = Field(
        default="resume", description="Go on from the steps that are recorded, or begin a new run without any."
    )
    from_step: StepName | None = Field(
        default=None, description="Go on from before this step: it and all that were recorded after it are dropped."
    )
    reason: Key | None = Field(default=None, description="Why, in your own words; kept in the audit.")


class ForkBody(Strict):
    """The body of `POST /v1/jobs/{id}/fork`, which may be left out."""

    from_step: StepName | None = Field(
        default=None, description="The new job has the steps recorded before this one; all of them if it is left out."
    )
    reason: Key | None = Field(default=None, description="Why, in your own words; kept in the audit.")


class EventBody(Strict):
    """The body of `POST /v1/events`."""

    name: Name = Field(description="The event's name.")
    key: Key = Field(description="What it is about: runs wait for a name and a key.")
    payload: Any = Field(default=None, description="Any JSON, given to the runs that waited; kept byte for byte.")
    tenant: Key | None = Field(
        default=None, description="Whose event it is, for a key that acts for several tenants; else the key's own."
    )


class PauseBody(Strict):
    """The body of `POST /v1/schedules/{name}/pause`; it may be left out."""

    reason: Key | None = Field(default=None, description="Shown wherever the pause is.")


class DeadPurgeBody(Strict):
    """The body of `POST /v1/dead-letters/purge`."""

    older_than_ms: int = Field(ge=0, le=_LONGEST_MS, description="Only those that died longer ago than this.")
    name: Name | None = Field(default=None, description="Only jobs of this type.")
    after: Annotated[UUID, BeforeValidator(_uuid, json_schema_input_type=UUID)] | None = Field(
        default=None, description="`next_after` of the answer before: goes on there."
    )
    dry_run: bool = Field(default=False, description="Count, and delete nothing.")


class QueuePauseBody(PauseBody):
    """The body of `POST /v1/queues/{name}/pause`; it may be left out."""

    until: Instant | None = Field(default=None, description="When it ends by itself; never without it.")


class QueuePatch(Strict):
    """The body of `PATCH /v1/queues/{name}`: what is left out stays, null takes a limit away."""

    concurrency: int | None = Field(
        default=None, ge=1, le=MOST_LIMIT, description="How many of its jobs may run in the whole fleet."
    )
    max_depth: int | None = Field(
        default=None, ge=0, le=MOST_LIMIT, description="How many ready and delayed jobs it takes in."
    )
    is_fair: bool = Field(default=False, description="Whether its tenants take turns.")
    weights: dict[str, Annotated[int, Field(ge=1, le=MOST_WEIGHT)] | None] = Field(
        default_factory=dict,
        max_length=MOST_WEIGHTS,
        description="How many starts each of these tenants gets where others get one, 1 to 1000; null for one. Tenants"
        " that are not named keep theirs. For keys of all tenants.",
    )


class LimitBody(Strict):
    """The body of `POST /v1/limits/{name}/{limit}`."""

    n: int | None = Field(ge=1, le=MOST_SLOTS, description="How many there may be; null for what is declared.")
    reason: Key | None = Field(default=None, description="Why, in your own words; kept in the audit.")


class NoBody(Strict):
    """The body of an action that takes none; `{}` is welcome."""


class JobFilterFields(BaseModel):
    """Which jobs: the filter of the list, and of bulk operations."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    state: list[StateWord] = Field(default_factory=list, description="Any of several states; without one, of every.")
    name: Name | None = Field(default=None, description="The job type.")
    queue: Name | None = Field(default=None, description="The queue.")
    tenant: Key | None = Field(default=None, description="A tenant the key may act for.")
    created_after: Instant | None = Field(default=None, description="Enqueued then or later.")
    created_before: Instant | None = Field(default=None, description="Enqueued earlier.")

    def jobs(self) -> JobFilter:
        """Give the filter; whose jobs it may find is the caller's to say."""
        return JobFilter(
            states=frozenset(self.state),
            name=self.name,
            queue=self.queue,
            created_after=self.created_after,
            created_before=self.created_before,
        )


class RunPageParams(BaseModel):
    """The query of `GET /v1/jobs/{id}/steps` and `/logs`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int, BeforeValidator(whole_number)] = Field(default=200, ge=1, le=1_000)
    cursor: Cursor | None = Field(default=None, description="`next_cursor` of the page before.")


class EventParams(BaseModel):
    """The query of `GET /v1/events`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name | None = Field(default=None, description="The event's name.")
    key: Key | None = Field(default=None, description="What it is about.")
    tenant: Key | None = Field(default=None, description="A tenant the key may act for.")
    limit: Annotated[int, BeforeValidator(whole_number)] = Field(default=50, ge=1, le=200)
    cursor: Cursor | None = Field(default=None, description="`next_cursor` of the page before.")
