"""The HTTP API for a server that is not ours: `main` hands this to whoever imports it, and that server runs it.

It opens the store when the server starts it and closes it when the server stops it; signals that the server takes are
overheard. Counts the store meanwhile, as the role of the API does. Built from `bootstrap`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from .bootstrap import build_auth, build_services, build_telemetry
from .control.drain import DrainControl
from .control.overview import OverviewControl
from .drivers.opening import close_driver, open_driver
from .http.app import create_app
from .http.counting import count_until
from .http.deferred import Application, DeferredApp
from .lifecycle.overheard import ask_to_leave, overheard
from .lifecycle.shutdown import Shutdown
from .lifecycle.tasks import start_task
from .observability.tracing import open_tracing
from .settings import Settings
from .site import build_dashboard
from .stores import build_driver, build_outbox


def asgi_app() -> DeferredApp:
    """Give the ASGI application of `uvicorn app.main:app`; settings are read when the server starts it."""
    return DeferredApp(_build_asgi)


def _build_asgi() -> Application:
    settings, tracing = Settings.read(), open_tracing()
    telemetry, driver, started = build_telemetry(settings), build_driver(settings), threading.Event()
    leaving = Shutdown(drain_seconds=settings.drain_seconds, telemetry=telemetry)

    def begin(by: str) -> None:
        leaving.request(by)
        ask_to_leave()

    outbox = build_outbox(settings, driver)
    # Which address uvicorn binds to is not known here, so a key is always asked for.
    auth = build_auth(settings, driver, host="", is_dev=False)
    services = build_services(
        settings,
        driver,
        outbox,
        telemetry,
        auth=auth,
        is_started=started.is_set,
        is_draining=lambda: leaving.is_draining,
        drain=DrainControl(status=leaving.status, begin=begin),
    )
    overview = OverviewControl(driver)

    @asynccontextmanager
    async def around() -> AsyncIterator[None]:
        await open_driver(driver, within=timedelta(seconds=settings.start_seconds))
        if outbox is not None:
            await open_driver(outbox, within=timedelta(seconds=settings.start_seconds))
        await auth.check_keys()
        started.set()
        loop = asyncio.get_running_loop()

        def hear(name: str) -> None:
            leaving.request(name)
            # The server waits for every request under way, also for those that wait for a job or follow one.
            loop.call_soon_threadsafe(services.end_waiting)

        counting = start_task(
            count_until(asyncio.Event(), count=overview.stats, telemetry=telemetry), name="outlast.count"
        )
        with overheard(hear):
            try:
                yield
            finally:
                counting.cancel()
                await asyncio.wait([counting])
                if outbox is not None:
                    await outbox.close()
                await close_driver(driver)
                if tracing.is_ours:
                    await asyncio.to_thread(tracing.close)

    return create_app(services, around=around, pages=build_dashboard(settings, driver, services, overview=overview))
