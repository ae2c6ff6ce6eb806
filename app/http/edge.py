"""The outermost layer of the API: what is true of every request and every answer, whatever route it meets.

Gives the request an id, refuses addresses and headers that cannot mean anything, authenticates before a byte of a
body is read, turns every error into a problem document, and puts the security headers on every answer. Routes never
see a request it refused. A fault of ours is reported once, here.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from ..domain.errors import Forbidden, Internal, OutlastError, RequestInvalid, Unauthenticated
from ..domain.text import is_traceparent
from ..domain.waited import waited_for
from .auth import Identity, authenticate
from .caller import SCOPE_KEY, Caller, is_open_path, owner_of, route_path
from .headers import SECURITY_HEADERS
from .patience import Patience
from .problems import RequestFacts, is_fault, problem_response
from .services import HttpServices

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CONTROL_BUT_TAB = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_LOCAL_HOST = re.compile(r"(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)
_LONGEST_TARGET = 8_192
_REST_DIGITS = 5  # of the size of a body: below 100,000 bytes
_REST_SECONDS = 0.5
_UNSAFE_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Edge:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, services: HttpServices) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        facts = _facts_of(scope)
        # What an action reads once it is done is no reason to say that it took too long.
        is_read = scope["method"] not in _UNSAFE_METHODS
        with bound_contextvars(request_id=facts.request_id), waited_for(is_so=is_read):
            patience = Patience(Headers(scope=scope))
            await self._answer(scope, _Answer(scope, receive, send, facts, patience))

    async def _answer(self, scope: Scope, answer: _Answer) -> None:
        try:
            async with answer.patience:
                caller = scope[SCOPE_KEY] = await self._admit(scope, answer.facts)
                answer.more_headers = self._counted(scope, caller)
                answer.charge = self._charging(caller)
                await self._app(scope, answer.receive, answer.send)
        except ClientDisconnect:
            return  # nobody is left to answer
        except Exception as exc:  # noqa: BLE001 - every failure becomes an answer; what is ours is reported
            await self._refuse(exc, scope, answer)

    async def _admit(self, scope: Scope, facts: RequestFacts) -> Caller:
        _check_target(scope)
        _check_headers(scope["headers"])
        headers = Headers(scope=scope)
        if self._services.auth.is_open:
            _check_local(headers, scope["method"])
        identity = await self._authenticate(scope, headers)
        return Caller(facts=facts, identity=identity, traceparent=_traceparent_of(headers))

    def _counted(self, scope: Scope, caller: Caller) -> dict[str, str]:
        """Count the request, and give what is said about the caller's rate."""
        if caller.identity is None:
            return {}
        return self._services.rate.take(owner_of(caller.identity), route_path(scope))

    def _charging(self, caller: Caller) -> Callable[[int], None]:
        """Give what counts the bytes of a body; pages, which have no identity here, send forms."""
        if caller.identity is None:
            return _ignored
        owner = owner_of(caller.identity)
        return lambda size: self._services.rate.charge(owner, size)

    async def _authenticate(self, scope: Scope, headers: Headers) -> Identity | None:
        if is_open_path(route_path(scope)):
            return None
        given = [value for name, value in headers.raw if name == b"authorization"]
        return await authenticate(self._services.auth, given)

    def _note(self, error: OutlastError, scope: Scope, facts: RequestFacts) -> None:
        caller: Caller | None = scope.get(SCOPE_KEY)
        identity, client = None if caller is None else caller.identity, scope.get("client")
        address = None if client is None else str(client[0])
        self._services.auth.refused(error, identity, address=address, path=facts.instance)

    async def _refuse(self, exc: Exception, scope: Scope, answer: _Answer) -> None:
        error = exc if isinstance(exc, OutlastError) else Internal(type(exc).__name__, fix="see the log")
        if is_fault(error):
            self._services.telemetry.request_failed(
                method=scope["method"], path=answer.facts.instance, code=error.code, error=exc
            )
        if isinstance(error, Unauthenticated | Forbidden):
            self._note(error, scope, answer.facts)
        if answer.has_started:
            raise exc
        response = problem_response(error, answer.facts)
        await response(scope, answer.receive, answer.send)


def _ignored(_size: int) -> None:
    pass


