"""What the OpenAPI document says of requests is what the service does: bounds, patterns, fields of each other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from app.domain.errors import RequestInvalid
from app.http.app import openapi_document
from app.http.preconditions import versions_asked
from app.http.requests import EnqueueBody, Key, RetryBody
from app.http.requests_actions import PatchBody
from app.http.requests_keys import KeyBody
from tests.http.api import Api
from tests.support.drivers import NAME
from tests.support.source import CHECKOUT

DOCUMENT: dict[str, Any] = json.loads((CHECKOUT / "openapi" / "openapi.json").read_text())
OPERATIONS: dict[str, dict[str, Any]] = {
    operation["operationId"]: operation for path in DOCUMENT["paths"].values() for operation in path.values()
}
JOB = {"name": "a", "payload": {}}
TIME = "2027-01-31T12:00:00Z"


def parameter(operation: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in OPERATIONS[operation]["parameters"] if each["name"] == name)
    schema: dict[str, Any] = found["schema"]
    return schema


def fits(schema: dict[str, Any], value: object) -> bool:
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]}).is_valid(value)


def body_fits(model: str, value: object) -> bool:
    return fits({"$ref": f"#/components/schemas/{model}"}, value)


def test_the_document_is_valid() -> None:
    OpenAPIV31SpecValidator(DOCUMENT).validate()


@pytest.mark.parametrize(
    ("model", "body", "is_taken"),
    [
        (EnqueueBody, JOB | {"run_at": TIME, "delay_ms": None}, True),
        (EnqueueBody, JOB | {"run_at": None, "delay_ms": 5}, True),
        (EnqueueBody, JOB | {"run_at": TIME, "delay_ms": 5}, False),
        (PatchBody, {"priority": 1, "reason": None}, True),
        (PatchBody, {"priority": 1, "tags": None}, False),
        (PatchBody, {"reason": "why"}, False),
        (PatchBody, {}, False),
        (KeyBody, {"label": "ci", "scopes": ["jobs:read", "jobs:write"], "queues": ["a", "b"]}, True),
        (KeyBody, {"label": "ci", "scopes": ["jobs:read", "jobs:read"]}, False),
        (KeyBody, {"label": "ci", "scopes": ["jobs:read"], "queues": ["a", "a"]}, False),
        (RetryBody, {"mode": "fresh", "from_step": None, "reason": " a b "}, True),
        (RetryBody, {"reason": " "}, False),
        (RetryBody, {"reason": "a\tb"}, False),
        (RetryBody, {"reason": "a\u2028b"}, False),
    ],
)
def test_document_and_model_take_the_same_bodies(
    model: type[BaseModel], body: dict[str, Any], *, is_taken: bool
) -> None:
    assert body_fits(model.__name__, body) is is_taken
    try:
        model.model_validate(body, strict=True)
    except ValidationError:
        assert not is_taken
    else:
        assert is_taken


BULK = {"selector": {"ids": ["0198c0f4-7c1a-7b3e-9a55-3f0a1c2d4e5f"]}, "dry_run": True}
ALIKE: dict[str, Any] = {"error": {"reason": "terminal"}}
BOTH = {"ids": ["0198c0f4-7c1a-7b3e-9a55-3f0a1c2d4e5f"], "filter": {}}


@pytest.mark.parametrize(
    ("body", "is_taken"),
    [
        (BULK | {"action": "cancel", "priority": None}, True),
        (BULK | {"action": "cancel", "priority": 1}, False),
        (BULK | {"action": "set_priority", "priority": 1}, True),
        (BULK | {"action": "set_priority"}, False),
        (BULK | {"action": "set_priority", "priority": None}, False),
        (BULK | {"action": "reschedule", "priority": 1}, False),
        (BULK | {"action": "cancel", "selector": {"filter": {}}}, True),
        (BULK | {"action": "cancel", "selector": {}}, False),
        (BULK | {"action": "cancel", "selector": {"ids": None, "filter": {}}}, True),
        (BULK | {"action": "cancel", "selector": BOTH}, False),
        (BULK | {"action": "retry", "selector": {"filter": ALIKE | {"state": ["dead"]}}}, True),
        (BULK | {"action": "retry", "selector": {"filter": ALIKE | {"state": ["dead", "cancelled"]}}}, False),
        (BULK | {"action": "retry", "selector": {"filter": ALIKE | {"state": []}}}, False),
        (BULK | {"action": "retry", "selector": {"filter": ALIKE}}, False),
        (BULK | {"action": "retry", "selector": {"filter": {"error": None}}}, True),
    ],
)
async def test_document_and_service_take_the_same_operations(api: Api, body: dict[str, Any], *, is_taken: bool) -> None:
    assert body_fits("BulkBody", body) is is_taken
    answer = await api.client.post("/v1/bulk-operations", json=body)
    assert answer.status_code == (200 if is_taken else 422), answer.text


@pytest.mark.parametrize(
    ("meta", "is_taken"),
    [({"a": 1, "b": "x", "c": True, "d": None, "e": 1.5}, True), ({"a": []}, False), ({"a": {}}, False)],
)
async def test_document_and_service_take_the_same_meta(api: Api, meta: dict[str, Any], *, is_taken: bool) -> None:
    assert body_fits("EnqueueBody", JOB | {"meta": meta}) is is_taken
    answer = await api.client.post("/v1/jobs", json={"name": NAME, "payload": {}, "meta": meta})
    assert answer.status_code == (201 if is_taken else 422), answer.text


@pytest.mark.parametrize(
    ("key", "is_one"),
    [
        ('"8e03978e"', True),
        ("8e03978e", True),
        ('" a"', True),
        (r'"a\"b\\"', True),
        ('"' + "k" * 255 + '"', True),
        ('"' + "k" * 256 + '"', False),
        ("k" * 256, False),
        ('""', False),
        ('"  "', False),
        ('"a"b"', False),
        ('"é"', False),
    ],
)
async def test_document_and_service_take_the_same_request_keys(api: Api, key: str, *, is_one: bool) -> None:
    assert fits(parameter("emitEvent", "Idempotency-Key"), key) is is_one
    answer = await api.client.post("/v1/queues/default/resume", headers=[(b"Idempotency-Key", key.encode())])
    assert answer.status_code == (200 if is_one else 400), answer.text


@pytest.mark.parametrize(
    ("tags", "are_some"),
    [
        ("*", True),
        ('"a"', True),
        ('W/"a", "b"', True),
        ('"a,b" ,"c"', True),
        ('""', True),
        ("", True),
        ("a", False),
        ("*,", False),
        ('"a" "b"', False),
        ('*, "a"', False),
    ],
)
def test_document_and_service_take_the_same_entity_tags(tags: str, *, are_some: bool) -> None:
    assert fits(parameter("updateJob", "If-Match"), tags) is are_some
    request = Request({"type": "http", "headers": [(b"if-match", tags.encode())]})
    if are_some:
        versions_asked(request, is_needed=True)
    else:
        with pytest.raises(RequestInvalid):
            versions_asked(request, is_needed=True)


@pytest.mark.parametrize(
    ("tags", "versions"),
    [
        ("", frozenset()),
        (" , ,", frozenset()),
        ('"a",,W/"b" , "c.7",', frozenset({"a", "c"})),
        (', "a"', frozenset({"a"})),
    ],
)
def test_elements_of_a_list_of_tags_may_be_empty(tags: str, versions: frozenset[str]) -> None:
    """A list of nothing is a condition that nothing fits, and no fault: the standard has it so."""
    request = Request({"type": "http", "headers": [(b"if-match", tags.encode())]})
    assert versions_asked(request, is_needed=True) == versions


def test_a_long_list_of_nothing_is_read_at_once() -> None:
    request = Request({"type": "http", "headers": [(b"if-match", b'"a"' + b" ," * 8_000 + b"x")]})
    with pytest.raises(RequestInvalid):
        versions_asked(request, is_needed=True)


def test_operations_that_take_a_request_key_may_answer_400() -> None:
    for name, operation in OPERATIONS.items():
        if any(each["name"] == "Idempotency-Key" for each in operation.get("parameters", ())):
            assert "400" in operation["responses"], name
    for name in ("createApiKey", "rotateApiKey", "revokeApiKey", "createWebhook", "rotateWebhook", "revealJob"):
        assert not [each for each in OPERATIONS[name].get("parameters", ()) if each["name"] == "Idempotency-Key"]


def test_numbers_of_queries_have_their_bounds() -> None:
    for name, operation in OPERATIONS.items():
        for each in operation.get("parameters", ()):
            if each["name"] == "limit" and each["in"] == "query":
                assert {"minimum", "maximum"} <= set(each["schema"]), name
    assert parameter("listJobs", "limit")["maximum"] == 200
    assert not fits(parameter("listJobs", "worker_id"), 0)


def test_links_lead_to_operations_that_take_what_they_give() -> None:
    followed = set()
    for operation in OPERATIONS.values():
        for answer in operation["responses"].values():
            for link in answer.get("links", {}).values():
                target = OPERATIONS[link["operationId"]]
                needed = {each["name"] for each in target["parameters"] if each["in"] == "path"}
                assert set(link["parameters"]) == needed
                followed.add(link["operationId"])
    takers = {name for name, each in OPERATIONS.items() if any(p["in"] == "path" for p in each.get("parameters", ()))}
    assert takers - followed == {"describeProblem", "resendDelivery"}, "give what leads to it in app/http/addresses.py"


def test_patterns_are_of_the_dialects_of_python_and_javascript() -> None:
    for pattern in re.findall(r'"pattern": (".*")', openapi_document()):
        assert not re.search(r"\(\?P|\\A|\\Z|\(\?<|\\p", json.loads(pattern))
        re.compile(json.loads(pattern))


def test_a_key_is_what_its_pattern_says() -> None:
    class Holder(BaseModel):
        key: Key

    schema = Holder.model_json_schema()["properties"]["key"]
    for text in ("a", " a b ", "é", "\u00a0a", "a\u0085", "", "   ", "\x7f", "日本"):
        try:
            Holder(key=text)
        except ValidationError:
            assert not fits(schema, text), ascii(text)
        else:
            assert fits(schema, text), ascii(text)


def _integers(schema: Any, path: str, seen: frozenset[str] = frozenset()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give every integer that a schema takes, with where it is."""
    name = schema.get("$ref", "").rpartition("/")[2]
    if name:
        found = {} if name in seen else DOCUMENT["components"]["schemas"][name]
        yield from _integers(found, f"{path}/{name}", seen | {name})
    if "integer" in schema.get("type", ""):
        yield path, schema
    for word, each in schema.get("properties", {}).items():
        yield from _integers(each, f"{path}/{word}", seen)
    inner = [
        *schema.get("anyOf", ()),
        *schema.get("oneOf", ()),
        schema.get("items"),
        schema.get("additionalProperties"),
    ]
    for each in inner:
        if isinstance(each, dict):
            yield from _integers(each, path, seen)


def test_every_number_that_is_taken_has_an_end() -> None:
    """Python's have none, and what is stored, and what an answer says again, does."""
    found: dict[str, dict[str, Any]] = {}
    for name, operation in OPERATIONS.items():
        taken = [each["schema"] for each in operation.get("parameters", ())]
        if "requestBody" in operation:
            taken.append(operation["requestBody"]["content"]["application/json"]["schema"])
        found |= {path: schema for each in taken for path, schema in _integers(each, name)}
    assert len(found) > 20
    assert [path for path, schema in found.items() if "maximum" not in schema] == []


async def test_a_number_of_jobs_beyond_counting_is_refused(api: Api) -> None:
    operation = BULK | {"action": "cancel", "expected_count": 2**64, "dry_run": False}
    letters = {"group": {"name": NAME, "reason": "terminal"}, "expected_count": 2**64}
    for path, body in (("/v1/bulk-operations", operation), ("/v1/dead-letters/retry", letters)):
        answer = await api.client.post(path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "REQUEST_INVALID")
        most = await api.client.post(path, json=body | {"expected_count": 2**53 - 1})
        assert (most.status_code, most.json()["expected"]) == (409, 2**53 - 1), most.text
