"""An answer of a page that is sent as it comes into being: what follows jobs, and a list of jobs as a file."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from starlette.types import Send

from ..sending import Sending


class Streamed(Sending):
    """Sends parts. One that fails cuts the answer short, so that nobody takes it for whole."""

    def __init__(self, parts: AsyncGenerator[bytes, None], *, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(parts, headers=headers, media_type=media_type)
        self._parts = parts

    async def stream_response(self, send: Send) -> None:
        """Send what there is as it comes, and close it."""
        async with aclosing(self._parts):
            await super().stream_response(send)
