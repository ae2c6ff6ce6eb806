"""Bodies, addresses and headers that a framework's defaults would answer with a 500 or let through."""

from __future__ import annotations

import gzip
import json

import httpx
import pytest

from app.domain.json_text import JsonLimits
from tests.http.api import Api, code_of
from tests.support.drivers import NAME

LIMIT = 262_144
BODY_LIMIT = LIMIT + 65_536
MUTATIONS = ("/v1/jobs", "/v1/jobs/x/cancel", "/v1/jobs/x/retry", "/v1/queues/q/pause", "/v1/queues/q/resume")


def enqueue_text(payload: str, *, extra: str = "") -> bytes:
    return f'{{"name": "{NAME}", "payload": {payload}{extra}}}'.encode("utf-8", "surrogatepass")


async def send(api: Api, body: bytes, path: str = "/v1/jobs", content_type: str = "application/json") -> httpx.Response:
    return await api.client.post(path, content=body, headers={"Content-Type": content_type})


JSON_REFUSED = {
    "NaN": b"NaN",
    "-Infinity": b"-Infinity",
    "Infinity in a list": b"[1, Infinity]",
    "1e999": b"1e999",
    "-1e999": b"-1e999",
    "400 digits and a point": b"9" * 400 + b".0",
    "5,000 digits": b"1" * 5_000,
    "a lone surrogate": b'"\\ud800"',
    "surrogates the wrong way round": b'"\\udc00\\ud800"',
    "a lone surrogate as a key": b'{"\\ud800": 1}',
    "a raw surrogate": b'"\xed\xa0\x80"',
    "bad UTF-8": b'"\xff"',
    "an overlong encoding": b'"\xc0\x80"',
    "NUL": b'"\\u0000"',
    "NUL in a key": b'{"a\\u0000": 1}',
    "a raw NUL": b'"\x00"',
    "a raw line break": b'"\n"',
    "duplicate keys": b'{"tenant": "a", "tenant": "b"}',
    "duplicate keys in two spellings": b'{"a": 1, "\\u0061": 2}',
    "duplicate keys deep inside": b'[{"x": {"a": 1, "a": 1}}]',
    "depth 65": b"[" * 65 + b"]" * 65,
    "depth 900": b"[" * 900 + b"]" * 900,
    "depth 100,000": b"[" * 100_000 + b"]" * 100_000,
    "object depth 20,000": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    "10,001 keys": ("{" + ",".join(f'"{n}":1' for n in range(10_001)) + "}").encode(),
    "more than 100,000 values": b"[" + b"1," * 100_000 + b"1]",
    "nothing": b"",
    "a comment": b"1 // one",
    "a trailing comma": b"[1,]",
    "single quotes": b"{'a': 1}",
    "a leading zero": b"01",
    "a plus": b"+1",
    "a bare word": b"tru",
    "an unfinished text": b'{"a": ',
}


@pytest.mark.parametrize("payload", [pytest.param(raw, id=name) for name, raw in JSON_REFUSED.items()])
async def test_json_that_cannot_be_kept_is_refused(api: Api, payload: bytes) -> None:
    body = b'{"name": "%s", "payload": %s}' % (NAME.encode(), payload)
    assert code_of(await send(api, body)) == (422, "JSON_INVALID")
    assert (await api.client.get("/v1/jobs")).json()["items"] == []


@pytest.mark.parametrize("path", MUTATIONS)
@pytest.mark.parametrize("raw", [b'{"reason": "\\u0000"}', b'{"reason": "\\ud800"}', b'{"a":1,"a":1}', b"\xff", b"NaN"])
async def test_every_body_is_admitted_the_same_way(api: Api, path: str, raw: bytes) -> None:
    assert code_of(await send(api, raw, path)) == (422, "JSON_INVALID")


@pytest.mark.parametrize("field", ["name", "queue", "idempotency_key", "run_at", "on_conflict", "parent_id"])
@pytest.mark.parametrize("text", ["\\u0000", "\\ud800", "\\udc00\\ud800", "a\\u0000b"])
async def test_no_string_field_takes_nul_or_lone_surrogates(api: Api, field: str, text: str) -> None:
    body = f'{{"name": "{NAME}", "payload": {{}}, "{field}": "{text}"}}'
    if field == "name":
        body = f'{{"payload": {{}}, "name": "{text}"}}'
    assert code_of(await send(api, body.encode())) == (422, "JSON_INVALID")


@pytest.mark.parametrize(
    "raw", [b"[]", b"1", b'"x"', b"null", b"true", b"[" + b"{}," * 10 + b"{}]"], ids=lambda raw: raw[:8].decode()
)
async def test_a_body_is_an_object(api: Api, raw: bytes) -> None:
    assert code_of(await send(api, raw)) == (422, "REQUEST_INVALID")


async def test_the_place_of_a_fault_is_named(api: Api) -> None:
    response = await send(api, enqueue_text('{"a/b": [0, NaN]}'))
    assert code_of(response) == (422, "JSON_INVALID")
    assert response.json()["errors"][0]["pointer"] == "/payload/a~1b/1"


async def test_what_is_just_within_the_limits_is_kept(api: Api) -> None:
    for payload in (
        "[" * 64 + "]" * 64,
        "1" * 4_300,
        '"' + "x" * (LIMIT - 2) + '"',
        "[" + "1," * 99_998 + "1]",
        '"\\ud83e\\udd8a"',
        "1.7976931348623157e308",
    ):
        response = await send(api, enqueue_text(payload))
        assert response.status_code == 201, response.text[:300]
        assert payload.encode() in response.content


