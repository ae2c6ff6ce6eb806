"""The API's listener: uvicorn run as a part of a process that has its own idea of signals and exits.

It owns the listening socket and the server's task. It handles no signal, logs nothing of its own, trusts no forwarded
header, and ends in the time it is given. Called by the composition root.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import uvicorn
from fastapi import FastAPI

from ..domain.errors import SettingsInvalid
from ..lifecycle.tasks import first_of, start_task
from .bounded import BoundedProtocol, WireLimits, most_connections

_TAKEN_SECONDS = 1.0
_TAKEN_PAUSE_SECONDS = 0.05
_BACKLOG = 2_048


class HttpServer:
    """Serves one application on `host:port`; port 0 takes a free one, and keeps it when it is started again.

    `has_ended` is set once nothing is served.
    """

    def __init__(
        self,
        app: FastAPI,
        *,
        host: str,
        port: int,
        graceful_seconds: float = 5.0,
        limits: WireLimits | None = None,
    ) -> None:
        self._app = app
        self._host = host
        self._port = port
        self._config = uvicorn.Config(
            app,
            http=_protocol(limits or WireLimits(connections=most_connections())),
            log_config=None,
            access_log=False,
            lifespan="off",  # run here, where a failure is an exception and not an exit
            proxy_headers=False,
            server_header=False,
            ws="none",
            backlog=_BACKLOG,
        )
        self._graceful_seconds = graceful_seconds
        self._server = _QuietServer(self._config)
        self._task: asyncio.Task[None] | None = None
        self.has_ended = asyncio.Event()

    @property
    def port(self) -> int:
        """Give the port it listens on, after `start`."""
        return self._port

    async def start(self) -> None:
        """Listen and answer; returns once requests are answered. One that has stopped can be started again.

        Raises:
            SettingsInvalid: the address cannot be had.
        """
        listening = await _bound(self._host, self._port)
        self._port = int(listening.getsockname()[1])
        self._server, self.has_ended, started = _QuietServer(self._config), asyncio.Event(), asyncio.Event()
        self._task = start_task(self._run(listening, started), name="outlast.http")
        await first_of(started, self.has_ended)
        if not started.is_set():
            await self._task

    async def stop(self, *, within: float | None = None) -> None:
        """Take no more connections, let requests under way end in the graceful time, return when all is closed.

        `within` (seconds) shortens that time. Raises what a server that ended by itself died of.
        """
        graceful = self._graceful_seconds if within is None else min(self._graceful_seconds, within)
        # Declared in whole seconds, and used as the timeout of a wait.
        self._config.timeout_graceful_shutdown = cast("int", graceful)
        self._server.should_exit = True
        if self._task is not None:
            await self._task

    async def _run(self, listening: socket.socket, started: asyncio.Event) -> None:
        try:
            with contextlib.closing(listening):
                async with self._app.router.lifespan_context(self._app):
                    self._server.on_started = started.set
                    await self._server.serve(sockets=[listening])
        finally:
            self.has_ended.set()


class _QuietServer(uvicorn.Server):
    """A server that leaves signals to their one owner and says when it answers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.on_started: Callable[[], None] = lambda: None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.on_started()


def _protocol(limits: WireLimits) -> type[asyncio.Protocol]:
    """Give what uvicorn makes a connection's protocol with: it calls it, and asks nothing else of it."""
    return cast("type[asyncio.Protocol]", partial(BoundedProtocol, limits=limits))


async def _bound(host: str, port: int) -> socket.socket:
    """Bind, trying for a moment while the port is taken: a connection that is just ending may hold it."""
    clock = asyncio.get_running_loop()
    deadline = clock.time() + _TAKEN_SECONDS
    while True:
        try:
            return _bind(host, port)
        except SettingsInvalid as refused:
            is_taken = isinstance(refused.__cause__, OSError) and refused.__cause__.errno == errno.EADDRINUSE
            if not is_taken or clock.time() >= deadline:
                raise
        await asyncio.sleep(_TAKEN_PAUSE_SECONDS)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), port))
    except OSError as exc:
        listening.close()
        raise SettingsInvalid(
            f"the API cannot have {host}:{port}: {exc.strerror}", fix="choose a free port with --port or OUTLAST_BIND"
        ) from exc
    return listening
