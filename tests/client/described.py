"""The published description of the API as a service: it takes what is described, and answers with its examples."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
from jsonschema import Draft202012Validator

DOCUMENT: dict[str, Any] = json.loads((Path(__file__).parents[2] / "openapi" / "openapi.json").read_text())
OPERATIONS: dict[tuple[str, str], dict[str, Any]] = {
    (method.upper(), path): operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
# Operations whose dry run is another answer than the real one.
COUNTED = {"createBulkOperation", "retryDeadLetters"}
NAMES = {operation["operationId"] for operation in OPERATIONS.values()}


# The document shows one process's drain.
FLEET: dict[str, Any] = {
    "scope": "fleet",
    "live": 2,
    "draining": 1,
    "phases": {"accept": 1, "inflight": 0, "close": 0},
    "workers": [],
}


def operation_of(method: str, path: str) -> dict[str, Any]:
    """Give the operation a request means; of two templates the one with fewer gaps."""
    found = [
        (template.count("{"), operation)
        for (verb, template), operation in OPERATIONS.items()
        if verb == method and re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template)), path)
    ]
    assert found, f"{method} {path} is no operation"
    return min(found, key=lambda each: each[0])[1]


class Described:
    """Answers requests by the document, and keeps which operation each was and what it was answered."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.requests: list[httpx.Request] = []
        self.answers: list[Any] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        operation = operation_of(request.method, request.url.raw_path.decode().partition("?")[0])
        _check_query(operation, request)
        _check_body(operation, request)
        self.asked.append(operation["operationId"])
        self.requests.append(request)
        status, value = _example(operation, request)
        self.answers.append(value)
        return httpx.Response(status, json=value) if value is not None else httpx.Response(status)


def _check_query(operation: dict[str, Any], request: httpx.Request) -> None:
    known = {each["name"]: each for each in operation.get("parameters", ()) if each["in"] == "query"}
    assert set(request.url.params) <= set(known), (operation["operationId"], dict(request.url.params))
    for name in request.url.params:
        schema = known[name]["schema"]
        values: Any = request.url.params.get_list(name)
        if name == "count":
            assert values == ["true"]
            continue
        if schema.get("type") != "array":
            (values,) = values
            values = int(values) if "integer" in json.dumps(schema) else values
        _check(schema, values)


def _check_body(operation: dict[str, Any], request: httpx.Request) -> None:
    described = operation.get("requestBody")
    if described is None:
        assert request.content == b""
        return
    assert request.headers["content-type"] == "application/json"
    _check(described["content"]["application/json"]["schema"], json.loads(request.content))


def _check(schema: dict[str, Any], value: object) -> None:
    whole = {**schema, "components": DOCUMENT["components"]}
    Draft202012Validator(whole, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(value)


def _example(operation: dict[str, Any], request: httpx.Request) -> tuple[int, Any]:
    """Give the first documented success, of several examples the one that goes with the request."""
    statuses = sorted(int(status) for status in operation["responses"] if int(status) < 300)
    body = json.loads(request.content or b"{}")
    is_dry = isinstance(body, dict) and body.get("dry_run") is True
    status = statuses[0] if operation["operationId"] not in COUNTED or is_dry else statuses[-1]
    content = operation["responses"][str(status)].get("content", {}).get("application/json")
    if content is None:
        return status, None
    examples = [each["value"] for each in content["examples"].values()]
    if request.url.params.get("count"):
        return status, {**examples[0], "count": {"value": 10_000, "capped": True}}
    return status, FLEET if request.url.params.get("scope") == "fleet" else examples[0]
