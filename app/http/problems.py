"""Errors as RFC 9457 problem documents: the status of every code, and the one renderer.

Statuses live here and nowhere else. What a fault inside the service says about itself (addresses, statements) is for
the log; the caller gets the code, a plain sentence and the request id. Called by the edge and the exception handlers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from starlette.responses import Response

from ..control.render import Document, render
from ..domain.errors import (
    Draining,
    DriverUnavailable,
    Internal,
    NotImplementedYet,
    OutlastError,
    QueryTooSlow,
    RequestInvalid,
    SchemaOutdated,
    Unauthenticated,
)
from ..domain.waited import LOOK_SECONDS

MEDIA_TYPE = "application/problem+json"

STATUS: Mapping[str, int] = {
    "JOB_DUPLICATE": 409,
    "IDEMPOTENCY_MISMATCH": 409,
    "IDEMPOTENCY_KEY_REUSED": 422,
    "IDEMPOTENCY_IN_FLIGHT": 409,
    "JOB_NOT_FOUND": 404,
    "NOT_FOUND": 404,
    "JOB_NAME_TAKEN": 409,
    "JOB_UNKNOWN": 404,
    "JOB_TIMEOUT": 409,
    "JOB_EXPIRED": 409,
    "JOB_FAILED": 409,
    "JOB_STATE_CONFLICT": 409,
    "CRASHED_TOO_OFTEN": 409,
    "QUEUE_FULL": 429,
    "QUEUES_EMPTY": 422,
    "STEP_DUPLICATE": 409,
    "STEP_TIMEOUT": 409,
    "STEP_TOO_LARGE": 413,
    "CHILD_FAILED": 409,
    "PAYLOAD_UNREADABLE": 409,
    "REPLAY_DIVERGED": 409,
    "TRANSACTION_FOREIGN": 409,
    "PAYLOAD_INVALID": 422,
    "PAYLOAD_TOO_LARGE": 413,
    "RESULT_INVALID": 422,
    "REQUEST_INVALID": 422,
    "JSON_INVALID": 422,
    "MEDIA_UNSUPPORTED": 415,
    "PRECONDITION_REQUIRED": 428,
    "PRECONDITION_FAILED": 412,
    "COUNT_CHANGED": 409,
    "CURSOR_INVALID": 400,
    "ABORTED": 409,
    "DRAINING": 503,
    "LEASE_LOST": 409,
    "SLOT_LOST": 409,
    "LIMIT_UNENFORCEABLE": 409,
    "OUTBOX_NO_TX": 409,
    "DRIVER_UNAVAILABLE": 503,
    "QUERY_TOO_SLOW": 503,
    "DRIVER_VOLATILE": 409,
    "NOT_IMPLEMENTED": 501,
    "SCHEDULE_INVALID": 422,
    "UNAUTHENTICATED": 401,
    "FORBIDDEN": 403,
    "RATE_LIMITED": 429,
    "TENANT_FULL": 429,
    "CALLBACK_REFUSED": 422,
    "SETTINGS_INVALID": 500,
    "SCHEMA_OUTDATED": 503,
    "INTERNAL": 500,
}

# Facts an error may carry to the caller; anything else in its details is for the log.
_SHOWN = ("existing_id", "state", "index", "error", "offset", "size", "limit", "expected", "count")
# Details of errors whose answer differs from their code's in status or headers: 405, 408.
STATUS_DETAIL = "http_status"
HEADERS_DETAIL = "http_headers"
# The repair of a fault that names nothing of the inside: shown in place of the plain one.
FIX_DETAIL = "http_fix"
# What a fault of the service's own says instead of its cause, which may name hosts or statements.
_PLAIN: Mapping[str, tuple[str, str]] = {
    DriverUnavailable.code: (
        "The store did not answer; whether a write took place is unknown.",
        "repeat the request; an idempotency_key makes repeating an enqueue safe",
    ),
    QueryTooSlow.code: (
        f"It was not read within {LOOK_SECONDS:g} s, and was ended; nothing was changed.",
        "narrow the filter, by time, queue or job type, or repeat the request in a moment",
    ),
    SchemaOutdated.code: (
        "The database is older than this release.",
        "run `outlast migrate up` against the database and try again",
    ),
    Draining.code: ("This process is going away.", "repeat the request; another process answers it"),
}
_INTERNAL = ("Something failed inside the service.", "repeat the request; report the request_id if it fails again")
_RETRY_AFTER_SECONDS = 1
_LONGEST_TEXT = 2_000
# What stands for itself in a path.
_SAFE = "/:@!$&'()*+,;=~"
_MOST_ERRORS = 50
METHOD_NOT_ALLOWED = 405
# An `Idempotency-Key` that is none, or that is not for this route.
MALFORMED_HEADER = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """What a problem document says about the request it answers."""

    request_id: str
    instance: str
    trace_id: str | None = None


def method_not_allowed(method: str, allowed: Collection[str]) -> RequestInvalid:
    """Give the refusal of a method that a path does not have, which names those it has."""
    named = ", ".join(sorted(allowed))
    return RequestInvalid(
        f"{method} is not possible here",
        fix=f"use {named}",
        **{STATUS_DETAIL: METHOD_NOT_ALLOWED, HEADERS_DETAIL: {"Allow": named}},
    )


def status_of(error: OutlastError) -> int:
    """Give the HTTP status of an error; a code without one is a fault of ours."""
    own = error.details.get(STATUS_DETAIL)
    return own if isinstance(own, int) else STATUS.get(error.code, STATUS[Internal.code])


def headers_of(error: OutlastError) -> dict[str, str]:
    """Give the headers of an error's answer: those it names, and when to try again."""
    given = error.details.get(HEADERS_DETAIL)
    headers = dict(given) if isinstance(given, Mapping) else {}
    if error.retryable:
        headers.setdefault("Retry-After", str(_RETRY_AFTER_SECONDS))
    return headers


