"""The application behind a real socket: uploads in chunks, waits, ends."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import AbstractAsyncContextManager

import httpx
import pytest

from app.domain.errors import SettingsInvalid
from app.domain.state import State
from app.http.app import create_app
from app.http.role import ApiRole
from app.http.server import HttpServer
from tests.http.api import KEY, Api, code_of, waiting
from tests.support.drivers import NAME

TWO_LENGTHS = (
    b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n"
    b"Connection: close\r\n\r\n0\r\n\r\n"
)
JSON = b"Content-Type: application/json\r\n"


async def exchange(address: tuple[str, int], request: bytes, *, chunks: int = 0, chunk: bytes = b"") -> bytes:
    """Send raw bytes, then up to `chunks` chunks as long as the server listens, and give all it answers."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(request)
        for _ in range(chunks):
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await asyncio.wait_for(writer.drain(), 5)
    except ConnectionError:
        pass  # it was closed early, which is the point
    try:
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def client_of(address: tuple[str, int]) -> httpx.AsyncClient:
    host, port = address
    return httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False, timeout=15)


def head(method: bytes = b"POST", path: bytes = b"/v1/jobs", extra: bytes = JSON) -> bytes:
    return b"%s %s HTTP/1.1\r\nHost: localhost\r\n%s" % (method, path, extra)


async def test_a_chunked_body_is_read_and_answered(api: Api) -> None:
    async with api.served() as (host, port):
        body = json.dumps({"name": NAME, "payload": {"x": "y" * 100_000}}).encode()

        async def pieces() -> httpx.AsyncByteStream:  # type: ignore[misc] # an asynchronous generator, as httpx takes it
            for start in range(0, len(body), 1_000):
                yield body[start : start + 1_000]

        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client:
            response = await client.post("/v1/jobs", content=pieces(), headers={"Content-Type": "application/json"})
            assert response.status_code == 201
            assert len(response.json()["payload"]["x"]) == 100_000


async def test_an_endless_chunked_body_is_cut_off(api: Api) -> None:
    async with api.served() as address:
        request = head(extra=JSON + b"Transfer-Encoding: chunked\r\n") + b"\r\n"
        answer = await exchange(address, request, chunks=20_000, chunk=b"[" * 65_536)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 413 ")
        # What it did to the connection is one thing; the service itself goes on.
        answer = await exchange(address, head(b"GET", b"/livez", b"Connection: close\r\n") + b"\r\n")
        assert answer.endswith(b"ok\n")


async def test_a_refusal_is_not_lost_with_a_small_body_that_comes_after_it(locked: Api) -> None:
    async with locked.served() as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(head(extra=JSON + b"Content-Length: 2\r\n") + b"\r\n")
        first = asyncio.ensure_future(reader.read(1))
        done, _ = await asyncio.wait([first], timeout=0.1)
        assert not done, "closed over a body on its way, the answer would be lost"
        writer.write(b"{}")
        answer = await first + await asyncio.wait_for(reader.read(), 5)
        assert answer.startswith(b"HTTP/1.1 401 ")
        writer.close()


async def test_a_refusal_does_not_wait_long_for_a_body(locked: Api) -> None:
    async with locked.served() as address:
        for extra in (
            b"Content-Length: 2\r\n",
            b"Content-Length: 999999\r\n",
            b"Content-Length: 2\r\nExpect: 100-continue\r\n",
        ):
            answer = await exchange(address, head(extra=JSON + extra) + b"\r\n")
            assert answer.startswith(b"HTTP/1.1 401 ")


async def test_a_declared_size_that_is_too_large_is_refused_unread(api: Api) -> None:
    async with api.served() as address:
        for size in (b"1000000000", b"9" * 18):
            answer = await exchange(address, head(extra=JSON + b"Content-Length: %s\r\n" % size) + b"\r\n")
            assert answer.startswith(b"HTTP/1.1 413 ")
            assert b"connection: close" in answer.lower()
            assert b"PAYLOAD_TOO_LARGE" in answer


