"""The ASGI application, assembled from what it is given; there is no application at module level.

Routes of later releases are not here: they answer like any path nobody serves. Called by the composition root, and by
`outlast openapi`, which needs the routes alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import cache
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from .. import __version__
from ..domain.errors import JobNotFound
from ..lifecycle.tasks import start_in
from .caller import OPEN_PATHS, PAGES, REFERENCE
from .edge import Edge
from .framework import lead_elsewhere, translate_http_exception, translate_validation_error
from .openapi import render_document
from .replies import leading_to
from .routers import (
    actions,
    api_keys,
    audit,
    batches,
    bulk,
    dead_letters,
    deploys,
    doctor,
    drain,
    edits,
    enqueue,
    events,
    explain,
    job_list,
    job_types,
    jobs,
    limits,
    outbox,
    problems,
    process,
    queues,
    reveal,
    runs,
    schedules,
    stats,
    stream,
    topics,
    webhooks,
    workers,
)
from .services import HttpServices

_UNTRACED = OPEN_PATHS | {"/metrics"}
_ROUTERS = (
    *(enqueue, batches, job_list, jobs, explain, runs, stream, topics, actions, reveal, bulk, edits, events),
    *(dead_letters, job_types, queues, limits, schedules, workers, outbox, audit, api_keys, webhooks),
    *(drain, deploys, stats, doctor, process, problems),
)
_DESCRIPTION = (
    "Background jobs that outlast the process that runs them. Times are RFC 3339 in UTC, durations integer"
    " milliseconds, ids opaque. Every error is a problem document with a stable `code` and a `fix` that works."
)

Around = Callable[[], AbstractAsyncContextManager[None]]


def create_app(services: HttpServices, *, around: Around = nullcontext, pages: ASGIApp | None = None) -> FastAPI:
    """Build the application over its services; `pages` is the dashboard, which has a door of its own.

    Its lifespan enters `around` first (the composition root opens there what plain `uvicorn` would not) and runs the
    shared waiter and the watcher of streams within.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with around(), _waiting(services):
            yield

    app = _bare_app(lifespan)
    app.state.services = services
    if pages is not None:
        app.add_route(PAGES, _lead_to_pages, include_in_schema=False)
        app.add_route(REFERENCE, _lead_to_reference, include_in_schema=False)
        app.mount(PAGES, pages)
    app.add_middleware(Edge, services=services)
    return app


async def _lead_to_pages(request: Request) -> Response:
    return leading_to(request, f"{PAGES}/", status=HTTPStatus.PERMANENT_REDIRECT)


async def _lead_to_reference(request: Request) -> Response:
    return leading_to(request, f"{PAGES}{REFERENCE}", status=HTTPStatus.PERMANENT_REDIRECT)


@cache
def openapi_document() -> str:
    """Give the OpenAPI document of this release."""
    return render_document(_bare_app(None))


def _is_untraced(scope: MutableMapping[str, Any]) -> bool:
    """Say whether a request gets no span: probes come all the time, and streams last for hours."""
    path = str(scope.get("path", ""))
    return path in _UNTRACED or path.startswith(PAGES) or path.endswith(("/events", "/stream"))


def _bare_app(lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None) -> FastAPI:
    return FastAPI(
        title="Outlast",
        summary="A durable background-job service.",
        description=_DESCRIPTION,
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        routes=list(_routes()),
        # Only spans, and only where the process has an SDK; metrics and logs are our own.
        telemetry={"metrics": False, "logs": False, "operation_spans": False, "exclude": _is_untraced},
        exception_handlers={
            JobNotFound: lead_elsewhere,
            HTTPException: translate_http_exception,
            RequestValidationError: translate_validation_error,
        },
    )


@cache
def _routes() -> tuple[BaseRoute, ...]:
    """Give the routes, which know of no application: FastAPI makes what it needs of one at its first request, once."""
    bare = FastAPI(openapi_url=None)
    for each in _ROUTERS:
        bare.include_router(each.router)
    return tuple(bare.router.routes)


@asynccontextmanager
async def _waiting(services: HttpServices) -> AsyncIterator[None]:
    """Run what finds news for requests that wait, for as long as the application is up."""
    services.waiters.open()
    services.streams.open()
    services.auth.open()
    services.topics.open()
    async with asyncio.TaskGroup() as group:
        start_in(group, services.waiters.run(), name="outlast.http.waiters")
        start_in(group, services.streams.run(), name="outlast.http.streams")
        noting = services.auth.run(services.telemetry.auth_note_failed)
        start_in(group, noting, name="outlast.http.auth")
        try:
            yield
        finally:
            services.end_waiting()
            services.auth.stop()