def is_fault(error: OutlastError) -> bool:
    """Say whether an error is the service's own and belongs in the log."""
    return status_of(error) >= STATUS[Internal.code] and error.code != NotImplementedYet.code


def problem_document(error: OutlastError, facts: RequestFacts) -> Document:
    """Give the problem document of an error; every text is made printable and bounded."""
    detail, fix = (error.cause, error.fix)
    if is_fault(error):
        detail, fix = _PLAIN.get(error.code, _INTERNAL)
        fix = str(error.details.get(FIX_DETAIL, fix))
    document: Document = {
        "type": f"/problems/{error.code}",
        "title": error.title,
        "status": status_of(error),
        "detail": detail,
        "instance": _reference(facts.instance),
        "code": error.code,
        "fix": fix,
        "retryable": error.retryable,
        "request_id": facts.request_id,
        "trace_id": facts.trace_id,
    }
    document |= {name: error.details[name] for name in _SHOWN if name in error.details}
    errors = _field_errors(error)
    document |= {"errors": errors} if errors else {}
    return {name: _plain(value) for name, value in document.items()}


def _reference(path: str) -> str:
    """Give a path as a reference to it: of ASCII alone, and no half of an escaped character."""
    quoted = quote(path, safe=_SAFE, errors="replace")[:_LONGEST_TEXT]
    return re.sub("%[0-9A-F]?$", "", quoted)


def problem_response(error: OutlastError, facts: RequestFacts) -> Response:
    """Render an error, with the headers its code calls for."""
    headers = headers_of(error)
    if error.code == Unauthenticated.code:
        headers.setdefault("WWW-Authenticate", 'Bearer realm="outlast"')
    body = render(problem_document(error, facts))
    return Response(body, status_code=status_of(error), media_type=MEDIA_TYPE, headers=headers)


def _field_errors(error: OutlastError) -> list[object]:
    """Give the fields that do not fit; an error that knows one place only says it as `pointer`.

    Those of a payload nobody has sent in this request, as a schedule's, are given as they are there.
    """
    given = error.details.get("errors")
    if isinstance(given, list):
        return [_field_error(each) for each in given[:_MOST_ERRORS]]
    pointer = error.details.get("pointer")
    return [{"in": "body", "pointer": pointer, "detail": error.cause}] if isinstance(pointer, str) else []


def _field_error(given: object) -> object:
    if isinstance(given, Mapping) and "message" in given:
        return {"in": "body", "pointer": given.get("pointer", ""), "detail": given["message"]}
    return given


def _plain(value: object) -> object:
    """Make a value renderable: text without lone surrogates or control characters, bounded; ids and enums as text."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            text = value.encode("utf-8", "replace").decode()[:_LONGEST_TEXT]
            return "".join(char if char.isprintable() or char == "\n" else "�" for char in text)
        case Mapping():
            return {str(_plain(str(name))): _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case _:
            return _plain(str(value))
