"""The list of jobs: what it can be searched for, which columns it shows, and the same as a file."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from typing import Any

import pytest
from starlette.types import Message

from app.control.jobs import ListQuery
from app.dashboard.export import COLUMNS, harmless
from app.dashboard.pages import jobs as page
from app.domain.api_key import Identity, Scope
from app.domain.errors import DriverUnavailable
from app.domain.outcome import DeadLettered
from app.domain.snapshot import JobPage
from app.domain.state import DeadReason
from tests.dashboard.visitor import Visitor
from tests.http.api import failure

_ROW = re.compile(r'<tr role="row" id="job-([0-9a-f-]+)"')


async def found(visitor: Visitor, q: str) -> list[str]:
    return _ROW.findall((await visitor.get(f"/jobs?q={q}")).text)


async def test_jobs_are_found_by_what_they_were_given_and_failed_with(visitor: Visitor) -> None:
    dead = (await visitor.api.post(tags=["night"], idempotency_key="order:7"))["id"]
    worker = (await visitor.api.claim()).token.worker_id
    assert await found(visitor, f"worker:{worker}") == [dead]
    await visitor.api.env.driver.close_worker(worker)
    other = (await visitor.api.post(tags=["day"]))["id"]
    assert await found(visitor, "tag:night") == [dead]
    assert await found(visitor, "tag:day") == [other]
    assert await found(visitor, "key:order:7") == [dead]
    assert await found(visitor, "tag:none") == []


async def test_jobs_are_found_by_their_error(visitor: Visitor) -> None:
    dead = (await visitor.api.post())["id"]
    await visitor.api.finish(DeadLettered(error=failure("BROKEN"), reason=DeadReason.TERMINAL))
    await visitor.api.post()
    assert await found(visitor, "error:BROKEN") == [dead]
    assert await found(visitor, "error:OTHER") == []


@pytest.mark.parametrize("q", ["worker:x", "worker:-1", "worker:99999999999", "tag:", "error:"])
async def test_a_qualifier_that_means_nothing_is_said_to(visitor: Visitor, q: str) -> None:
    assert 'role="alert"' in await visitor.see(f"/jobs?q={q}")


async def test_nothing_is_done_to_all_that_match_what_no_operation_knows(visitor: Visitor) -> None:
    await visitor.api.post(tags=["night"])
    assert 'value="matching"' in await visitor.see("/jobs?q=state:ready")
    assert 'value="matching"' not in await visitor.see("/jobs?q=tag:night")
    fields = {"action": "cancel", "scope": "matching", "q": "state:ready tag:night"}
    for path in ("/bulk/confirm", "/bulk"):
        response = await visitor.send(path, {**fields, "expected": "1", "typed": "1"})
        assert response.status_code == 422
        assert "tag:" in response.text
    assert (await visitor.browser.get("/v1/bulk-operations")).json()["items"] == []


async def exported(visitor: Visitor, query: str) -> tuple[list[dict[str, str]], list[dict[str, Any]]]:
    table = await visitor.get(f"/jobs.file?as=csv&{query}")
    lines = await visitor.get(f"/jobs.file?as=ndjson&{query}")
    for response, kind in ((table, "csv"), (lines, "ndjson")):
        assert response.status_code == 200
        assert response.headers["content-disposition"].endswith(f'.{kind}"')
    rows = list(csv.DictReader(io.StringIO(table.text)))
    return rows, [json.loads(line) for line in lines.text.splitlines()]


async def test_a_search_is_given_as_a_file_without_payloads(visitor: Visitor) -> None:
    first = await visitor.api.post(payload={"secret": "swordfish"}, tags=["a", "b"], delay_ms=60_000)
    second = await visitor.api.post(priority=3)
    rows, documents = await exported(visitor, "q=")
    assert [row["id"] for row in rows] == [each["id"] for each in documents] == [second["id"], first["id"]]
    assert tuple(rows[0]) == COLUMNS
    assert (rows[1]["tags"], rows[1]["state"], rows[0]["priority"]) == ("a b", "delayed", "3")
    assert (documents[1]["tags"], "payload" in documents[1]) == (["a", "b"], False)
    assert "swordfish" not in json.dumps([rows, documents])
    rows, documents = await exported(visitor, "q=state:delayed")
    assert [row["id"] for row in rows] == [each["id"] for each in documents] == [first["id"]]


async def test_a_file_has_so_many_jobs_and_no_more(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [(await visitor.api.post(delay_ms=60_000))["id"] for _ in range(5)]
    monkeypatch.setattr(page, "_A_PAGE", 2)
    rows, _ = await exported(visitor, "q=")
    assert [row["id"] for row in rows] == made[::-1], "page by page"
    monkeypatch.setattr(page, "MOST_EXPORTED", 3)
    rows, documents = await exported(visitor, "q=")
    assert [row["id"] for row in rows] == [each["id"] for each in documents] == made[:1:-1]


class _Download:
    """A file as the server sends it: its parts as they come."""

    def __init__(self, visitor: Visitor) -> None:
        self.body = b""
        self.has_ended = False
        self.has_begun = asyncio.Event()
        self._app = visitor.api.app

    async def take(self, path: str, query: bytes) -> None:
        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query,
        }
        scope |= {"headers": [(b"host", b"localhost:8080")], "asgi": {"version": "3.0", "spec_version": "2.4"}}
        await self._app({**scope, "http_version": "1.1", "scheme": "http"}, self._receive, self._send)

    async def _receive(self) -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.body += message["body"]
            self.has_ended = not message["more_body"]
            if self.body:
                self.has_begun.set()


async def test_a_file_begins_before_its_last_page_is_read(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [(await visitor.api.post(delay_ms=60_000))["id"] for _ in range(5)]
    monkeypatch.setattr(page, "_A_PAGE", 2)
    download, listing, store = _Download(visitor), visitor.env.driver.list, visitor.env.driver

    async def in_turn(query: ListQuery) -> JobPage:
        if query.before is not None:
            async with asyncio.timeout(5):
                await download.has_begun.wait()
        return await listing(query)

    monkeypatch.setattr(store, "list", in_turn)
    await download.take("/ui/jobs.file", b"as=ndjson")
    assert download.has_ended
    assert [json.loads(line)["id"] for line in download.body.splitlines()] == made[::-1]


async def test_a_file_is_cut_short_and_not_ended_where_the_store_goes_away(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await visitor.api.post(delay_ms=60_000)
    monkeypatch.setattr(page, "_A_PAGE", 2)
    download, listing, store = _Download(visitor), visitor.env.driver.list, visitor.env.driver

    async def once(query: ListQuery) -> JobPage:
        if query.before is not None:
            raise DriverUnavailable("gone", fix="wait")
        return await listing(query)

    monkeypatch.setattr(store, "list", once)
    with pytest.raises(DriverUnavailable):
        await download.take("/ui/jobs.file", b"as=csv")
    assert (len(download.body.splitlines()), download.has_ended) == (3, False), "a head and one page"


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "  =1", "|calc", '=HYPERLINK("x")'])
def test_no_cell_is_a_formula(cell: str) -> None:
    assert harmless(cell) == f"'{cell}"
    assert harmless("a=1") == "a=1"


async def test_what_a_body_says_is_no_formula_either(visitor: Visitor) -> None:
    await visitor.api.post(tags=["=cmd|' /C calc'!A0"])
    await visitor.api.finish(DeadLettered(error=failure("=1+1"), reason=DeadReason.TERMINAL))
    rows, _ = await exported(visitor, "q=")
    assert rows[0]["tags"].startswith("'=")
    assert rows[0]["error"] == "'=1+1"


async def test_a_file_is_of_the_visitors_tenant_and_of_a_search_that_is_understood(visitor: Visitor) -> None:
    await visitor.api.post()
    assert (await visitor.get("/jobs.file?q=colour:red")).status_code == 422
    visitor.api.act_as(Identity(name="other", tenant="other", scopes=frozenset({Scope.JOBS_READ})))
    assert await exported(visitor, "q=") == ([], [])


async def test_columns_are_left_out_for_this_browser(visitor: Visitor) -> None:
    await visitor.api.post(tags=["night"])
    assert 'data-l="Queue"' in await visitor.see("/jobs")
    response = await visitor.send("/columns", {"show": ["tags", "age"], "next": "/ui/jobs?q=state:live"})
    assert (response.status_code, response.headers["location"]) == (303, "/ui/jobs?q=state:live")
    cookie = response.headers["set-cookie"].partition(";")[0]
    shown = (await visitor.get("/jobs", Cookie=cookie)).text
    assert "night" in shown
    assert [word for word in ("Queue", "Attempt", "Wait", "Duration") if f'data-l="{word}"' in shown] == []
    assert shown.count('role="columnheader"') == 5
    assert 'data-l="Queue"' in (await visitor.get("/jobs", Cookie="outlast-columns=state.<b>.id")).text