@pytest.mark.parametrize("size", [LIMIT + 1, BODY_LIMIT + 1, 20 * 1024 * 1024])
async def test_too_much_is_refused(api: Api, size: int) -> None:
    payload = '"' + "x" * (size - 2) + '"'
    assert code_of(await send(api, enqueue_text(payload))) == (413, "PAYLOAD_TOO_LARGE")


async def test_meta_is_small_and_flat(api: Api) -> None:
    big = json.dumps({"x": "y" * 5_000})
    assert (await send(api, enqueue_text("{}", extra=f', "meta": {big}'))).status_code in (413, 422)
    nested = await send(api, enqueue_text("{}", extra=', "meta": {"a": [1]}'))
    assert nested.status_code == 422


@pytest.mark.parametrize("content_type", [
    "text/plain", "", "application/x-www-form-urlencoded", "application/jsonp", "multipart/form-data; boundary=x",
    "application/json; charset=latin-1", "application/json; charset=utf-16", "application/json, text/plain",
])  # fmt: skip
@pytest.mark.parametrize("path", MUTATIONS)
async def test_only_json_is_taken(api: Api, content_type: str, path: str) -> None:
    assert code_of(await send(api, b"{}", path, content_type)) == (415, "MEDIA_UNSUPPORTED")


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"'])
async def test_json_may_say_that_it_is_utf_8(api: Api, content_type: str) -> None:
    assert (await send(api, enqueue_text("{}"), content_type=content_type)).status_code == 201


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity, gzip", "GZIP", "x"])
async def test_encoded_bodies_are_refused_unread(api: Api, encoding: str) -> None:
    response = await api.client.post(
        "/v1/jobs",
        content=gzip.compress(enqueue_text('"' + "x" * 1_000_000 + '"')),
        headers={"Content-Type": "application/json", "Content-Encoding": encoding},
    )
    assert code_of(response) == (415, "MEDIA_UNSUPPORTED")


async def test_identity_is_no_encoding(api: Api) -> None:
    response = await api.client.post(
        "/v1/jobs",
        content=enqueue_text("{}"),
        headers={"Content-Type": "application/json", "Content-Encoding": "identity"},
    )
    assert response.status_code == 201


# --- addresses and headers


@pytest.mark.parametrize("odd", ["%00", "a%00b", "%FF", "%ED%A0%80", "%C0%80", "%0A", "%1B[31m", "%7F"])
@pytest.mark.parametrize("path", [
    "/v1/jobs/{}", "/v1/jobs/{}/attempts", "/v1/jobs/{}/result", "/v1/job-types/{}", "/v1/queues/{}", "/{}",
    "/v1/jobs?name={}", "/v1/jobs?cursor={}", "/v1/jobs?tenant={}", "/v1/jobs?{}=1", "/v1/workers?x={}", "/livez?{}",
])  # fmt: skip
async def test_addresses_that_mean_nothing_are_refused(api: Api, path: str, odd: str) -> None:
    assert code_of(await api.client.get(path.format(odd))) == (422, "REQUEST_INVALID")


@pytest.mark.parametrize("action", MUTATIONS[1:])
async def test_odd_addresses_are_refused_for_actions_too(api: Api, action: str) -> None:
    assert code_of(await api.client.post(action.replace("/x/", "/%00/").replace("/q/", "/%FF/"))) == (
        422,
        "REQUEST_INVALID",
    )


async def test_an_endless_address_is_refused(api: Api) -> None:
    assert code_of(await api.client.get("/v1/jobs?name=" + "a" * 10_000)) == (422, "REQUEST_INVALID")
    assert code_of(await api.client.get("/v1/jobs/" + "a" * 10_000)) == (422, "REQUEST_INVALID")


@pytest.mark.parametrize("path", ["/v1/jobs/../../etc/passwd", "/v1/jobs/%2e%2e%2f", "/v1/queues/a%2Fb", "//v1/jobs"])
async def test_paths_lead_nowhere_else(api: Api, path: str) -> None:
    assert code_of(await api.client.get(path)) in ((404, "NOT_FOUND"), (404, "JOB_NOT_FOUND"))


@pytest.mark.parametrize(
    "header", ["X-Anything", "Prefer", "traceparent", "X-Request-Id", "If-None-Match", "Authorization", "Content-Type"]
)
@pytest.mark.parametrize("value", [b"a\x00b", b"\x01", b"a\x7fb", b"a\x1b[0m"])
async def test_control_characters_in_headers_are_refused(api: Api, header: str, value: bytes) -> None:
    response = await api.client.get("/v1/jobs", headers=[(header.encode(), value)])
    assert code_of(response) == (422, "REQUEST_INVALID")


@pytest.mark.parametrize("value", [b"\xff\xfe", b"\xed\xa0\x80", "snow ☃".encode()])
@pytest.mark.parametrize("header", ["Prefer", "traceparent", "X-Request-Id", "If-None-Match", "Accept", "Cookie"])
async def test_odd_bytes_in_headers_harm_nobody(api: Api, header: str, value: bytes) -> None:
    job = await api.post()
    response = await api.client.get(f"/v1/jobs/{job['id']}", headers=[(header.encode(), value)])
    assert response.status_code == 200
    assert response.headers["x-request-id"].isascii()


def test_the_limits_are_those_of_the_contract() -> None:
    limits = JsonLimits()
    assert (limits.max_bytes, limits.max_depth, limits.max_keys, limits.max_nodes, limits.max_digits) == (
        LIMIT, 64, 10_000, 100_000, 4_300,
    )  # fmt: skip
