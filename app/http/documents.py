"""How an operation is written down for the OpenAPI document: its answers, its problems, its body, its headers.

Words and examples only; nothing here runs when a request is answered. Called by the routers at assembly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel

Responses: TypeAlias = dict[int | str, dict[str, Any]]
Extra: TypeAlias = dict[str, Any]

JOB_ID = "0198c0f4-7c1a-7b3e-9a55-3f0a1c2d4e5f"
_TIME = "2026-11-29T12:00:00Z"

LINKS_EXAMPLE = {
    "self": f"/v1/jobs/{JOB_ID}",
    "result": f"/v1/jobs/{JOB_ID}/result",
    "attempts": f"/v1/jobs/{JOB_ID}/attempts",
    "steps": f"/v1/jobs/{JOB_ID}/steps",
    "timeline": f"/v1/jobs/{JOB_ID}/timeline",
    "logs": f"/v1/jobs/{JOB_ID}/logs",
    "events": f"/v1/jobs/{JOB_ID}/events",
}
SUMMARY_EXAMPLE: dict[str, Any] = {
    "id": JOB_ID,
    "run_id": JOB_ID,
    "name": "demo.count_lines",
    "queue": "default",
    "state": "ready",
    "state_reason": None,
    "last_outcome": None,
    "attempt": 0,
    "max_attempts": 25,
    "claim_no": 0,
    "crashes": 0,
    "max_crashes": 3,
    "interrupts": 0,
    "priority": 5,
    "tenant": "default",
    "run_at": None,
    "created_at": _TIME,
    "started_at": None,
    "finished_at": None,
    "wait_ms": None,
    "duration_ms": None,
    "timeout_ms": None,
    "late": False,
    "claim": None,
    "error": None,
    "progress": None,
    "waiting_on": None,
    "tags": ["nightly"],
    "meta": {"ticket": 4711},
    "idempotency_key": "nightly:2026-11-29",
    "key_expires_at": None,
    "parent_id": None,
    "enqueued_by": "bootstrap",
    "trace": None,
    "version": "9f2c1e0ab34d5566",
    "links": LINKS_EXAMPLE,
}
JOB_EXAMPLE = SUMMARY_EXAMPLE | {"payload": {}, "result": None}

PROBLEMS: Mapping[int, tuple[str, str]] = {
    400: ("The cursor or a header is not valid.", "CURSOR_INVALID"),
    401: ("A valid key is needed.", "UNAUTHENTICATED"),
    403: ("The key may not do this.", "FORBIDDEN"),
    404: ("There is no such thing, or none this key may see.", "JOB_NOT_FOUND"),
    408: ("The body did not arrive in time.", "REQUEST_INVALID"),
    409: ("The state it is in, or a key that is taken, does not allow this.", "JOB_STATE_CONFLICT"),
    412: ("It has changed since it was read.", "PRECONDITION_FAILED"),
    413: ("The body or the payload is too large.", "PAYLOAD_TOO_LARGE"),
    415: ("The body is not plain JSON.", "MEDIA_UNSUPPORTED"),
    422: ("The request, its JSON or its payload does not fit.", "REQUEST_INVALID"),
    428: ("`If-Match` is needed.", "PRECONDITION_REQUIRED"),
    429: ("The queue is full, or too much comes at once.", "QUEUE_FULL"),
    501: ("Part of the contract, and not built yet.", "NOT_IMPLEMENTED"),
    503: ("The store cannot be reached, or took too long to read.", "DRIVER_UNAVAILABLE"),
}
_EVERYWHERE = (401, 403, 422, 429, 503)
_WITH_BODY = (408, 413, 415, 501)


def _header(name: str, description: str, *, pattern: str | None = None, is_blank: bool = False) -> Extra:
    """Write down a header that may be sent; headers are read by hand, as bodies are. Only what fits is taken.

    `is_blank`: nothing is something that fits.
    """
    schema: Extra = {"type": "string"} | ({} if pattern is None else {"pattern": pattern})
    schema |= {} if pattern is None or is_blank else {"minLength": 1}
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": description}


# 1 to 255 characters, not all of them blank, in quotes; or bare, as many clients send it.
_REQUEST_KEY = r'^(?:"(?! +")(?:[ !#-\[\]-~]|\\["\\]){1,255}"|[!#-+\--:<-\[\]-~]{1,255})$'
_TAG = '(?:W/)?"[!#-~]*"'

PREFER = _header("Prefer", "RFC 7240. `wait=N`: hold the answer up to N seconds (60 at most) for the job to end.") | {
    "example": "wait=10"
}
WITHOUT_BODY = "`return=minimal`: answer without a body."
MINIMAL = _header("Prefer", f"RFC 7240. {WITHOUT_BODY}") | {"example": "return=minimal"}
TRACEPARENT = _header("traceparent", "W3C trace context; kept with the job.")
IDEMPOTENCY_KEY = _header(
    "Idempotency-Key",
    "Makes repeating the request safe: within 24 hours the same key gives the first answer again, with"
    " `Idempotency-Replayed: true`, and nothing is done twice. A quoted string of at most 255 characters.",
    pattern=_REQUEST_KEY,
) | {"example": '"8e03978e-40d5-43dd-bc93-6894a57f9324"'}
LAST_EVENT_ID = _header(
    "Last-Event-ID", "The last `id` seen: only what came after it is sent. Browsers send it when they reconnect."
)
_VERSION = "The ETag it was read with: it is only acted on while it is still so. `*` for whatever it is."
IF_MATCH = _header("If-Match", _VERSION, pattern=rf"^(?:\*|{_TAG}(?: *, *{_TAG})*)?$", is_blank=True) | {
    "example": '"9f2c1e0ab34d5566"'
}
IF_MATCH_NEEDED = IF_MATCH | {"required": True}
IF_NONE_MATCH = _header("If-None-Match", "An ETag seen before; 304 while it has not changed.") | {
    "example": '"9f2c1e0ab34d5566"'
}

# What a text that is a stream of events decodes to.
STREAMED: dict[str, Any] = {
    "type": "string",
    "contentMediaType": "text/event-stream",
    "contentSchema": {"$ref": "#/components/schemas/StreamedEvents"},
}
ELSEWHERE: dict[str, Any] = {
    "description": "The id was staged, and its key led to another job.",
    "headers": {"Location": {"description": "The same of that job.", "schema": {"type": "string"}}},
}


def answer(model: type[BaseModel], description: str, example: object, **headers: str) -> dict[str, Any]:
    """Write down one answer with a body; keywords name its headers (`_` for `-`)."""
    written: dict[str, Any] = {
        "model": model,
        "description": description,
        "content": {"application/json": {"examples": {"example": {"value": example}}}},
    }
    if headers:
        written["headers"] = {
            name.replace("_", "-"): {"description": text, "schema": {"type": "string"}}
            for name, text in headers.items()
        }
    return written


def problems(*statuses: int, has_body: bool = False) -> Responses:
    """Write down the problems an operation can answer with, those of every operation among them."""
    every = sorted({*statuses, *_EVERYWHERE, *(_WITH_BODY if has_body else ())})
    return {status: {"$ref": f"#/components/responses/Problem{status}"} for status in every}


def body(model: type[BaseModel], examples: Mapping[str, object], *, is_required: bool) -> Extra:
    """Write down a request body; bodies are read by hand, so the framework does not know of them."""
    return {
        "requestBody": {
            "required": is_required,
            "content": {
                "application/json": {
                    "schema": {"$ref": f"#/components/schemas/{model.__name__}"},
                    "examples": {name: {"value": value} for name, value in examples.items()},
                }
            },
        }
    }
