"""What is written where a number or a time is asked for is taken, explained or passed over, and never our fault."""

from __future__ import annotations

import pytest

from app.domain.errors import OutlastError
from app.jobs import job, schedule
from tests.dashboard.visitor import Visitor
from tests.support.drivers import QUEUE

MANY_DIGITS = "9" * 5_000
NO_NUMBERS = ("--5", "-", "5-", "+5", "٣", "²", "1e3", "9" * 19)


@pytest.mark.parametrize("path", ["/workers", "/events", "/audit"])
@pytest.mark.parametrize("before", [*NO_NUMBERS, "-5", "9" * 18, MANY_DIGITS], ids=ascii)
async def test_a_page_begins_at_the_newest_where_no_number_says_otherwise(
    visitor: Visitor, path: str, before: str
) -> None:
    response = await visitor.browser.get(f"/ui{path}", params={"before": before})
    assert response.status_code == 200


@pytest.mark.parametrize("row", [*NO_NUMBERS, "9" * 18])
async def test_steps_are_shown_from_any_row(visitor: Visitor, row: str) -> None:
    job = await visitor.api.post()
    response = await visitor.browser.get(f"/ui/jobs/{job['id']}", params={"row": row})
    assert response.status_code == 200


@pytest.mark.parametrize("text", [*NO_NUMBERS, MANY_DIGITS], ids=ascii)
async def test_a_field_that_is_no_number_is_refused(visitor: Visitor, text: str) -> None:
    job = await visitor.api.post()
    places = ((f"/queues/{QUEUE}/pause", "minutes"), (f"/queues/{QUEUE}/limit", "concurrency"))
    for path, name in (*places, ("/dead/purge", "days"), (f"/jobs/{job['id']}/edit", "priority")):
        response = await visitor.send(path, {name: text})
        assert response.status_code == 422
        assert f"{name} is not a whole number" in response.text


@pytest.mark.parametrize("q", ["created:0001-01-01T00:00+23:59", "before:9999-12-31T23:59-23:59"])
async def test_a_time_that_is_none_in_utc_is_explained(visitor: Visitor, q: str) -> None:
    page = (await visitor.browser.get("/ui/jobs", params={"q": q})).text
    assert "is not known; it takes" in page
    response = await visitor.send("/bulk/confirm", {"action": "cancel", "scope": "matching", "q": q})
    assert response.status_code == 422
    assert "correct the search first" in response.text


ODD = "jaVasCript:/*-/*`/*\\`/*'/*\"/**/(/* */oNcliCk=alert(1) )//</scRipt/--!>\\x3csVg/<sVg/oNloAd=alert(2)//>"
NAMED = {
    "a queue of a job": ("/v1/jobs", {"name": "demo.job", "payload": {}, "queue": ODD}),
    "a job type": ("/v1/jobs", {"name": ODD, "payload": {}}),
    "an event": ("/v1/events", {"name": ODD, "key": "1", "payload": {}}),
    "a queue of a key": ("/v1/api-keys", {"label": "x", "scopes": ["jobs:read"], "queues": [ODD]}),
    "a tag with a line": ("/v1/jobs", {"name": "demo.job", "payload": {}, "tags": [f"a\n{ODD[:20]}"]}),
    "an address": ("/v1/webhooks", {"label": "x", "url": f"https://hooks.example.com/{ODD}"}),
    "an address of another kind": ("/v1/webhooks", {"label": "x", "url": ODD.replace(" ", "").replace("\\", "")}),
}


async def test_what_names_something_is_a_name(visitor: Visitor) -> None:
    for what, (path, body) in NAMED.items():
        response = await visitor.api.client.post(path, json=body)
        assert response.status_code == 422, f"{what}: {response.text}"
        assert response.json()["code"] in {"REQUEST_INVALID", "CALLBACK_REFUSED"}, what


def test_what_code_declares_has_names_too() -> None:
    async def body(size: int) -> None: ...

    with pytest.raises(OutlastError, match="is not a job name"):
        job(ODD)(body)
    with pytest.raises(OutlastError, match="queue"):
        job("odd.job", queue=ODD)(body)
    with pytest.raises(OutlastError, match="cannot name a schedule"):
        schedule(ODD, job=job("odd.job")(body), cron="* * * * *", tz="UTC", payload={"size": 1})
