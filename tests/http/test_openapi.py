from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from app.domain.errors import error_classes
from app.http.app import openapi_document
from tests.http.api import Api, code_of

COMMITTED = Path(__file__).parents[2] / "openapi" / "openapi.json"
DOCUMENT: dict[str, Any] = json.loads(COMMITTED.read_text())
OPERATIONS: dict[str, dict[str, Any]] = {
    operation["operationId"]: operation for path in DOCUMENT["paths"].values() for operation in path.values()
}


def media_of(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the media types of a body or an answer that have a schema."""
    return [media for media in part.get("content", {}).values() if "schema" in media]


def check(schema: dict[str, Any], value: object) -> None:
    """Measure a value against a schema of the document."""
    whole = {**schema, "components": DOCUMENT["components"]}
    Draft202012Validator(whole, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(value)


def test_the_committed_document_is_the_one_served() -> None:
    assert COMMITTED.exists(), "run `make openapi` and commit the result"
    assert COMMITTED.read_text() == openapi_document(), "run `make openapi` and commit the result"


def test_the_document_is_openapi_3_1_with_its_keys_sorted() -> None:
    assert DOCUMENT["openapi"].startswith("3.1.")
    assert openapi_document() == json.dumps(DOCUMENT, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    assert "itemSchema" not in openapi_document()
    assert "HTTPValidationError" not in openapi_document()
    assert DOCUMENT["info"]["license"]["identifier"] == "Apache-2.0"


def test_operations_have_names_words_and_a_tag_that_is_described() -> None:
    tags = {tag["name"] for tag in DOCUMENT["tags"] if tag["description"]}
    for name, operation in OPERATIONS.items():
        assert re.fullmatch("[a-z]+(?:[A-Z][a-z]+)*", name), name
        assert operation["summary"]
        assert operation["description"]
        assert set(operation["tags"]) <= tags
    assert len(OPERATIONS) == sum(len(path) for path in DOCUMENT["paths"].values())


def test_every_operation_but_the_probes_needs_the_key() -> None:
    open_ones = {name for name, operation in OPERATIONS.items() if operation.get("security") == []}
    assert open_ones == {"getLivez", "getReadyz", "getStartupz", "describeProblem"}
    assert DOCUMENT["security"] == [{"key": []}]


def test_every_refusal_is_a_shared_problem() -> None:
    for name, operation in OPERATIONS.items():
        for status, answer in operation["responses"].items():
            if int(status) >= 400 and name not in ("getReadyz", "getStartupz"):
                assert answer == {"$ref": f"#/components/responses/Problem{status}"}
                shared = DOCUMENT["components"]["responses"][f"Problem{status}"]
                assert set(shared["content"]) == {"application/problem+json"}


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_every_example_fits_its_schema(name: str) -> None:
    operation = OPERATIONS[name]
    parts = [operation["requestBody"]] if "requestBody" in operation else []
    parts += operation["responses"].values()
    for part in parts:
        for media in media_of(part):
            if media["schema"] in ({"type": "string"}, {"type": "object"}):
                continue
            assert media["examples"], name
            for example in media["examples"].values():
                check(media["schema"], example["value"])
    for answer in DOCUMENT["components"]["responses"].values():
        for media in media_of(answer):
            check(media["schema"], media["example"])


async def test_what_is_answered_fits_the_document(api: Api) -> None:
    job = await api.post(tags=["x"], meta={"a": 1}, delay_ms=5)
    answers = {
        "listJobs": await api.client.get("/v1/jobs"),
        "getJob": await api.client.get(job["links"]["self"]),
        "listAttempts": await api.client.get(job["links"]["attempts"]),
        "getResult": await api.client.get(job["links"]["result"]),
        "cancelJob": await api.client.post(job["links"]["self"] + "/cancel"),
        "retryJob": await api.client.post(job["links"]["self"] + "/retry"),
        "describeJobTypes": await api.client.get("/v1/job-types"),
        "listQueues": await api.client.get("/v1/queues"),
        "pauseQueue": await api.client.post("/v1/queues/default/pause"),
        "listWorkers": await api.client.get("/v1/workers"),
        "getVersion": await api.client.get("/version"),
        "getReadyz": await api.client.get("/readyz"),
        "describeProblem": await api.client.get("/problems/JOB_UNKNOWN"),
    }
    check(OPERATIONS["enqueueJob"]["responses"]["201"]["content"]["application/json"]["schema"], job)
    for name, response in answers.items():
        media = OPERATIONS[name]["responses"][str(response.status_code)]["content"]["application/json"]
        check(media["schema"], response.json())


async def test_the_document_is_served(locked: Api) -> None:
    response = await locked.client.get("/openapi.json")
    assert response.text == openapi_document()


async def test_every_code_leads_to_its_words(locked: Api) -> None:
    """Without a key: who has none is told so by a problem, too."""
    async with locked.client_with({}) as stranger:
        for code in error_classes():
            response = await stranger.get(f"/problems/{code}")
            assert response.status_code == 200
            words = response.json()
            assert words["description"]
            assert words["repair"]
            assert "](" not in words["repair"], code
            page = await stranger.get(f"/problems/{code}", headers={"Accept": "text/html,application/json;q=0.9"})
            assert page.headers["content-type"].startswith("text/html")
            assert page.headers["content-security-policy"].startswith("default-src 'none'")
            assert html.escape(words["repair"]) in page.text
        assert code_of(await stranger.get("/problems/NOPE")) == (404, "NOT_FOUND")
        odd = await stranger.get("/problems/<script>", headers={"Accept": "text/html"})
        assert odd.headers["content-type"] == "application/problem+json"
