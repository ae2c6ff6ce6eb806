"""The admin listener: probes, metrics and the drain on a port and threads of their own.

A process whose event loop is blocked, or that drains, still shows itself here; it is the last thing to be closed.
It is unauthenticated and meant for a loopback or cluster-internal address: nothing here names a tenant, a payload or
an address, and only this machine may ask for a drain. Used by every process that has a role, workers included.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from ..control.render import Document, render
from ..domain.errors import OutlastError, SettingsInvalid
from .headers import METRICS_MEDIA_TYPE, SECURITY_HEADERS
from .probes import Readiness

T = TypeVar("T")
_Answer = tuple[int, str, bytes]
# A client that sends nothing must not keep a thread for ever.
_IDLE_SECONDS = 10
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_MOST_SKIPPED = 65_536
# What a browser sends with a page's request, and a proxy with somebody else's.
_FOR_OTHERS = ("origin", "forwarded", "via", "x-forwarded-", "x-real-ip", "x-envoy-")
# Not all of 127.0.0.0/8: a mesh's sidecar hands on what it took from the network from another address of it.
_THIS_MACHINE = frozenset({ip_address("127.0.0.1"), ip_address("::1")})
_NOT_FOUND: _Answer = (404, _TEXT, b"not found\n")


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
            self._server = _server_class(self._host)((self._host, self._wanted_port), _handler_class(self._probes))
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

    def do_GET(self) -> None:
        # The one question that has a query is a name of its own; others ignore theirs.
        answer = self.gets.get(self.path) or self.gets.get(urlsplit(self.path).path)
        self._reply(*(answer() if answer else _NOT_FOUND))

    do_HEAD = do_GET  # noqa: N815 - the names are http.server's

    def do_POST(self) -> None:
        self._skip_body()
        answer = self.posts.get(urlsplit(self.path).path)
        if answer is not None and not self._is_own_machine():
            self._reply(403, _TEXT, b"only from this machine, and not from a web page\n")
        else:
            self._reply(*(answer() if answer else _NOT_FOUND))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Probes come every few seconds; they are not logged."""

    def _is_own_machine(self) -> bool:
        """Say whether the caller is here: no proxy that speaks for others, and no page in a browser."""
        is_here = _is_this_machine(self.client_address[0])
        return is_here and not any(name.lower().startswith(_FOR_OTHERS) for name in self.headers)

    def _skip_body(self) -> None:
        """Read past a small body: an answer to a client that is still sending may be lost."""
        self.close_connection = True
        length = self.headers.get("Content-Length", "0")
        if length.isascii() and length.isdecimal():
            self.rfile.read(min(int(length[:9]), _MOST_SKIPPED))

    def _reply(self, status: int, media_type: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in SECURITY_HEADERS:
            self.send_header(name, value)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _handler_class(probes: AdminProbes) -> type[BaseHTTPRequestHandler]:
    class _Bound(_Handler):
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
    return (503, _TEXT, b"the store does not answer\n") if document is None else (200, _JSON, _line(document))


def _line(document: Mapping[str, object]) -> bytes:
    return render(document) + b"\n"


def _is_this_machine(host: str) -> bool:
    address = ip_address(host)
    return (getattr(address, "ipv4_mapped", None) or address) in _THIS_MACHINE


def _word(*, is_well: bool) -> _Answer:
    return (200, _TEXT, b"ok\n") if is_well else (503, _TEXT, b"unavailable\n")


def _readiness(readiness: Readiness) -> _Answer:
    return readiness.status, _JSON, render(readiness.document)
