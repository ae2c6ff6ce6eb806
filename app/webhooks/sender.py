"""The way out: one POST to an address that was looked up, judged and then connected to, and no other.

A name is resolved once for each try, every address it leads to is judged, and the connection goes to one of those that
were: what a name server says the next moment changes nothing. TLS asks for the name's certificate all the same. No
redirect is followed, no proxy of the environment is used, little of the answer is read, and nothing of it is kept.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv6Address, ip_address
from socket import IPPROTO_TCP, SOCK_STREAM
from typing import Any, TypeAlias

import httpx

from ..domain.webhook_address import Address, Allowed, Origin, literal_of, refuse_address, refuse_url

# Gives the addresses that a host's name leads to.
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[Address]]]

# Of an answer's body: enough for a receiver that says something to finish saying it.
MOST_READ = 64 * 1024
_MOST_WAITED = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What came of a POST. `status` is None where no answer came; `retry_after` is what the receiver asked for."""

    status: int | None
    error: str | None = None
    retry_after: timedelta | None = None

    @property
    def is_taken(self) -> bool:
        """Say whether the receiver took it."""
        return self.status is not None and 200 <= self.status < 300  # noqa: PLR2004 - the class of statuses


class Sender:
    """Sends to addresses that anybody may be meant by, or that are `allowed`; `timeout` bounds all of one try."""

    def __init__(
        self,
        *,
        allowed: Allowed,
        timeout: timedelta,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allowed = allowed
        self._timeout = timeout
        self._resolve = resolve or _resolve
        self._tls = tls

    async def post(self, url: str, body: str, headers: Mapping[str, str]) -> Sent:
        """Send once.

        Raises:
            CallbackRefused: the address may not be called.
        """
        origin = refuse_url(url, self._allowed)
        sent: Sent | None = None
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                address = await self._address(origin)
                async with self._client() as client:
                    request = client.build_request(
                        "POST", content=body.encode(), **_pinned(url, origin, address, headers)
                    )
                    response = await client.send(request, stream=True)
                    try:
                        sent = _sent(response)
                        await _read_on(response)
                    finally:
                        await response.aclose()
        except TimeoutError:
            # Who has answered has answered, however long the rest of it takes.
            return sent or Sent(status=None, error=f"no answer within {self._timeout.total_seconds():g} s")
        except (httpx.HTTPError, OSError) as error:
            return sent or Sent(status=None, error=_said(error))
        return sent

    async def _address(self, origin: Origin) -> Address:
        literal = literal_of(origin.host)
        found = [literal] if literal is not None else list(await self._resolve(origin.host, origin.port))
        if not found:
            raise OSError(f"{origin.host} has no address")
        for address in found:
            refuse_address(origin.host, address, self._allowed)
        return found[0]

    def _client(self) -> httpx.AsyncClient:
        if self._tls is None:
            self._tls = httpx.create_ssl_context(trust_env=False)
        return httpx.AsyncClient(
            verify=self._tls,
            trust_env=False,
            follow_redirects=False,
            http2=False,
            timeout=self._timeout.total_seconds(),
        )


def _pinned(url: str, origin: Origin, address: Address, headers: Mapping[str, str]) -> dict[str, Any]:
    """Give what leads a request to an address under the name it was found by."""
    named = httpx.URL(url)
    host = f"[{address}]" if isinstance(address, IPv6Address) else str(address)
    return {
        "url": named.copy_with(host=host),
        "headers": {**headers, "host": named.netloc.decode("ascii"), "accept": "*/*", "accept-encoding": "identity"},
        "extensions": {"sni_hostname": origin.host},
    }


def _sent(response: httpx.Response) -> Sent:
    status = response.status_code
    if 200 <= status < 300:  # noqa: PLR2004 - the class of statuses
        return Sent(status=status)
    if 300 <= status < 400:  # noqa: PLR2004 - same
        return Sent(status=status, error=f"answered {status}; redirects are not followed")
    return Sent(status=status, error=f"answered {status}", retry_after=_retry_after(response))


def _retry_after(response: httpx.Response) -> timedelta | None:
    said = response.headers.get("retry-after", "")
    if not said.isascii() or not said.isdigit() or len(said) > 9:  # noqa: PLR2004 - thirty years
        return None
    return min(timedelta(seconds=int(said)), _MOST_WAITED)


async def _read_on(response: httpx.Response) -> None:
    """Let a receiver finish what it says, up to a bound; what goes wrong from here on is no failure."""
    read = 0
    with suppress(httpx.HTTPError, OSError):
        async for part in response.aiter_raw():
            read += len(part)
            if read >= MOST_READ:
                return


async def _resolve(host: str, port: int) -> Sequence[Address]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=SOCK_STREAM, proto=IPPROTO_TCP)
    return [ip_address(str(place[4][0])) for place in found]


def _said(error: Exception) -> str:
    """Give one line about a failure to reach a receiver; it names no secret, for none is in what it is made of."""
    said = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {said}"[:300] if said else type(error).__name__
