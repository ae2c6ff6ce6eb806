"""What is true of every page: its headers, its door, its tokens, its files, and how errors read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.dashboard.assets import Assets
from app.dashboard.headers import POLICY
from app.dashboard.session import COOKIE
from tests.browser.fetch import BROWSER, DASHBOARD, digest_of
from tests.dashboard.visitor import KEY, Visitor

MOST_STYLE_BYTES = 20_480


async def test_the_pages_begin_at_one_address(visitor: Visitor) -> None:
    response = await visitor.browser.get("/ui")
    assert (response.status_code, response.headers["location"]) == (308, "/ui/")
    assert "<h1>Overview</h1>" in await visitor.see("/")


@pytest.mark.parametrize("path", ["/", "/nothing", "/static/0/none.css", "/jobs/none"])
async def test_every_answer_has_the_headers_of_pages(visitor: Visitor, path: str) -> None:
    headers = (await visitor.get(path)).headers
    assert headers["content-security-policy"] == POLICY
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


async def test_files_are_kept_for_ever_under_an_address_that_names_their_content(visitor: Visitor) -> None:
    found = re.search(r'href="(/ui/static/[0-9a-f]+/outlast\.css)"', await visitor.see("/"))
    assert found is not None
    response = await visitor.browser.get(found[1])
    assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert response.headers["content-type"].startswith("text/css")
    assert (await visitor.browser.get(found[1].replace("outlast", "../site"))).status_code == 404


def test_the_style_stays_small() -> None:
    files = Assets().files
    assert len(files["tokens.css"]) + len(files["outlast.css"]) <= MOST_STYLE_BYTES


@pytest.mark.parametrize("folder", [DASHBOARD, BROWSER], ids=["dashboard", "browser"])
def test_scripts_of_others_are_as_they_came(folder: Path) -> None:
    for package in json.loads((folder / "VENDOR.json").read_text()):
        assert package["licence"]
        for name, digest in package["files"].items():
            assert digest_of((folder / name).read_bytes()) == digest, name


async def test_a_page_that_is_not_there_reads_as_one(visitor: Visitor) -> None:
    response = await visitor.get("/no/such<script>page")
    assert response.status_code == 404
    assert "there is no such page" in response.text
    assert "/problems/NOT_FOUND" in response.text


@pytest.mark.parametrize(
    ("path", "allowed"), [("/jobs", "GET, HEAD"), ("/login", "GET, HEAD, POST"), ("/logout", "POST"), ("/no", None)]
)
async def test_what_no_browser_asks_is_refused_with_what_may_be_asked(
    visitor: Visitor, path: str, allowed: str | None
) -> None:
    for method in ("OPTIONS", "PUT"):
        response = await visitor.browser.request(method, f"/ui{path}")
        assert response.status_code == (404 if allowed is None else 405)
        assert response.headers.get("Allow") == allowed
        assert allowed is None or f"use {allowed}" in response.text


async def test_a_fragment_that_has_not_changed_is_not_sent_again(visitor: Visitor) -> None:
    first = await visitor.get("/", **{"HX-Request": "true"})
    again = await visitor.get("/", **{"HX-Request": "true", "If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


# --- who may


async def test_a_stranger_is_asked_for_a_key_and_led_on(stranger: Visitor) -> None:
    response = await stranger.get("/jobs?q=queue:mail")
    assert response.status_code == 303
    assert response.headers["location"] == "/ui/login?next=%2Fui%2Fjobs%3Fq%3Dqueue%3Amail"
    asked = await stranger.see("/login?next=/ui/jobs")
    assert 'name="next" value="/ui/jobs"' in asked


async def test_a_key_becomes_a_cookie_that_is_not_the_key(stranger: Visitor) -> None:
    response = await stranger.browser.post("/ui/login", data={"key": KEY, "next": "/ui/"})
    assert (response.status_code, response.headers["location"]) == (303, "/ui/")
    cookie = response.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert KEY not in cookie
    assert all(word in cookie for word in ("Secure", "HttpOnly", "SameSite=strict", "Path=/"))
    value = cookie.partition("=")[2].partition(";")[0]
    assert (await stranger.get("/", Cookie=f"{COOKIE}={value}")).status_code == 200
    assert (await stranger.get("/", Cookie=f"{COOKIE}={value}x")).status_code == 303


async def test_another_key_is_refused(stranger: Visitor) -> None:
    response = await stranger.browser.post("/ui/login", data={"key": "x" * 32})
    assert response.status_code == 401
    assert "set-cookie" not in response.headers
    assert "not known here" in response.text


@pytest.mark.parametrize("next_page", ["https://evil.example/", "//evil.example", "/v1/jobs", "/ui/\\evil", ""])
async def test_signing_in_leads_nowhere_else(stranger: Visitor, next_page: str) -> None:
    response = await stranger.browser.post("/ui/login", data={"key": KEY, "next": next_page})
    assert response.headers["location"] == "/ui/"


async def test_the_api_takes_no_cookie(stranger: Visitor) -> None:
    response = await stranger.browser.post("/ui/login", data={"key": KEY})
    value = response.headers["set-cookie"].partition("=")[2].partition(";")[0]
    found = await stranger.browser.get("/v1/jobs", headers={"Cookie": f"{COOKIE}={value}"})
    assert found.status_code == 401


# --- what is sent


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}]
)
async def test_a_form_of_another_origin_is_refused(visitor: Visitor, headers: dict[str, str]) -> None:
    response = await visitor.send("/theme", {"theme": "dark"}, **headers)
    assert response.status_code == 403
    assert "set-cookie" not in response.headers


async def test_a_form_without_its_token_is_refused(visitor: Visitor) -> None:
    for token in ("", "0" * 32, "é"):
        response = await visitor.send("/theme", {"theme": "dark", "token": token})
        assert response.status_code == 403
        assert "made for another session" in response.text


async def test_a_theme_is_kept_by_the_browser_and_said_by_the_server(visitor: Visitor) -> None:
    assert "data-theme" not in await visitor.see("/")
    response = await visitor.send("/theme", {"theme": "dark", "next": "/ui/"})
    cookie = response.headers["set-cookie"].partition(";")[0]
    assert '<html lang="en" data-theme="dark">' in (await visitor.get("/", Cookie=cookie)).text
    assert "data-theme" not in (await visitor.get("/", Cookie='outlast-theme="><script>')).text


async def test_a_form_that_is_too_large_is_not_read(visitor: Visitor) -> None:
    response = await visitor.send("/theme", {"theme": "x" * 2_000_000})
    assert response.status_code == 413
