"""The job types the fleet has published, remembered for a few seconds.

The API validates against these documents and never imports a handler. A name that is not remembered is looked up at
once, so a type published a moment ago is found; a changed document is seen after the time to live. Used by JobControl
and the job-type routes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ..domain.errors import NotFound
from ..domain.snapshot import JobTypeDoc
from ..drivers.protocol import JobDriver

# Long enough that a busy API asks once and not per request, short enough that a deploy is seen while it goes on.
_TTL_SECONDS = 5.0
# The repair for a name nobody has published.
PUBLISH_FIRST = "list the known ones with GET /v1/job-types; start a worker whose OUTLAST_JOBS names its module"


class TypeCatalogue:
    """Published job types by name."""

    def __init__(
        self,
        driver: JobDriver,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        ttl_seconds: float = _TTL_SECONDS,
    ) -> None:
        self._driver = driver
        self._monotonic = monotonic
        self._ttl_seconds = ttl_seconds
        self._lock = asyncio.Lock()
        self._by_name: dict[str, JobTypeDoc] = {}
        self._read_at = float("-inf")

    async def find(self, name: str) -> JobTypeDoc | None:
        """Give the newest publication of a name, None if nobody has published it."""
        known = self._by_name.get(name)
        if known is not None and self._is_fresh():
            return known
        return (await self._read(asked_at=self._monotonic())).get(name)

    async def describe(self, name: str) -> JobTypeDoc:
        """Give the newest publication of a name. Raises `NOT_FOUND`."""
        found = await self.find(name)
        if found is None:
            raise NotFound(f"no worker has published a job type {name!r}", fix=PUBLISH_FIRST)
        return found

    async def all(self) -> tuple[JobTypeDoc, ...]:
        """Give every published job type by name, as the store has them now."""
        by_name = await self._read(asked_at=self._monotonic())
        return tuple(by_name[name] for name in sorted(by_name))

    def _is_fresh(self) -> bool:
        return self._monotonic() - self._read_at < self._ttl_seconds

    async def _read(self, *, asked_at: float) -> dict[str, JobTypeDoc]:
        """Read the store, unless a reading that began after the caller asked answers for it too."""
        async with self._lock:
            if self._read_at <= asked_at:
                began = self._monotonic()
                self._by_name = {each.name: each for each in await self._driver.job_types()}
                self._read_at = began
            return self._by_name
