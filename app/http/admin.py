"""The admin listener: probes, metrics and the drain on a port and threads of their own.

A process whose event loop is blocked, or that drains, still shows itself here; it is the last thing to be closed.
It is unauthenticated and meant for a loopback or cluster-internal address: nothing here names a tenant, a payload or
an address, only programs on this machine may ask for a drain, and a browser on it reads nothing here for a page; see
`visitors`. What is refused is a problem document, as on the API. Used by every process that has a role, workers
included.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from ..control.render import Document, render
from ..domain.errors import DriverUnavailable, NotFound, OutlastError, RequestInvalid, SettingsInvalid
from .headers import METRICS_MEDIA_TYPE, SECURITY_HEADERS
from .probes import Readiness
from .problems import FIX_DETAIL, STATUS_DETAIL, RequestFacts, method_not_allowed, problem_response
from .visitors import check_action, check_host, own_names

T = TypeVar("T")
_Answer = tuple[int, str, bytes]
# A client that sends nothing must not keep a thread for ever.
_IDLE_SECONDS = 10
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_MOST_SKIPPED = 65_536
_ASK_EACH = "ask each worker's own admin listener, whose /v1/drain needs no store"
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Drains(Protocol):
    """A drain to watch and to begin; in a parent of several processes, that of all."""

    def here(self) -> Document:
        """Give the drain as it is now."""
        ...

    def start(self, *, by: str) -> Document:
        """Begin the drain, or join the one under way, and give it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminProbes:
    """What the listener asks the process, from its own threads: every callable must be safe there and return soon.

    `fleet` gives None while the store or the event loop does not answer.
    """

    is_live: Callable[[], bool]
    is_started: Callable[[], bool]
    readiness: Callable[[], Readiness]
    metrics: Callable[[], bytes]
    drain: Drains
    fleet: Callable[[], Document | None]
    version: Mapping[str, str]


