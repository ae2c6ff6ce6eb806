"""How values are written for the service: durations, times, payloads, ids, and the names of job types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeAlias, TypeVar
from uuid import UUID

from pydantic_core import PydanticSerializationError, to_jsonable_python

from ..domain.errors import PayloadInvalid, RequestInvalid

ResultT_co = TypeVar("ResultT_co", covariant=True)


class HasId(Protocol):
    """A job, in whatever form it was answered; a staged one too."""

    @property
    def id(self) -> UUID:
        """Give its id."""
        ...


class Named(Protocol):
    """A job type; every `JobHandle` is one."""

    @property
    def name(self) -> str:
        """Give its name."""
        ...


class Decodes(Named, Protocol[ResultT_co]):
    """A job type that knows what its jobs return; every `JobHandle` does."""

    def result_of(self, text: str | None) -> ResultT_co:
        """Give a result from its JSON text."""
        ...


JobLike: TypeAlias = HasId | UUID | str
TypeLike: TypeAlias = Named | str


def id_of(job: JobLike) -> str:
    """Give a job's id as paths have it."""
    return str(job) if isinstance(job, UUID | str) else str(job.id)


def name_of(job_type: TypeLike) -> str:
    """Give a job type's name."""
    return job_type if isinstance(job_type, str) else job_type.name


def ms(duration: timedelta | None) -> int | None:
    """Give whole milliseconds. Raises `RequestInvalid` for what has no unit."""
    if duration is None:
        return None
    if not isinstance(duration, timedelta):
        raise RequestInvalid(f"{duration!r} is no duration", fix="pass a timedelta")
    return duration // timedelta(milliseconds=1)


def instant(at: datetime | None) -> str | None:
    """Give RFC 3339 in UTC. Raises `RequestInvalid` for a time without a zone."""
    if at is None:
        return None
    if at.tzinfo is None:
        raise RequestInvalid(f"{at!r} has no zone", fix="pass an aware datetime, such as datetime.now(UTC)")
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def to_json(value: object) -> Any:  # noqa: ANN401 - JSON
    """Give a payload as JSON has it: models and dataclasses by their aliases, times and ids as text.

    Raises:
        PayloadInvalid: it has no JSON form; NaN and infinity have none.
    """
    try:
        made = to_jsonable_python(value, by_alias=True, inf_nan_mode="constants")
        json.dumps(made, allow_nan=False)
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as exc:
        raise PayloadInvalid(
            f"the value has no JSON form: {exc}", fix="send values that JSON can carry", pointer="/payload"
        ) from exc
    return made


def encode(body: Mapping[str, Any]) -> bytes:
    """Give a body as it is sent, every digit kept."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
