"""The wire under both shells: how an httpx client is made, and how its requests and errors are understood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from .. import __version__
from ..domain.errors import RequestInvalid
from .call import Answer, Call
from .following import MEDIA_TYPE
from .tries import Tries
from .wire import encode

# The connection never stood, or none was free: the service has seen nothing.
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_JSON = {"Content-Type": "application/json"}


def options(base_url: str, key: str | None) -> dict[str, Any]:
    """Give the options of the httpx client for a service and a key. Raises `RequestInvalid`: that is no address."""
    if not base_url.startswith(("http://", "https://")):
        raise RequestInvalid(f"{base_url!r} is no address", fix="pass one like http://localhost:8080", pointer="")
    given = {} if key is None else {"Authorization": f"Bearer {key}"}
    return {
        "base_url": base_url,
        "headers": {"Accept": "application/json", "User-Agent": f"outlast-client/{__version__}", **given},
    }


def request(call: Call[Any], headers: Mapping[str, str], timeout: httpx.Timeout) -> dict[str, Any]:
    """Give the arguments of httpx's `build_request`. An action without fields sends `{}`."""
    body: dict[str, Any] = {} if call.body is None else {"content": encode(call.body)}
    query: dict[str, Any] = {"params": dict(call.query)} if call.query else {}
    sent = {**headers, **({} if call.body is None else _JSON)}
    return {"method": call.method, "url": call.path, "headers": sent, "timeout": timeout, **body, **query}


def one_try(tries: Tries) -> dict[str, Any]:
    """Give the arguments of `build_request` for the next try of a request."""
    return request(tries.call, tries.headers(), httpx.Timeout(tries.timeout_seconds()))


def answer_of(response: httpx.Response) -> Answer:
    """Give what came back; it must have been read."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Answer(status=response.status_code, headers=headers, body=response.content)


def is_stream(response: httpx.Response) -> bool:
    """Say whether an answer is a stream of events."""
    return response.is_success and response.headers.get("content-type", "").startswith(MEDIA_TYPE)


def was_sent(error: httpx.TransportError) -> bool:
    """Say whether the service may have seen the request."""
    return not isinstance(error, _NEVER_SENT)
