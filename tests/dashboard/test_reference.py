"""The reference of the API: it says what the OpenAPI document says, for whoever has signed in."""

from __future__ import annotations

import html
import json
import re

import pytest

from app.dashboard.reference import Reference
from tests.dashboard.test_door import make_key, sign_in
from tests.dashboard.visitor import Visitor
from tests.support.source import CHECKOUT

DOCUMENT = json.loads((CHECKOUT / "openapi" / "openapi.json").read_text())
IDS = {operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()}


async def test_every_operation_is_listed_once_and_has_its_page(visitor: Visitor) -> None:
    page = await visitor.see("/docs")
    assert sorted(re.findall(r'href="/ui/docs/(\w+)"', page)) == sorted(IDS)
    for operation in ("getLivez", "cancelJob", "createBulkOperation", "createApiKey", "streamJob"):
        if operation in IDS:
            await visitor.see(f"/docs/{operation}")
    assert (await visitor.get("/docs/nothing")).status_code == 404


async def test_fields_say_what_they_take() -> None:
    found = Reference(DOCUMENT).operations["enqueueJob"]
    fields = {field.name: field for field in found.fields}
    assert (fields["Prefer"].place, fields["Prefer"].is_required) == ("header", False)
    assert (fields["name"].place, fields["name"].is_required) == ("body", True)
    assert fields["on_conflict"].type == "return | error or null"
    assert fields["idempotency_key"].type.startswith("string, at least 1 long, at most 255 long, matches ")
    states = next(each for each in Reference(DOCUMENT).operations["listJobs"].fields if each.name == "state")
    assert states.type.startswith("list of delayed | ready | running")


async def test_the_command_is_the_first_example(visitor: Visitor) -> None:
    page = html.unescape(re.sub("<[^>]*>", "", await visitor.see("/docs/enqueueJob")))
    assert 'curl -s -X POST "$OUTLAST/v1/jobs"' in page
    assert "-d '{\"" in page
    assert "authorization: Bearer" not in await visitor.see("/docs/getLivez")


async def test_every_answer_is_there() -> None:
    for operation in Reference(DOCUMENT).operations.values():
        described = DOCUMENT["paths"][operation.path][operation.method.lower()]["responses"]
        assert [answer.status for answer in operation.answers] == sorted(described)


async def test_it_needs_a_session_and_no_scope(stranger: Visitor) -> None:
    for path in ("/docs", "/docs/enqueueJob", "/docs/openapi.json"):
        assert (await stranger.get(path)).status_code == 303
    browser = await sign_in(stranger, (await make_key(stranger, "jobs:write"))["token"])
    assert (await browser.get("/ui/docs")).status_code == 200
    assert (await browser.get("/ui/docs/openapi.json")).json() == DOCUMENT


@pytest.mark.parametrize(("short", "long"), [("/docs", "/ui/docs"), ("/ui", "/ui/")])
async def test_short_addresses_lead_there_with_what_is_asked(stranger: Visitor, short: str, long: str) -> None:
    for asked in ("", "?q=tag%3Aa&range=24h"):
        response = await stranger.browser.get(short + asked)
        assert (response.status_code, response.headers["location"]) == (308, long + asked)
