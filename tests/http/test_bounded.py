"""What comes before a request is a request, over a real socket: endless, late, or from too many."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from app.http.bounded import WireLimits, most_connections
from app.http.server import HttpServer
from tests.http.api import Api

HEAD_BYTES = 32_768
GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
LAST = b"Connection: close\r\n\r\n"
LONG = 3_600.0


@asynccontextmanager
async def served(api: Api, *, seconds: float = LONG, connections: int = 100) -> AsyncIterator[tuple[str, int]]:
    limits = WireLimits(head_seconds=seconds, connections=connections)
    server = HttpServer(api.app, host="127.0.0.1", port=0, graceful_seconds=1, limits=limits)
    await server.start()
    try:
        yield "127.0.0.1", server.port
    finally:
        await server.stop()


async def exchange(address: tuple[str, int], request: bytes) -> bytes:
    """Send bytes and give all that is answered until the server closes."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""  # closed with bytes unread, which is as good a refusal
    finally:
        writer.close()


def padded(size: int) -> bytes:
    """Give a request whose head has exactly so many bytes."""
    return GET + b"X: " + b"a" * (size - len(GET) - len(LAST) - 5) + b"\r\n" + LAST


async def is_up(address: tuple[str, int]) -> bool:
    return (await exchange(address, GET + LAST)).endswith(b"ok\n")


async def test_a_head_of_just_the_limit_is_answered_and_one_byte_more_is_not(api: Api) -> None:
    assert len(padded(HEAD_BYTES)) == HEAD_BYTES
    async with served(api) as address:
        assert (await exchange(address, padded(HEAD_BYTES))).endswith(b"ok\n")
        assert (await exchange(address, padded(HEAD_BYTES + 1))).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("start", [
    GET + b"X: ", GET, b"GET /", b"\r\n", b"A" * 10,
], ids=["one header", "many headers", "target", "blank lines", "method"])  # fmt: skip
async def test_an_endless_head_is_refused_at_the_limit(api: Api, start: bytes) -> None:
    filler = {GET: b"a: b\r\n", b"\r\n": b"\r\n"}.get(start, b"a")
    async with served(api) as address:
        # Just over the limit, so that all of it is read and the answer is not lost to a reset.
        answer = await exchange(address, (start + filler * HEAD_BYTES)[: HEAD_BYTES + 1])
        assert answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))
        reader, writer = await asyncio.open_connection(*address)
        sent = 0
        with contextlib.suppress(ConnectionError):
            for _ in range(1_500):
                writer.write(start + filler * 100_000)
                await writer.drain()
                sent += 100_000
        writer.close()
        assert sent < 20_000_000  # what the sockets hold, and no more
        assert reader.at_eof() or reader.exception() is not None
        assert await is_up(address)


async def test_a_refusal_is_a_problem_document_that_closes_the_connection(api: Api) -> None:
    async with served(api) as address:
        head, _, body = (await exchange(address, padded(HEAD_BYTES + 1))).partition(b"\r\n\r\n")
        headers = dict(line.decode().split(": ", 1) for line in head.split(b"\r\n")[1:])
        response = httpx.Response(431, headers=headers, content=body)
        assert response.headers["content-type"] == "application/problem+json"
        assert response.headers["connection"] == "close"
        assert response.json()["code"] == "REQUEST_INVALID"
        assert response.json()["status"] == 431
        assert response.json()["request_id"] == response.headers["x-request-id"]


async def test_each_request_of_a_connection_has_the_whole_limit(api: Api) -> None:
    request = GET + b"X: " + b"a" * 20_000 + b"\r\n\r\n"
    async with served(api) as address:
        answer = await exchange(address, request * 5 + GET + LAST)
        assert answer.count(b"HTTP/1.1 200 ") == 6
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(5):
            writer.write(request)
            assert b" 200 " in await asyncio.wait_for(reader.readuntil(b"ok\n"), 10)
        writer.close()


async def test_a_body_and_its_chunks_do_not_count_but_trailers_do(api: Api) -> None:
    body = b'{"name": "none", "payload": {"x": "%s"}}' % (b"y" * 100_000)
    tiny = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    async with served(api) as address:
        for framed in (tiny, b"%x\r\n%s\r\n" % (len(body), body)):
            answer = await exchange(address, CHUNKED + framed + b"0\r\n\r\n" + GET + LAST)
            assert answer.startswith(b"HTTP/1.1 404 "), answer[:300]  # read whole: there is no such job type
            assert answer.endswith(b"ok\n")
        answer = await exchange(address, CHUNKED + tiny[:60] + b"0\r\n" + b"a: b\r\n" * 100_000)
        assert b"ok" not in answer
        assert await is_up(address)


@pytest.mark.parametrize("endless", [b"0\r\n" + b"a: b\r\n" * 10, b"1;" + b"x" * 10], ids=["trailers", "extension"])
async def test_an_endless_end_of_a_body_is_cut_off_however_it_is_cut(api: Api, endless: bytes) -> None:
    async with served(api) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(CHUNKED + endless)
        sent = 0
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof() and sent < 20_000_000:
                writer.write(endless[-6:] * 100)
                await writer.drain()
                await asyncio.sleep(0)
                sent += 600
        writer.close()
        assert sent < 20_000_000
        assert await is_up(address)


@pytest.mark.parametrize("begun", [b"GET /", GET, POST + b"X"])
async def test_a_head_that_does_not_end_in_time_is_answered_408(api: Api, begun: bytes) -> None:
    async with served(api, seconds=0.05) as address:
        answer = await exchange(address, begun)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in answer.lower()


async def test_half_open_connections_do_not_stay(api: Api) -> None:
    async with served(api, seconds=0.2) as address:
        answers = await asyncio.gather(*(exchange(address, begun) for begun in [b"", b"GET /"] * 50))
        assert [answer[:13] for answer in answers] == [b"", b"HTTP/1.1 408 "] * 50


async def test_the_next_head_of_a_kept_connection_has_its_time_too(api: Api) -> None:
    async with served(api, seconds=0.2) as address:
        answer = await exchange(address, GET + b"\r\n" + GET)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"ok\nHTTP/1.1 408 " in answer


async def test_a_request_whose_head_is_complete_is_not_late(api: Api) -> None:
    job = await api.post()
    async with served(api, seconds=0.05) as address:
        request = b"GET %s HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=1\r\n" % job["links"]["result"].encode()
        # With the half of another behind it, which waits its turn.
        answer = await exchange(address, request + b"\r\n" + GET[:10])
        assert answer.startswith(b"HTTP/1.1 202 ")


async def test_connections_over_the_limit_are_refused_and_places_are_free_again(api: Api) -> None:
    async with served(api, connections=2) as address:
        held = [await asyncio.open_connection(*address) for _ in range(2)]
        for reader, writer in held:
            writer.write(GET + b"\r\n")
            assert b" 200 " in await reader.readuntil(b"ok\n")
        assert (await exchange(address, b"")).startswith(b"HTTP/1.1 503 ")
        held[0][1].write(GET + LAST)
        assert b" 200 " in await held[0][0].read()
        assert await is_up(address)
        for _, writer in held:
            writer.close()


def test_a_process_leaves_room_for_its_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for files in (-1, 1_000_000, 1_024, 64, 1):
        monkeypatch.setattr("resource.getrlimit", lambda _kind, files=files: (files, files))
        found.append(most_connections())
    assert found == [4_096, 4_096, 896, 32, 1]