async def test_a_stranger_is_refused_before_a_byte_is_read(locked: Api) -> None:
    async with locked.served() as address:
        answer = await exchange(address, head(extra=JSON + b"Content-Length: 300000\r\n") + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b"connection: close" in answer.lower()
        assert KEY.encode() not in answer


async def test_a_connection_is_kept_where_the_body_was_read(api: Api) -> None:
    async with api.served() as address:
        refused = head(extra=JSON + b"Content-Length: 3\r\n") + b"\r\nNaN"
        last = head(b"GET", b"/livez", b"Connection: close\r\n") + b"\r\n"
        answer = await exchange(address, refused + last)
        assert answer.startswith(b"HTTP/1.1 422 ")
        assert answer.endswith(b"ok\n")


@pytest.mark.parametrize("raw", [
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: \x00\r\n\r\n", b"\x00\r\n\r\n", b"GET /\x00 HTTP/1.1\r\n\r\n",
    b"GET /%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
    TWO_LENGTHS,
    b"GET /v1/jobs HTTP/1.1\r\nConnection: close\r\n\r\n",
])  # fmt: skip
async def test_odd_requests_get_a_refusal(api: Api, raw: bytes) -> None:
    async with api.served() as address:
        answer = await exchange(address, raw)
        assert answer.startswith(b"HTTP/1.1 4"), answer


async def test_a_body_that_does_not_arrive_is_not_waited_for(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.http.body.READ_SECONDS", 0.05)
    async with api.served() as address:
        answer = await exchange(address, head(extra=JSON + b"Content-Length: 10\r\n") + b"\r\n{")
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in answer.lower()


async def test_a_request_waits_behind_a_real_server(api: Api) -> None:
    async with api.served() as address, client_of(address) as client:
        async with asyncio.TaskGroup() as group:
            request = group.create_task(
                client.post("/v1/jobs", json={"name": NAME, "payload": {}}, headers={"Prefer": "wait=10"})
            )
            await waiting(api)
            await api.finish()
            response = await request
        assert (response.status_code, response.json()["state"]) == (200, State.DONE)


async def test_a_waiting_request_is_answered_when_the_process_drains(api: Api) -> None:
    job = await api.post()
    async with api.served() as address, client_of(address) as client:
        async with asyncio.TaskGroup() as group:
            request = group.create_task(client.get(job["links"]["result"], headers={"Prefer": "wait=60"}))
            await waiting(api)
            api.waiters.stop()
            assert (await request).status_code == 202
        # Reads go on until the listener closes.
        assert (await client.get(job["links"]["self"])).status_code == 200


async def test_the_listener_closes_and_its_port_is_free_again(api: Api) -> None:
    async with api.served() as (host, port):
        taken = HttpServer(api.app, host=host, port=port)
        with pytest.raises(SettingsInvalid, match="OUTLAST_BIND"):
            await taken.start()
    with pytest.raises(OSError, match="Connect"):
        await asyncio.open_connection(host, port)


async def test_a_port_that_is_taken_for_a_moment_only_is_waited_for(api: Api) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        server = HttpServer(api.app, host="127.0.0.1", port=holder.getsockname()[1])
        starting = asyncio.create_task(server.start())
        await asyncio.sleep(0)
        assert not starting.done()
    await starting
    await server.stop()


async def test_a_lifespan_that_fails_is_an_exception(api: Api) -> None:
    class Broken(AbstractAsyncContextManager[None]):
        async def __aenter__(self) -> None:
            raise SettingsInvalid("no store", fix="start one")

        async def __aexit__(self, *_: object) -> None:
            """It was never entered."""

    server = HttpServer(create_app(api.services, around=Broken), host="127.0.0.1", port=0)
    with pytest.raises(SettingsInvalid):
        await server.start()


async def test_a_fault_of_the_application_does_not_end_the_server(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> None:
        raise RuntimeError("inside")

    monkeypatch.setattr(api.env.driver, "workers", fail)
    async with api.served() as address, client_of(address) as client:
        assert code_of(await client.get("/v1/workers")) == (500, "INTERNAL")
        assert (await client.get("/v1/jobs")).status_code == 200


async def test_a_listener_that_dies_fails_its_role(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_jobs: object) -> None:
        raise RuntimeError("inside")

    monkeypatch.setattr(api.env.driver, "finished_among", fail)
    server = HttpServer(api.app, host="127.0.0.1", port=0, graceful_seconds=1)
    role = ApiRole(server, api.services, count=api.env.driver.stats)
    await role.start()
    async with client_of(("127.0.0.1", role.port)) as client:
        job = await api.post()
        assert (await client.get(job["links"]["result"], headers={"Prefer": "wait=60"})).status_code == 202
    assert isinstance(await role.wait_failed(), ExceptionGroup)
