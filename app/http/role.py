"""The API as a part of a process: its listener starts, drains and stops like every other role.

At accept waiting requests are answered, requests under way go on; the listener closes when the roles before it are
done. Also keeps the queue gauges of a process without a worker fresh. Called by the composition root.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..domain.snapshot import Stats
from ..lifecycle.drain import DrainNotice
from ..lifecycle.role import Life, Role
from .counting import count_until
from .server import HttpServer
from .services import HttpServices


class ApiRole(Role):
    """Serves HTTP on `server`; `count` reads the store's counts for the gauges."""

    def __init__(self, server: HttpServer, services: HttpServices, *, count: Callable[[], Awaitable[Stats]]) -> None:
        super().__init__("api")
        self._server = server
        self._services = services
        self._count = count

    @property
    def port(self) -> int:
        """Give the port it listens on, after `start`."""
        return self._server.port

    def told(self, life: Life, notice: DrainNotice) -> None:  # noqa: ARG002 - the same for every drain
        """Answer every request that waits for a job to finish, and end every stream."""
        self._services.end_waiting()

    async def live(self, life: Life) -> None:
        """Listen until told to leave; a server that dies before that fails the role, and the process with it."""
        await self._server.start()
        life.running()
        try:
            await count_until(
                life.is_leaving, self._server.has_ended, count=self._count, telemetry=self._services.telemetry
            )
            life.idle()
            if not self._server.has_ended.is_set():
                # Requests are answered while others end their work: load balancers need time to look elsewhere.
                await life.budget.wait(life.is_closing, until=lambda budget: budget.abandon_at)
        finally:
            life.idle()
            left = life.budget.remaining(life.budget.deadline)
            await self._server.stop(within=None if left is None else left / 2)
