"""The OpenAPI 3.1 document: the framework's, mended where it says what is not so.

The same bytes for the same code: `openapi/openapi.json` is committed and compared. Bodies are read by hand, problems
are shared components, every operation but the probes needs the key. Called by the route, the command and a test.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from .addresses import describe_addresses
from .answers import Problem
from .documents import IDEMPOTENCY_KEY, JOB_ID, MINIMAL, PROBLEMS, WITHOUT_BODY, problems
from .problems import MEDIA_TYPE, STATUS
from .requests import (
    CancelBody,
    DeadPurgeBody,
    EnqueueBody,
    EventBody,
    ForkBody,
    LimitBody,
    NoBody,
    PauseBody,
    QueuePatch,
    QueuePauseBody,
    RetryBody,
)
from .requests_actions import DuplicateBody, PatchBody, ReasonBody
from .requests_batch import BatchBody
from .requests_bulk import BulkBody, DeadRetryBody
from .requests_keys import KeyBody, RotateBody
from .requests_webhooks import WebhookBody, WebhookPatch, WebhookRotateBody
from .run_answers import StreamedEvents

_BODIES: tuple[type[BaseModel], ...] = (
    *(EnqueueBody, CancelBody, RetryBody, ForkBody, EventBody, PauseBody, NoBody),
    *(QueuePauseBody, QueuePatch, PatchBody, DuplicateBody, ReasonBody, BulkBody),
    *(DeadPurgeBody, DeadRetryBody, LimitBody, KeyBody, RotateBody, BatchBody),
    *(WebhookBody, WebhookPatch, WebhookRotateBody),
)
_TAGS = (
    {
        "name": "jobs",
        "description": "Enqueue jobs, read them; cancel, retry, run, change, duplicate, fork, release and delete them.",
    },
    {
        "name": "runs",
        "description": "The durable history of a job: steps, waits, lines; followed live.",
    },
    {"name": "events", "description": "Named, keyed messages that runs wait for."},
    {"name": "bulk operations", "description": "One action on many jobs: counted, made, followed, aborted."},
    {"name": "job types", "description": "What can be enqueued: the types workers have published."},
    {"name": "dead letters", "description": "What gave up, in groups; retry of a group, purge of what is old."},
    {"name": "queues", "description": "How deep, how old, paused by whom, how limited."},
    {"name": "schedules", "description": "What is due when, what became of it; pause, resume and fire now."},
    {"name": "outbox", "description": "Jobs staged in transactions of your application, until they are published."},
    {"name": "limits", "description": "How many jobs of a kind may run at once, and who holds the slots."},
    {"name": "workers", "description": "The processes that execute jobs."},
    {"name": "audit", "description": "What operators did to what, and why."},
    {"name": "api keys", "description": "Who may do what for which tenant: make, list, rotate and revoke keys."},
    {"name": "webhooks", "description": "Who is told when jobs end, what was told, and what came of it."},
    {"name": "drain", "description": "Leaving in order: how far, what is held, asking for it, and what it cost."},
    {"name": "process", "description": "Probes, metrics and versions of the process that answers."},
)
_REF = "#/components/schemas/{model}"


def render_document(app: FastAPI) -> str:
    """Give the document as text: sorted keys, one line break at the end."""
    return json.dumps(document_of(app), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def document_of(app: FastAPI) -> dict[str, Any]:
    """Give the document."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=app.description,
        routes=app.routes,
        tags=list(_TAGS),
        servers=[{"url": "/"}],
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        contact={"name": "Outlast maintainers"},
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas |= _schemas()
    components["responses"] = {f"Problem{status}": _problem(status) for status in PROBLEMS}
    components["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "The key of `OUTLAST_API_KEY_FILE`."}
    }
    document["security"] = [{"key": []}]
    for operations in document["paths"].values():
        for method, operation in operations.items():
            _mend(operation)
            _prefer_minimal(method, operation)
    _restore_examples(app, document)
    describe_addresses(document)
    return document


def _restore_examples(app: FastAPI, document: dict[str, Any]) -> None:
    """Put the examples back as they were written: the framework drops every null on its way."""
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if not isinstance(route, APIRoute):
            continue
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            for status, written in route.responses.items():
                for media, content in written.get("content", {}).items():
                    if "examples" in content:
                        operation["responses"][str(status)]["content"][media]["examples"] = content["examples"]


def _schemas() -> dict[str, Any]:
    _, bodies = models_json_schema([(model, "validation") for model in _BODIES], ref_template=_REF)
    _, answers = models_json_schema([(Problem, "serialization"), (StreamedEvents, "serialization")], ref_template=_REF)
    return {**bodies["$defs"], **answers["$defs"]}


def _problem(status: int) -> dict[str, Any]:
    description, code = PROBLEMS[status]
    codes = sorted({code, *(each for each, its in STATUS.items() if its == status)})
    example = {
        "type": f"/problems/{code}",
        "title": description.rstrip("."),
        "status": status,
        "detail": "What happened, with names and ids.",
        "instance": f"/v1/jobs/{JOB_ID}",
        "code": code,
        "fix": "What to do about it.",
        "retryable": False,
        "request_id": "4f0c2f9b1e0d4b7c8a6d5e4f3a2b1c0d",
        "trace_id": None,
    }
    return {
        "description": f"{description} Codes: {', '.join(codes)}.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="Problem")}, "example": example}},
    }


def _prefer_minimal(method: str, operation: dict[str, Any]) -> None:
    """Write down that a body may be left out where something is changed; what is shown once is always shown."""
    has_body = any("content" in response for response in operation["responses"].values())
    parameters = operation.setdefault("parameters", [])
    may_repeat = any(each["name"] == "Idempotency-Key" for each in parameters)
    if method == "get" or not has_body or not may_repeat:
        return
    known = next((at for at, each in enumerate(parameters) if each["name"] == "Prefer"), None)
    if known is None:
        parameters.append(dict(MINIMAL))
    else:
        parameters[known] |= {"description": f"{parameters[known]['description']} {WITHOUT_BODY}"}


def _mend(operation: dict[str, Any]) -> None:
    """Let a shared problem be a plain reference, and a stream's schema be called what 3.1 calls it."""
    for status, response in operation["responses"].items():
        if "$ref" in response:
            operation["responses"][status] = {"$ref": response["$ref"]}
        for media in response.get("content", {}).values():
            if "itemSchema" in media:
                media["schema"] = media.pop("itemSchema")
    operation["responses"].pop("default", None)
    if any(parameter["name"] == IDEMPOTENCY_KEY["name"] for parameter in operation.get("parameters", ())):
        operation["responses"]["400"] = problems(400)[400]
