"""An answer that is sent as it comes into being, to a reader that may be gone.

One that takes nothing for half a minute is let go. The base of whatever streams, of the API and of the pages.
"""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Message, Send

_SEND_SECONDS = 30.0


class Sending(StreamingResponse):
    """Sends parts for as long as somebody takes them."""

    async def stream_response(self, send: Send) -> None:
        """Send what there is as it comes.

        Raises:
            ClientDisconnect: the reader did not take a part in time.
        """

        async def within(message: Message) -> None:
            try:
                async with asyncio.timeout(_SEND_SECONDS):
                    await send(message)
            except TimeoutError:
                raise ClientDisconnect from None

        await super().stream_response(within)
