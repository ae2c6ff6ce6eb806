"""The wire below the application, bounded: how long the head of a request may be and take, and how many may connect.

The parser under uvicorn takes header bytes without an end, before anyone has said who they are. Here they are counted
before it sees them. What is refused gets a problem document where nothing else is being answered, else just the end.
Made by `server`, one for each connection.
"""

from __future__ import annotations

import asyncio
import resource
import uuid
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from ..domain.errors import RequestInvalid
from .headers import SECURITY_HEADERS
from .problems import STATUS_DETAIL, RequestFacts, problem_response

_PIECE = 65_536  # how much of a body the parser gets at once
_CHUNK_CREDIT = 32  # what the framing of one chunk of a body may take
_MOST_CONNECTIONS = 4_096
_OTHER_FILES = 128  # what the process has open besides connections


def most_connections() -> int:
    """Give how many connections a process holds at most: what its limit of open files leaves, never very many."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if files < 0 else max(1, min(_MOST_CONNECTIONS, files - min(_OTHER_FILES, files // 2)))


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """Bounds of a connection: request line and headers in bytes and in seconds, and how many others there may be."""

    head_bytes: int = 32_768
    head_seconds: float = 10.0
    connections: int


class BoundedProtocol(HttpToolsProtocol):
    """One connection. All but a body and the framing of its chunks counts: request line, headers, trailers."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: WireLimits,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._room = limits.head_bytes
        self._is_in_head = True
        self._has_begun = False
        self._deadline: asyncio.TimerHandle | None = None

    # --- the connection -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn types it
        """Take the connection, or refuse it at once when there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections are open", "try again later")
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go."""
        self._head_is_complete()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Give the parser no more at once than may still come."""
        while data and not self.transport.is_closing():
            if self._is_in_head:
                self._await_head()
            size = self._room if self._is_in_head else _PIECE
            piece, data = data[:size], data[size:]
            self._room -= len(piece)
            super().data_received(piece)
            if self._room <= 0 and not self.transport.is_closing():
                limit = self._limits.head_bytes
                self._refuse(
                    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                    f"the request line and the headers are longer than {limit} bytes",
                    "send fewer or shorter headers",
                )

    # --- what the parser finds ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Give the head its time, also that of one sent ahead."""
        self._has_begun = True
        self._await_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Let the rest take the time that the application gives it, and its trailers as much as the head."""
        self._is_in_head = False
        self._room = self._limits.head_bytes
        self._head_is_complete()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Give back what was counted; the application has bounds of its own for bodies."""
        self._give_back(len(body))
        super().on_body(body)

    def on_chunk_header(self) -> None:
        """Give back the framing of a chunk."""
        self._give_back(_CHUNK_CREDIT)

    def on_message_complete(self) -> None:
        """Count the next head anew; what this very piece holds of it is free."""
        self._is_in_head = True
        self._has_begun = False
        self._room = self._limits.head_bytes
        super().on_message_complete()

    # --- bounds -------------------------------------------------------------------------------------------------------

    def _give_back(self, size: int) -> None:
        self._room = min(self._room + size, self._limits.head_bytes)

    def _await_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self._limits.head_seconds, self._head_is_late)

    def _head_is_complete(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _head_is_late(self) -> None:
        self._deadline = None
        if self._is_answering():
            self._await_head()  # of a request sent ahead: the one before it has its own time
            return
        if not self._has_begun:
            self.transport.close()  # opened and never used: an answer might be taken for that of a request to come
            return
        within = self._limits.head_seconds
        self._refuse(
            HTTPStatus.REQUEST_TIMEOUT, f"the headers did not arrive within {within:g} s", "send the request faster"
        )

    def _is_answering(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def _refuse(self, status: HTTPStatus, cause: str, fix: str) -> None:
        """Say why, where an answer can be told from others, and close."""
        if not self._is_answering():
            details: dict[str, Any] = {STATUS_DETAIL: int(status)}
            facts = RequestFacts(request_id=uuid.uuid4().hex, instance="/")
            response = problem_response(RequestInvalid(cause, fix=fix, **details), facts)
            response.headers.update({**dict(SECURITY_HEADERS), "X-Request-Id": facts.request_id, "Connection": "close"})
            lines = [b"%s: %s\r\n" % header for header in response.raw_headers]
            self.transport.write(
                b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (status, status.phrase.encode(), b"".join(lines), bytes(response.body))
            )
        self.transport.close()
