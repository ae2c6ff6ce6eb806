"""Who is behind a cookie: keys that come and go, what their sessions may do, and what is noted of those turned away."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

import httpx
import pytest

from app.dashboard.session import COOKIE
from app.domain.audit import AuditQuery
from app.http.rate import RateLimiter
from tests.dashboard.visitor import HERE, KEY, Visitor
from tests.support.drivers import memory_env

_TOKEN = re.compile(r'name="token" value="([0-9a-f]+)"')


async def make_key(site: Visitor, *scopes: str, **fields: Any) -> dict[str, Any]:
    response = await site.api.client.post("/v1/api-keys", json={"label": "x", "scopes": list(scopes), **fields})
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.json()
    return made


async def sign_in(site: Visitor, token: str) -> httpx.AsyncClient:
    """Give a browser that shows a key; what it got for it, it sends from now on."""
    browser = httpx.AsyncClient(
        transport=httpx.ASGITransport(app=site.api.app), base_url=HERE, headers={"Sec-Fetch-Site": "same-origin"}
    )
    response = await browser.post("/ui/login", data={"key": token})
    if response.status_code == 303:
        browser.headers["Cookie"] = response.headers["set-cookie"].partition(";")[0]
        assert browser.headers["Cookie"].startswith(f"{COOKIE}=")
    return browser


async def status(browser: httpx.AsyncClient, path: str = "/ui/jobs") -> int:
    return (await browser.get(path)).status_code


@pytest.mark.parametrize(("overlap_ms", "after"), [(0, 303), (60_000, 200)])
async def test_a_session_ends_with_the_secret_it_began_with(stranger: Visitor, overlap_ms: int, after: int) -> None:
    key = await make_key(stranger, "jobs:read")
    browser = await sign_in(stranger, key["token"])
    assert await status(browser) == 200
    rotated = await stranger.api.client.post(f"/v1/api-keys/{key['id']}/rotate", json={"overlap_ms": overlap_ms})
    assert await status(browser) == after
    assert await status(await sign_in(stranger, rotated.json()["token"])) == 200


async def test_a_session_ends_with_its_key(stranger: Visitor) -> None:
    key = await make_key(stranger, "jobs:read")
    browser, other = await sign_in(stranger, key["token"]), await sign_in(stranger, KEY)
    assert (await stranger.api.client.delete(f"/v1/api-keys/{key['id']}")).status_code == 200
    assert (await status(browser), await status(other)) == (303, 200)


async def test_pages_and_the_api_take_from_one_rate() -> None:
    limiter = RateLimiter(1, burst=4, monotonic=lambda: 0.0)
    async with memory_env() as env, Visitor(env, key=KEY, rate=limiter).there() as site:
        browser = await sign_in(site, KEY)
        shown = [await browser.get("/ui/jobs"), await site.api.client.get("/v1/jobs"), await browser.get("/ui/dead")]
        assert [answer.headers["ratelimit"] for answer in shown] == ['"key";r=3;t=1', '"key";r=2;t=2', '"key";r=1;t=3']
        found = _TOKEN.search((await browser.get("/ui/jobs")).text)
        refused = await browser.get("/ui/jobs")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "/problems/RATE_LIMITED" in refused.text
        assert (await site.api.client.get("/v1/jobs")).status_code == 429
        assert found is not None
        never = "/ui/jobs/01a20d87-0a2c-7ae8-b8a0-c0396c8e24a7/cancel"
        assert (await browser.post(never, data={"token": found[1]})).status_code == 404
        assert (await browser.post("/ui/logout", data={"token": found[1]})).status_code == 303


async def refusals(site: Visitor) -> list[tuple[str, str | None, str, int]]:
    """Give who was turned away, with which code, where and how often: strangers, too, whom no one tenant sees."""
    await site.api.guard.write()
    page = await site.env.driver.audit(AuditQuery(action="auth.refused"))
    found = [(row.outcome, row.target, *itemgetter("path", "count")(json.loads(row.details))) for row in page.items]
    return sorted(found, key=str)


async def test_who_is_turned_away_is_in_the_audit(stranger: Visitor) -> None:
    key = await make_key(stranger, "jobs:read")
    for _ in range(3):
        await sign_in(stranger, key["token"][:-1] + "x")
    await stranger.browser.post("/ui/queues/mail/pause")
    browser = await sign_in(stranger, key["token"])
    assert await status(browser, "/ui/audit") == 403
    assert await refusals(stranger) == [
        ("FORBIDDEN", key["id"], "/ui/audit", 1),
        ("UNAUTHENTICATED", None, "/ui/login", 4),
    ]


async def test_to_be_asked_for_a_key_is_no_refusal(stranger: Visitor) -> None:
    assert await status(stranger.browser) == 303
    assert (await stranger.get("/jobs", **{"HX-Request": "true"})).status_code == 401
    assert await refusals(stranger) == []


async def test_a_page_says_what_was_done_to_nobody_but_who_did_it(stranger: Visitor) -> None:
    admin, other = await sign_in(stranger, KEY), await sign_in(stranger, KEY)
    found = _TOKEN.search((await admin.get("/ui/jobs")).text)
    assert found is not None
    acted = await admin.post("/ui/queues/mail/pause", data={"token": found[1], "reason": "it moves"})
    said, address = "Paused: running jobs go on, none is claimed", httpx.URL(acted.headers["location"])
    assert said in (await admin.get(address)).text
    sealed = address.params["done"]
    altered = sealed.replace("Paused", "Resumed")
    for browser, done in ((other, sealed), (admin, altered), (admin, said), (admin, f".{said}"), (admin, "é.é")):
        page = await browser.get(address.copy_with(params={"done": done}))
        assert (page.status_code, "running jobs go on, none is claimed" in page.text) == (200, False)
        assert 'class="toast' not in page.text


async def test_whoever_has_signed_in_may_sign_out_and_choose_a_theme(stranger: Visitor) -> None:
    key = await make_key(stranger, "jobs:write")
    browser = await sign_in(stranger, key["token"])
    page = await browser.get("/ui/")
    found = _TOKEN.search(page.text)
    assert page.status_code == 403
    assert found is not None
    themed = await browser.post("/ui/theme", data={"token": found[1], "theme": "dark"})
    left = await browser.post("/ui/logout", data={"token": found[1]})
    assert (themed.status_code, left.status_code) == (303, 303)
    assert left.headers["location"] == "/ui/login"
    assert f'{COOKIE}=""' in left.headers["set-cookie"]


@pytest.mark.parametrize(
    ("following", "where"),
    [
        ("/ui/jobs?q=queue:mail+error://x&back=\\", None),
        ("/ui/jobs", None),
        ("//elsewhere.example/ui/", "/ui/"),
        ("https://elsewhere.example/ui/", "/ui/"),
        ("/ui//elsewhere.example", "/ui/"),
        ("/ui/\\elsewhere.example?", "/ui/"),
        ("/uix", "/ui/"),
        ("", "/ui/"),
    ],
)
async def test_who_signs_in_goes_on_where_they_were_going_and_nowhere_else(
    stranger: Visitor, following: str, where: str | None
) -> None:
    response = await stranger.browser.post("/ui/login", data={"key": KEY, "next": following})
    address = httpx.URL(response.headers["location"])
    wanted = httpx.URL(following if where is None else where)
    assert (response.status_code, address.path, address.params) == (303, wanted.path, wanted.params)
    assert not address.host


async def test_a_copied_cookie_dies_when_its_owner_signs_out(stranger: Visitor) -> None:
    """Here at once, and in another process as soon as it reads its keys again; another session of the key lives on."""
    browser, other = await sign_in(stranger, KEY), await sign_in(stranger, KEY)
    copied = browser.headers["Cookie"]
    elsewhere = Visitor(stranger.env, key=KEY)
    found = _TOKEN.search((await browser.get("/ui/jobs")).text)
    assert found is not None
    async with elsewhere.there():
        elsewhere.browser.headers["Cookie"] = copied
        assert (await elsewhere.get("/jobs")).status_code == 200
        assert (await browser.post("/ui/logout", data={"token": found[1]})).status_code == 303
        browser.headers["Cookie"] = copied
        assert (await status(browser), await status(other)) == (303, 200)
        assert (await browser.post("/ui/theme", data={"token": found[1], "theme": "dark"})).status_code == 401
        await elsewhere.api.guard.changed()
        assert (await elsewhere.get("/jobs")).status_code == 303


async def test_a_form_is_bound_to_its_session(stranger: Visitor) -> None:
    browser, other = await sign_in(stranger, KEY), await sign_in(stranger, KEY)
    found = _TOKEN.search((await browser.get("/ui/jobs")).text)
    assert found is not None
    assert (await other.post("/ui/theme", data={"token": found[1], "theme": "dark"})).status_code == 403


@pytest.mark.parametrize("path", ["/ui/theme", "/ui/logout"])
async def test_a_stranger_has_nothing_to_sign_out_of(stranger: Visitor, path: str) -> None:
    assert (await stranger.browser.post(path)).status_code == 401


async def test_looking_at_pages_is_use_of_a_key(stranger: Visitor) -> None:
    key = await make_key(stranger, "jobs:read")
    browser = await sign_in(stranger, key["token"])
    await stranger.api.guard.write()
    first = await used_at(stranger, key["id"])
    await stranger.env.advance(timedelta(hours=1))
    assert await status(browser) == 200
    await stranger.api.guard.write()
    assert await used_at(stranger, key["id"]) == first + timedelta(hours=1)


async def used_at(site: Visitor, key_id: str) -> datetime:
    items = (await site.api.client.get("/v1/api-keys")).json()["items"]
    (found,) = [item["last_used_at"] for item in items if item["id"] == key_id]
    return datetime.fromisoformat(found)
