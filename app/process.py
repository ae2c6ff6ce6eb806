"""One process that runs roles: what is started in which order, and closed in which.

The admin listener comes first and goes last, so that a process that starts, drains or hangs can be looked at. Built
from `bootstrap`, run by the command line.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from secrets import SystemRandom
from typing import TYPE_CHECKING

import uvloop

from . import __version__
from .bootstrap import (
    build_admission,
    build_auth,
    build_relay,
    build_services,
    build_telemetry,
    build_worker,
    code_version,
)
from .control.drain import DrainControl
from .control.fleet import FleetControl
from .control.guard import Guard
from .domain.errors import NotImplementedYet, SettingsInvalid
from .drivers.opening import close_driver, open_driver
from .drivers.schedules import schedules_of
from .http.admin import AdminListener, AdminProbes, on_loop
from .http.probes import Readiness, Trouble, check_readiness
from .jobs.registry import load_registry
from .lifecycle.heap import settle_heap
from .lifecycle.main_run import run_process
from .lifecycle.pulse import LoopPulse
from .lifecycle.role import Announcer, Role
from .lifecycle.shutdown import Shutdown
from .observability.tracing import open_tracing
from .scheduler.scheduler import Scheduler
from .settings import Settings, address_of
from .stores import build_driver, build_outbox
from .worker.containment import contain_tasks
from .worker.worker import Worker

if TYPE_CHECKING:
    from .http.role import ApiRole

ROLES = ("api", "worker", "relay", "scheduler")

# A worker's claim, settle, hand-back and maintenance may each hold a connection at once; the API keeps two for reads,
# a relay one for its pass and one for what a pass looks up beside it; a scheduler does one thing after the other.
_GRACEFUL_SECONDS = 5.0
_POOL_OF_ROLE = {"worker": 4, "api": 2, "relay": 2, "scheduler": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where a process that has started can be reached; `api` is None without that role."""

    api: str | None
    admin: str