@dataclass(slots=True)
class _Answer:
    """The two channels of a request, watched: what was read of the body, whether the answer has begun."""

    scope: Scope
    inner_receive: Receive
    inner_send: Send
    facts: RequestFacts
    patience: Patience
    more_headers: dict[str, str] = field(default_factory=dict)
    has_started: bool = False
    is_read: bool = False
    charge: Callable[[int], None] = _ignored

    async def receive(self) -> Message:
        """Give the next part of the body."""
        if self.is_read or not _has_body(self.scope):
            message = await self.inner_receive()
        else:
            with self.patience.reading():
                message = await self.inner_receive()
        self.charge(len(message.get("body", b"")))
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self.is_read = True
        return message

    async def send(self, message: Message) -> None:
        """Pass a part of the answer on, the first one with the headers every answer carries."""
        if message["type"] == "http.response.start":
            self.has_started = True
            self.patience.is_answered()
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS:
                headers.setdefault(name, value)
            headers["X-Request-Id"] = self.facts.request_id
            for name, value in self.more_headers.items():
                headers.setdefault(name, value)
            if not self.is_read and _has_body(self.scope):
                # Reading the rest of a refused body, to keep the connection, would be the caller's to choose.
                headers["Connection"] = "close"
                await self._take_small_rest()
        await self.inner_send(message)

    async def _take_small_rest(self) -> None:
        """Take a small body off the wire that is refused unread, for a moment at most.

        A connection that is closed over bytes nobody took is reset, and the answer is lost with it: most clients send
        the body in a packet of its own, which may come after the refusal.
        """
        headers = Headers(scope=self.scope)
        declared = headers.get("content-length", "")
        if not declared.isdecimal() or len(declared) > _REST_DIGITS or "expect" in headers:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_REST_SECONDS):
                while (await self.inner_receive()).get("more_body", False):
                    pass


def _facts_of(scope: Scope) -> RequestFacts:
    headers = Headers(scope=scope)
    given = headers.get("x-request-id", "")
    traceparent = _traceparent_of(headers)
    return RequestFacts(
        request_id=given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex,
        instance=scope["path"],
        trace_id=traceparent.split("-")[1] if traceparent else None,
    )


def _traceparent_of(headers: Headers) -> str | None:
    """Give a valid W3C trace context; an invalid one starts no trace and refuses no request."""
    given = headers.getlist("traceparent")
    return given[0] if len(given) == 1 and is_traceparent(given[0]) else None


def _check_target(scope: Scope) -> None:
    """Refuse paths and queries that are not UTF-8 once unescaped, hold control characters, or are endless."""
    raw_path: bytes = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogatepass")
    for where, raw in (("path", raw_path), ("query", scope["query_string"])):
        if len(raw) > _LONGEST_TARGET:
            raise _bad(where, f"it is longer than {_LONGEST_TARGET} bytes", "send a shorter one")
        try:
            text = unquote_to_bytes(raw).decode("utf-8")
        except UnicodeDecodeError:
            raise _bad(where, "it is not UTF-8", "percent-encode UTF-8") from None
        if _CONTROL.search(text):
            raise _bad(where, "it holds a control character", "leave control characters out")


def _check_headers(headers: Sequence[tuple[bytes, bytes]]) -> None:
    for name, value in headers:
        if _CONTROL_BUT_TAB.search(value) or _CONTROL_BUT_TAB.search(name):
            raise _bad("header", "a header holds a control character", "leave control characters out")


def _check_local(headers: Headers, method: str) -> None:
    """Without keys, a page of another origin must not act through its visitor's browser.

    A rebound DNS name shows in `Host`; a cross-site request shows in `Sec-Fetch-Site` or `Origin`.
    """
    host = headers.get("host", "")
    if not _LOCAL_HOST.fullmatch(host):
        raise Forbidden("without a key this service answers only to local names", fix="ask localhost or 127.0.0.1")
    if method not in _UNSAFE_METHODS:
        return
    origin = headers.get("origin")
    is_foreign = origin is not None and origin.partition("://")[2] != host
    if is_foreign or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise Forbidden("a page of another origin may not change anything here", fix="send the request yourself")


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _bad(where: str, what: str, fix: str) -> RequestInvalid:
    return RequestInvalid(
        f"the {where} of the request cannot be read: {what}",
        fix=fix,
        errors=[{"in": where, "pointer": "", "detail": what}],
    )
