"""The way out: which address is connected to, whatever names and their servers say."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Sequence
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest

from app.domain.errors import CallbackRefused
from app.domain.webhook_address import Address, Allowed
from app.webhooks.sender import Resolve, Sender
from tests.support.receiver import receiving

HOST = "hooks.example.com"
HOME = Allowed.of([HOST])
METADATA = "169.254.169.254"


def leading(*answers: Sequence[str], asked: list[str] | None = None) -> Resolve:
    """Give a name server that answers so, one time after the other."""
    left = list(answers)

    async def resolve(host: str, _port: int) -> Sequence[Address]:
        if asked is not None:
            asked.append(host)
        return [ip_address(text) for text in left.pop(0)]

    return resolve


def sender(resolve: Resolve, *, allowed: Allowed = HOME, tls: ssl.SSLContext | None = None) -> Sender:
    return Sender(allowed=allowed, timeout=timedelta(seconds=5), resolve=resolve, tls=tls)


@pytest.mark.parametrize(
    "answer",
    [
        *(["127.0.0.1"], ["10.0.0.1"], [METADATA], ["::1"], [f"::ffff:{METADATA}"], ["fe80::1"], ["fd00:ec2::254"]),
        *(["93.184.216.34", METADATA], ["64:ff9b::a9fe:a9fe"], ["0.0.0.1"], ["100.64.0.1"], ["2002:7f00:1::"]),
    ],
)
async def test_a_name_that_leads_inside_is_refused_before_anything_is_sent(answer: list[str]) -> None:
    out = sender(leading(answer), allowed=Allowed())
    with pytest.raises(CallbackRefused, match="not an address of the public internet"):
        await out.post(f"https://{HOST}/hook", "{}", {})


async def test_the_address_that_was_judged_is_the_one_that_is_called() -> None:
    """The name leads elsewhere the moment after: nobody asks again."""
    asked: list[str] = []
    async with receiving() as receiver:
        out = sender(leading(["127.0.0.1"], [METADATA], asked=asked))
        sent = await out.post(f"http://{HOST}:{receiver.port}/hook?a=b", "{}", {"webhook-id": "msg_1"})
        (request,) = receiver.received
    assert (sent.status, asked) == (204, [HOST])
    assert (request.target, request.headers["host"]) == ("/hook?a=b", f"{HOST}:{receiver.port}")
    assert request.headers["webhook-id"] == "msg_1"


async def test_a_network_that_is_allowed_is_called_and_its_neighbour_is_not() -> None:
    allowed = Allowed.of(["127.0.0.0/30"])
    async with receiving() as receiver:
        url = f"http://127.0.0.1:{receiver.port}/"
        assert (await sender(leading(), allowed=allowed).post(url, "{}", {})).status == 204
        with pytest.raises(CallbackRefused):
            await sender(leading(), allowed=allowed).post(f"http://127.0.0.9:{receiver.port}/", "{}", {})


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with receiving() as receiver:
        out = sender(leading(["127.0.0.1"]))
        assert (await out.post(f"http://{HOST}:{receiver.port}/", "{}", {})).status == 204


async def test_a_name_without_an_address_is_a_failure_that_may_pass() -> None:
    sent = await sender(leading([])).post(f"https://{HOST}/", "{}", {})
    assert (sent.status, sent.error) == (None, f"OSError: {HOST} has no address")


def _certificate(folder: Path, name: str) -> tuple[Path, Path]:
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return key, certificate


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")
@pytest.mark.parametrize(("name", "is_taken"), [(HOST, True), ("other.example.com", False)])
async def test_tls_asks_for_the_name_and_not_for_the_address(tmp_path: Path, name: str, is_taken: bool) -> None:
    key, certificate = _certificate(tmp_path, name)
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(certificate, key)
    ours = ssl.create_default_context(cafile=str(certificate))
    async with receiving(tls=theirs) as receiver:
        out = sender(leading(["127.0.0.1"]), tls=ours)
        sent = await out.post(f"https://{HOST}:{receiver.port}/", "{}", {})
        assert len(receiver.received) == int(is_taken)
    assert (sent.status == 204) is is_taken
    assert is_taken or "certificate verify failed" in (sent.error or "")
