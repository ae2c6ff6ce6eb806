"""A write to the store whose outcome is unknown, repeated until it is known or patience ends.

A COMMIT whose reply was lost may have happened. Ids are minted before the write, so that repeating it under the same
ids can never make a second job. Called by the client, by control and by runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..domain.errors import DriverUnavailable

PATIENCE_SECONDS = 3.0  # a cut connection is mended in less; an outage is the caller's to wait out
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 0.5

ResultT = TypeVar("ResultT")


async def until_known(
    write: Callable[[], Awaitable[ResultT]], *, patience_seconds: float = PATIENCE_SECONDS
) -> ResultT:
    """Give what a write answers, repeating it while the store is unavailable.

    `write` must be the same write every time, under ids that were minted before. It is repeated at least once, and no
    repetition begins later than `patience_seconds` after the first failure.

    Raises:
        DriverUnavailable: patience has ended; whether the write took place is unknown. At once when the driver was
            closed for good (detail `is_closed`), and then with what the first failure knew of the write.
            Anything else at once.
    """
    clock = asyncio.get_running_loop().time
    first: DriverUnavailable | None = None
    until: float | None = None
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return await write()
        except DriverUnavailable as error:
            if error.details.get("is_closed"):
                if first is None:
                    raise
                raise first from first.__cause__  # of an earlier try, which may be stored, this one knows nothing
            first = first or error
            now = clock()
            if until is not None and now + pause > until:
                raise
            until = now + patience_seconds if until is None else until
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