class Process:
    """One process that runs roles. `last` is called when they have ended and the driver is closed."""

    def __init__(
        self,
        settings: Settings,
        roles: Sequence[str],
        *,
        is_dev: bool = False,
        announce: Callable[[Addresses], None],
        last: Callable[[Shutdown], None] = lambda _shutdown: None,
    ) -> None:
        _check_pool(settings, roles)
        self._settings = settings
        self._tracing = open_tracing()
        self._telemetry = build_telemetry(settings)
        self._driver = build_driver(settings)
        self._outbox = build_outbox(settings, self._driver)
        self._shutdown = Shutdown(drain_seconds=settings.drain_seconds, telemetry=self._telemetry)
        self._drain = DrainControl(status=self._shutdown.status, begin=self._shutdown.request)
        self._pulse = LoopPulse(patience_seconds=settings.loop_stall_seconds)
        self._started = threading.Event()
        self._bind = address_of(settings.bind, "OUTLAST_BIND")
        self._admin_bind = address_of(settings.admin_bind, "OUTLAST_ADMIN_BIND")
        self._auth = self._build_auth(is_dev=is_dev) if "api" in roles else None
        self._worker = self._build_worker() if "worker" in roles else None
        self._relay = build_relay(settings, self._driver, self._outbox, self._telemetry) if "relay" in roles else None
        self._scheduler = self._build_scheduler() if "scheduler" in roles else None
        self._announce = announce
        self._last = last

    def run(self) -> int:
        """Run until told to leave; gives the exit code.

        Raises:
            DriverUnavailable: the database did not answer within `start_seconds`.
            SchemaOutdated: migrations are missing.
        SettingsInvalid: the API would let nobody in.
        """
        return run_process(self._main, shutdown=self._shutdown, loop_factory=self._new_loop)

    def request(self, cause: str) -> None:
        """Let the process leave, or join the drain under way. Any thread, also before it runs."""
        self._shutdown.request(cause)

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        """Give a loop whose tasks are contained from the first on: those that run the process are ours as well."""
        loop = uvloop.new_event_loop()
        contain_tasks(loop, on_refused=self._telemetry.cancel_refused, own="")  # all of them: nobody else runs here
        return loop

    async def _main(self) -> int:
        admin = self._admin()
        self._pulse.start()
        admin.start()
        async with AsyncExitStack() as ending:  # in the reverse order, each whatever became of the one before
            ending.callback(self._pulse.stop)
            ending.callback(admin.stop)
            ending.push_async_callback(_in_own_thread, lambda: self._last(self._shutdown))
            if self._tracing.is_ours:
                ending.push_async_callback(_in_own_thread, self._tracing.close)
            ending.push_async_callback(close_driver, self._driver)
            if self._outbox is not None:
                ending.push_async_callback(self._outbox.close)
            if not await self._shutdown.unless_requested(self._open()):
                return 0
            if not self._driver.capabilities.is_durable:
                self._telemetry.store_is_volatile(self._driver.capabilities.name)
            self._say_what_is_between()
            self._started.set()
            settle_heap()
            return await self._shutdown.serve(self._roles(admin))

    def _say_what_is_between(self) -> None:
        store = self._driver.capabilities
        if store.pooled is not None:
            self._telemetry.store_is_pooled(
                can_listen=store.can_listen,
                keeps_statements=store.pooled.keeps_statements,
                missing=store.pooled.missing,
            )
        if self._auth is not None and not store.has_wall:
            self._telemetry.auth_wall_missing(self._settings.db_schema)

    def _build_auth(self, *, is_dev: bool) -> Guard:
        return build_auth(self._settings, self._driver, host=self._bind[0], is_dev=is_dev)

    def _build_worker(self) -> Worker:
        asked = self._shutdown.request
        return build_worker(self._settings, self._driver, self._telemetry, on_drain_asked=asked)

    def _build_scheduler(self) -> Scheduler:
        store = schedules_of(self._driver)
        if store is None:
            raise NotImplementedYet(
                f"the {self._driver.capabilities.name} driver has no schedules",
                fix="set OUTLAST_DATABASE_URL to postgresql://…",
            )
        return Scheduler(
            store=store,
            schedules=load_registry(self._settings.jobs).schedules,
            code_version=code_version(self._settings),
            admission=build_admission(self._settings),
            telemetry=self._telemetry,
            roll=SystemRandom().random,
        )

    async def _open(self) -> None:
        within = timedelta(seconds=self._settings.start_seconds)
        was_away = await open_driver(self._driver, within=within)
        if was_away and self._worker is not None:
            self._worker.store_was_away()
        if self._outbox is not None:
            await open_driver(self._outbox, within=within)
        if self._auth is not None:
            await self._auth.check_keys()

    def _roles(self, admin: AdminListener) -> list[Role]:
        api = None if self._auth is None else self._api(self._auth)

        def announce() -> None:
            url = None if api is None else f"http://{_shown(self._bind[0])}:{api.port}"
            self._announce(Addresses(api=url, admin=f"http://{_shown(self._admin_bind[0])}:{admin.port}"))

        roles = [role for role in (self._worker, self._relay, self._scheduler, api) if role is not None]
        return [*roles, Announcer(announce)]

    def _api(self, auth: Guard) -> ApiRole:
        # The web framework is loaded where it is served: workers start in half the time without it.
        from .control.overview import OverviewControl  # noqa: PLC0415
        from .http.app import create_app  # noqa: PLC0415
        from .http.role import ApiRole  # noqa: PLC0415
        from .http.server import HttpServer  # noqa: PLC0415
        from .site import build_dashboard  # noqa: PLC0415

        services = build_services(
            self._settings,
            self._driver,
            self._outbox,
            self._telemetry,
            auth=auth,
            is_started=self._started.is_set,
            is_draining=self._is_draining,
            drain=self._drain,
        )
        overview = OverviewControl(self._driver)
        server = HttpServer(
            create_app(services, pages=build_dashboard(self._settings, self._driver, services, overview=overview)),
            host=self._bind[0],
            port=self._bind[1],
            # A client that stalls must not use up the drain: what it sent is refused, not given up.
            graceful_seconds=min(_GRACEFUL_SECONDS, self._settings.drain_seconds / 2),
        )
        return ApiRole(server, services, count=overview.stats)

    def _admin(self) -> AdminListener:
        loop = asyncio.get_running_loop()
        ready = on_loop(
            loop,
            lambda: check_readiness(
                ping=self._driver.ping, is_started=self._started.is_set, is_draining=self._is_draining
            ),
            otherwise=Readiness(trouble=Trouble.LOOP),
        )
        probes = AdminProbes(
            is_live=self._pulse.is_beating,
            is_started=self._started.is_set,
            readiness=ready,
            metrics=self._telemetry.metrics.render,
            drain=self._drain,
            fleet=on_loop(loop, FleetControl(self._driver).draining, otherwise=None),
            version={"version": __version__, "code_version": code_version(self._settings)},
        )
        return AdminListener(probes, host=self._admin_bind[0], port=self._admin_bind[1])

    def _is_draining(self) -> bool:
        return self._shutdown.is_draining


async def _in_own_thread(step: Callable[[], None]) -> None:
    """Do something that blocks. The loop's own threads may have been shut down by then, by a body or by the process."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - for whoever waits
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="outlast.last").start()
    await asyncio.wrap_future(done)


def _check_pool(settings: Settings, roles: Sequence[str]) -> None:
    needed = {role: _POOL_OF_ROLE[role] for role in roles}
    if settings.pool_size < sum(needed.values()):
        sums = " + ".join(f"{count} for the {role}" for role, count in needed.items())
        raise SettingsInvalid(
            f"OUTLAST_POOL_SIZE={settings.pool_size} is less than {sums}",
            fix=f"set it to {sum(needed.values())} or more, or run the roles in processes of their own",
        )


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
