"""The ASGI application a server imports before anything may happen.

It builds the real one when the server starts: importing `app.main` reads no setting and opens nothing. A start that
fails is told to the server in two lines, cause and repair, instead of a traceback. Called by the composition root.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TypeAlias

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from ..domain.errors import OutlastError

# Under this name the composition root can speak of it: only `http` may import the framework.
Application: TypeAlias = FastAPI


class DeferredApp:
    """Builds its application in the server's lifespan; without one it serves nothing."""

    def __init__(self, build: Callable[[], Application]) -> None:
        self._build = build
        self._app: Application | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI scope."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self._app is not None:
            await self._app(scope, receive, send)
        else:
            raise RuntimeError("the server sent a request before its lifespan had started; run it with --lifespan on")

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as stack:
            try:
                app = self._build()
                await stack.enter_async_context(app.router.lifespan_context(app))
            except OutlastError as error:
                message = f"{error.code}: {error.cause}\n  fix: {error.fix}"
                await send({"type": "lifespan.startup.failed", "message": message})
                return
            self._app = app
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
