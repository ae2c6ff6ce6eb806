"""An answer that is sent as it comes into being. Used by what follows jobs, and by a list of jobs as a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Message, Send

_SEND_SECONDS = 30.0


class Streamed(StreamingResponse):
    """Sends parts. One that fails cuts the answer short, so that nobody takes it for whole."""

    def __init__(self, parts: AsyncGenerator[bytes, None], *, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(parts, headers=headers, media_type=media_type)
        self._parts = parts

    async def stream_response(self, send: Send) -> None:
        """Send what there is as it comes; a reader that does not take it in time is gone."""

        async def within(message: Message) -> None:
            try:
                async with asyncio.timeout(_SEND_SECONDS):
                    await send(message)
            except TimeoutError:
                raise ClientDisconnect from None

        async with aclosing(self._parts):
            await super().stream_response(within)
