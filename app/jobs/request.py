"""An enqueue request, and the bounds of its fields apart from the payload.

Bounds here are those of the store's columns, so that nothing that passes can be refused there. Built by HTTP and by
handles, read by admission.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import NoReturn
from uuid import UUID

from ..domain.errors import JsonInvalid, PayloadTooLarge, RequestInvalid
from ..domain.job import (
    LONGEST_DURATION,
    MAX_PRIORITY,
    MAX_TAGS,
    NAME_PATTERN,
    SHORTEST_DURATION,
    OnConflict,
)
from ..domain.json_text import KIB, JsonLimits, decode
from ..domain.text import MAX_KEY_CHARS, MAX_TAG_CHARS, is_printable, is_traceparent, printable_key, read_uuid
from ..domain.webhook import Callback
from .describe import milliseconds
from .jobtype import JobType
from .policy import is_name, is_priority

META_LIMITS = JsonLimits(max_bytes=4 * KIB, max_depth=1)
OLDEST_RUN_AT = timedelta(days=1)

# What must be of a type, how that is called, and a value of it: whoever enqueues from code can pass anything.
_DURATION, _TEXT = "timedelta(seconds=5)", "'text'"
_KINDS: tuple[tuple[str, type, str, str], ...] = (
    ("payload_text", str, "JSON text", "'{}'"),
    ("delay", timedelta, "a timedelta", _DURATION),
    ("timeout", timedelta, "a timedelta", _DURATION),
    ("dedupe_for", timedelta, "a timedelta", _DURATION),
    ("run_at", datetime, "a datetime", "datetime.now(UTC) + timedelta(hours=1)"),
    ("max_attempts", int, "a whole number", "3"),
    ("idempotency_key", str, "text", "'order:1'"),
    ("enqueued_by", str, "text", _TEXT),
    ("tenant", str, "text", _TEXT),
    ("traceparent", str, "text", "request.headers['traceparent']"),
    ("meta", str, "JSON text", "'{}'"),
    ("callback", Callback, "a Callback", "Callback(webhook='wh_0123456789abcdef')"),
)
_VALUES = attrgetter(*(kind[0] for kind in _KINDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueRequest:
    """What somebody asks for. Absent values are the job type's.

    `payload_text` and `meta` are JSON text, `parent_id` is a UUID or its text. `tenant` is the tenant the caller acts
    for: used when the job type declares none, and when it declares one the two must agree. `run_at` (aware) and `delay`
    exclude each other.
    """

    name: str
    payload_text: str
    queue: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    delay: timedelta | None = None
    max_attempts: int | None = None
    timeout: timedelta | None = None
    idempotency_key: str | None = None
    on_conflict: OnConflict | None = None
    dedupe_for: timedelta | None = None
    tags: Sequence[str] | AbstractSet[str] = ()
    meta: str | None = None
    parent_id: UUID | str | None = None
    traceparent: str | None = None
    enqueued_by: str | None = None
    tenant: str | None = None
    callback: Callback | None = None


def refuse_unbounded(request: EnqueueRequest, job_type: JobType, now: Callable[[], datetime]) -> None:
    """Refuse a request with a field of another type or out of bounds; `now` is asked only when a `run_at` is there.

    Raises:
        RequestInvalid: detail `pointer` names the field.
    """
    _check_kinds(request)
    _check_place(request)
    _check_time(request, now)
    _check_budget(request, job_type)
    _check_key(request)
    _check_labels(request)
    if request.meta is not None:
        _check_meta(request.meta)


def parent_of(request: EnqueueRequest) -> UUID | None:
    """Give the parent's id: a UUID as it is, a text as it is canonically spelled.

    Raises:
        RequestInvalid: it is neither.
    """
    given: object = request.parent_id
    found = read_uuid(given) if isinstance(given, str) else given
    if given is not None and not isinstance(found, UUID):
        refuse_request("parent_id", "must be the id of a job", fix="pass the UUID its enqueue gave, or that as text")
    return found if isinstance(found, UUID) else None


def refuse_request(field: str, rule: str, *, fix: str | None = None) -> NoReturn:
    """Refuse one field of a request.

    Raises:
        RequestInvalid: always; details `field` and `rule` let a caller that spells the field otherwise say it again.
    """
    raise RequestInvalid(
        f"{field} {rule}", fix=fix or f"correct {field}, or leave it out", pointer=f"/{field}", field=field, rule=rule
    )


def _check_kinds(request: EnqueueRequest) -> None:
    for value, kind in zip(_VALUES(request), _KINDS, strict=True):
        if value is not None and not isinstance(value, kind[1]):
            field, _, shown, example = kind
            refuse_request(field, f"must be {shown}, not {type(value).__name__}", fix=f"pass {field}={example}")


def _check_place(request: EnqueueRequest) -> None:
    if request.queue is not None and not is_name(request.queue):
        refuse_request("queue", f"must match {NAME_PATTERN}")
    if request.priority is not None and not is_priority(request.priority):
        refuse_request("priority", f"must be a whole number from 0 to {MAX_PRIORITY}")


def _check_time(request: EnqueueRequest, now: Callable[[], datetime]) -> None:
    if request.delay is not None and not timedelta() <= request.delay <= LONGEST_DURATION:
        refuse_request("delay", "must be from zero to five years")
    if request.run_at is None:
        return
    if request.delay:
        refuse_request("run_at", "and delay exclude each other")
    if request.run_at.utcoffset() is None:
        refuse_request("run_at", "must name its time zone", fix="pass an aware datetime, such as one of tzinfo=UTC")
    if not -OLDEST_RUN_AT <= request.run_at - now() <= LONGEST_DURATION:
        refuse_request("run_at", "must be within one day ago and five years ahead")


def _check_budget(request: EnqueueRequest, job_type: JobType) -> None:
    attempts = request.max_attempts
    if attempts is not None and (isinstance(attempts, bool) or not 1 <= attempts <= job_type.max_attempts):
        refuse_request("max_attempts", f"must be from 1 to {job_type.max_attempts}, what {job_type.name} declares")
    most = LONGEST_DURATION if job_type.timeout is None else job_type.timeout
    if request.timeout is not None and not SHORTEST_DURATION <= request.timeout <= most:
        refuse_request("timeout", f"must be from 1 to {milliseconds(most)} milliseconds, what {job_type.name} declares")


def _check_key(request: EnqueueRequest) -> None:
    if request.idempotency_key is not None:
        wrong = printable_key(request.idempotency_key)
        if wrong is not None:
            refuse_request("idempotency_key", f"must be 1 to {MAX_KEY_CHARS} printable characters: {wrong}")
    if request.on_conflict not in (None, "return", "error"):
        refuse_request("on_conflict", "must be 'return' or 'error'")
    if request.dedupe_for is not None and not SHORTEST_DURATION <= request.dedupe_for <= LONGEST_DURATION:
        refuse_request("dedupe_for", "must be from one millisecond to five years")


def _check_labels(request: EnqueueRequest) -> None:
    tags: object = request.tags
    if isinstance(tags, str | bytes | bytearray) or not isinstance(tags, Sequence | AbstractSet):
        refuse_request("tags", f"must be a list of texts, not {type(tags).__name__}", fix="pass tags=['one', 'two']")
    if len(tags) > MAX_TAGS:
        refuse_request("tags", f"must be at most {MAX_TAGS}")
    if not all(isinstance(tag, str) and is_printable(tag, MAX_TAG_CHARS) for tag in tags):
        refuse_request("tags", f"must be 1 to {MAX_TAG_CHARS} printable characters each")
    for field in ("enqueued_by", "tenant"):
        value = getattr(request, field)
        if value is not None and not is_printable(value):
            refuse_request(field, f"must be 1 to {MAX_KEY_CHARS} printable characters")
    if request.traceparent is not None and not is_traceparent(request.traceparent):
        refuse_request("traceparent", "must be as W3C Trace Context writes it")


def _check_meta(text: str) -> None:
    try:
        meta = decode(text, limits=META_LIMITS)
    except (JsonInvalid, PayloadTooLarge) as exc:
        refuse_request("meta", f"must be a flat JSON object of at most 4 KiB: {exc.cause}")
    if not isinstance(meta, dict):
        refuse_request("meta", "must be a flat JSON object of at most 4 KiB")