class AdminListener:
    """Serves the probes on `host:port`; port 0 takes a free one."""

    def __init__(self, probes: AdminProbes, *, host: str, port: int) -> None:
        self._probes = probes
        self._host = host
        self._wanted_port = port
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """Give the port it listens on, after `start`."""
        return self._wanted_port if self._server is None else int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to listen. Raises `SETTINGS_INVALID` when the address cannot be had."""
        try:
            self._server = _server_class(self._host)(
                (self._host, self._wanted_port), _handler_class(self._probes, own_names(self._host))
            )
        except OSError as exc:
            raise SettingsInvalid(
                f"the admin listener cannot have {self._host}:{self._wanted_port}: {exc.strerror}",
                fix="choose a free port with --admin-port or OUTLAST_ADMIN_BIND",
            ) from exc
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="admin", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the listener; stopping one that is not running changes nothing."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
        self._server = self._thread = None


def on_loop(
    loop: asyncio.AbstractEventLoop,
    check: Callable[[], Coroutine[Any, Any, T]],
    *,
    otherwise: T,
    timeout_seconds: float = 2.0,
) -> Callable[[], T]:
    """Make an asynchronous question callable from another thread; `otherwise` is its answer when there is none."""

    def ask() -> T:
        coroutine = check()
        try:
            answer = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:  # the loop is closed
            coroutine.close()
            return otherwise
        try:
            return answer.result(timeout_seconds)
        except TimeoutError:
            answer.cancel()
        except OutlastError:
            pass  # the store's trouble; readiness tells about it
        return otherwise

    return ask


def _server_class(host: str) -> type[ThreadingHTTPServer]:
    class _Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: object, client_address: object) -> None:
            """A prober that hangs up is nothing to report."""

    return _Server


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection; what it answers with is a process's own, see `_handler_class`."""

    protocol_version = "HTTP/1.1"
    server_version = "outlast"
    sys_version = ""
    timeout = _IDLE_SECONDS
    gets: Mapping[str, Callable[[], _Answer]] = {}
    posts: Mapping[str, Callable[[], _Answer]] = {}
    names: frozenset[str] = frozenset()

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_GET  # noqa: N815 - the names are http.server's

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Answer what http.server refuses by itself: a method nothing here has, a request it cannot read."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self._answer()
            return
        self.close_connection = True
        status: dict[str, Any] = {STATUS_DETAIL: int(code)}
        self._refuse(RequestInvalid("the request cannot be read", fix="send plain HTTP/1.1", **status), at="")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Probes come every few seconds; they are not logged."""

    def _answer(self) -> None:
        self._skip_body()
        path = urlsplit(self.path).path
        try:
            check_host(self.client_address[0], self.headers, self.names)
            self._reply(*self._find(path)())
        except OutlastError as error:
            self._refuse(error, at=path)

    def _find(self, path: str) -> Callable[[], _Answer]:
        allowed = {*(("GET", "HEAD") if path in self.gets else ()), *(("POST",) if path in self.posts else ())}
        if not allowed:
            raise NotFound("there is nothing at this path", fix=f"ask one of {', '.join(sorted(self.gets))}")
        if self.command not in allowed:
            raise method_not_allowed(self.command, allowed)
        if self.command == "POST":
            check_action(self.client_address[0], self.headers)
            return self.posts[path]
        # The one question that has a query is a name of its own; others ignore theirs.
        return self.gets.get(self.path) or self.gets[path]

    def _skip_body(self) -> None:
        """Read past a small body: an answer to a client that is still sending may be lost.

        The connection ends with it: what is left of the body would be taken for the next request.
        """
        length = self.headers.get("Content-Length", "0")
        if length != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True
        if length.isascii() and length.isdecimal():
            self.rfile.read(min(int(length[:9]), _MOST_SKIPPED))

    def _refuse(self, error: OutlastError, *, at: str) -> None:
        facts = RequestFacts(request_id=uuid.uuid4().hex, instance=at)
        refusal = problem_response(error, facts)
        headers = {"X-Request-Id": facts.request_id, **refusal.headers}
        self._reply(refusal.status_code, headers.pop("content-type"), bytes(refusal.body), headers)

    def _reply(self, status: int, media_type: str, body: bytes, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        self.send_response(status)
        for name, value in (*SECURITY_HEADERS, *headers.items()):
            self.send_header(name, value)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _handler_class(probes: AdminProbes, names: frozenset[str]) -> type[BaseHTTPRequestHandler]:
    own = names

    class _Bound(_Handler):
        names = own
        gets = {  # noqa: RUF012 - of a class that is made once a listener
            "/livez": lambda: _word(is_well=probes.is_live()),
            "/startupz": lambda: _word(is_well=probes.is_started()),
            "/readyz": lambda: _readiness(probes.readiness()),
            "/metrics": lambda: (200, METRICS_MEDIA_TYPE, probes.metrics()),
            "/v1/drain": lambda: (200, _JSON, _line(probes.drain.here())),
            "/v1/drain?scope=fleet": lambda: _fleet(probes.fleet()),
            "/version": lambda: (200, _JSON, render(probes.version)),
        }
        posts = {  # noqa: RUF012 - same
            "/v1/drain": lambda: (202, _JSON, _line(probes.drain.start(by="this machine"))),
        }

    return _Bound


def _fleet(document: Document | None) -> _Answer:
    if document is None:
        raise DriverUnavailable("the store does not answer", fix=_ASK_EACH, **{FIX_DETAIL: _ASK_EACH})
    return 200, _JSON, _line(document)


def _line(document: Mapping[str, object]) -> bytes:
    return render(document) + b"\n"


def _word(*, is_well: bool) -> _Answer:
    return (200, _TEXT, b"ok\n") if is_well else (503, _TEXT, b"unavailable\n")


def _readiness(readiness: Readiness) -> _Answer:
    return readiness.status, _JSON, render(readiness.document)
