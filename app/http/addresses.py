"""The ids and names in paths, as the OpenAPI document says them: what they look like, and which answers give them.

Routes take any text there and answer what is none like what is not there. An answer that gives an id links to the
operations that take it, so that a client, or a test, can follow. Called where the document is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..domain.job import NAME_PATTERN
from ..domain.webhook import WEBHOOK_PATTERN
from .documents import JOB_ID

_UUID = {"type": "string", "format": "uuid"}
_NAME = {"type": "string", "pattern": NAME_PATTERN}
_SHAPES: Mapping[str, Mapping[str, str]] = {
    "job_id": _UUID,
    "bulk_id": _UUID,
    "key_id": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
    "webhook_id": {"type": "string", "pattern": WEBHOOK_PATTERN},
    "delivery_id": _UUID,
    "worker_id": {"type": "string", "pattern": "^[1-9][0-9]{0,9}$"},
    "name": _NAME,
    "limit": _NAME,
    "code": {"type": "string", "pattern": "^[A-Z][A-Z_]{0,63}$"},
}


class _Source(NamedTuple):
    """An answer that gives what a path needs: by which statuses, for which paths, and where it is."""

    operation: str
    statuses: tuple[str, ...]
    below: str
    where: Mapping[str, str]


_JOB = "/v1/jobs/{job_id}"
_SOURCES = (
    _Source("enqueueJob", ("200", "201", "202"), _JOB, {"job_id": "/id"}),
    _Source("duplicateJob", ("201",), _JOB, {"job_id": "/id"}),
    _Source("forkJob", ("201",), _JOB, {"job_id": "/id"}),
    _Source("listJobs", ("200",), _JOB, {"job_id": "/items/0/id"}),
    _Source("createBulkOperation", ("202",), "/v1/bulk-operations/{bulk_id}", {"bulk_id": "/id"}),
    _Source("createApiKey", ("201",), "/v1/api-keys/{key_id}", {"key_id": "/id"}),
    _Source("createWebhook", ("201",), "/v1/webhooks/{webhook_id}", {"webhook_id": "/id"}),
    _Source("listQueues", ("200",), "/v1/queues/{name}", {"name": "/items/0/name"}),
    _Source("listSchedules", ("200",), "/v1/schedules/{name}", {"name": "/items/0/name"}),
    _Source("describeJobTypes", ("200",), "/v1/job-types/{name}", {"name": "/items/0/name"}),
    _Source("listLimits", ("200",), "/v1/limits/{name}", {"name": "/items/0/name", "limit": "/items/0/limit"}),
    _Source("listWorkers", ("200",), "/v1/workers/{worker_id}", {"worker_id": "/items/0/id"}),
)


def describe_addresses(document: dict[str, Any]) -> None:
    """Give the parameters of paths their shapes, and the answers of the sources their links."""
    operations = {
        operation["operationId"]: (path, operation)
        for path, methods in document["paths"].items()
        for operation in methods.values()
    }
    for _, operation in operations.values():
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path" and parameter["name"] in _SHAPES:
                parameter["schema"] |= _SHAPES[parameter["name"]]
            if parameter["name"] == "job_id":
                parameter["example"] = JOB_ID
    for source in _SOURCES:
        links = {
            name: _link(name, source)
            for name, (path, operation) in operations.items()
            if path.startswith(source.below) and _needs(operation) == set(source.where)
        }
        for status in source.statuses:
            operations[source.operation][1]["responses"][status]["links"] = links


def _needs(operation: dict[str, Any]) -> set[str]:
    return {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}


def _link(name: str, source: _Source) -> dict[str, Any]:
    return {
        "operationId": name,
        "parameters": {parameter: f"$response.body#{at}" for parameter, at in source.where.items()},
    }
