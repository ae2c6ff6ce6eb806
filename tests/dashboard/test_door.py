"""Who is behind a cookie: keys that come and go, what their sessions may do, and what is noted of those turned away."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from app.dashboard.session import COOKIE
from tests.dashboard.visitor import HERE, KEY, Visitor

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
