"""How many jobs of a tenant may wait before the API takes in no more: counted now and then, and by what came since.

A count is used for a second, or for twenty times as long as it took, and what this process has let in since is added.
So a tenant may come to have more: by what other processes let in in that time. Only what makes new jobs asks here;
whoever cancels, retries or releases is never refused. Off unless a number is set. Called by `jobs`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..domain.errors import TenantFull
from ..domain.job import NewJob
from ..drivers.protocol import JobDriver

FRESH_SECONDS = 1.0
# So that counting is a twentieth of a process's time with the database at most.
_TIMES_AS_LONG = 20
# Beyond it, what was counted too long ago is forgotten.
_MOST_KEPT = 10_000


@dataclass(slots=True)
class _Standing:
    waiting: int = 0
    until: float = 0.0
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)


class TenantCrowd:
    """Knows how many jobs of each tenant wait. `most` None: nobody is counted."""

    def __init__(self, driver: JobDriver, most: int | None, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._driver = driver
        self._most = most
        self._monotonic = monotonic
        self._standings: dict[str, _Standing] = {}

    async def let_in(self, jobs: Iterable[NewJob]) -> None:
        """Let jobs in that are about to be stored, all or none.

        Raises:
            TenantFull: with them more of a tenant's jobs would wait than may.
            DriverUnavailable: it cannot be counted; then nobody is let in.
        """
        if self._most is None:
            return
        wanted = Counter(job.tenant for job in jobs)
        standings = {tenant: await self._counted(tenant, self._most) for tenant in wanted}
        for tenant, count in wanted.items():
            waiting = standings[tenant].waiting
            if waiting + count > self._most:
                raise _full(tenant, waiting, count, self._most)
        for tenant, count in wanted.items():
            standings[tenant].waiting += count

    async def _counted(self, tenant: str, most: int) -> _Standing:
        found = self._standings.get(tenant)
        if found is None:
            self._forget_old()
            found = self._standings[tenant] = _Standing()
        if self._monotonic() >= found.until:
            async with found.counting:
                if self._monotonic() >= found.until:  # nobody else has counted meanwhile
                    began = self._monotonic()
                    found.waiting = await self._driver.count_waiting(tenant, most)
                    ended = self._monotonic()
                    found.until = ended + max(FRESH_SECONDS, _TIMES_AS_LONG * (ended - began))
        return found

    def _forget_old(self) -> None:
        if len(self._standings) >= _MOST_KEPT:
            now = self._monotonic()
            self._standings = {
                name: one for name, one in self._standings.items() if one.until > now or one.counting.locked()
            }


def _full(tenant: str, waiting: int, count: int, most: int) -> TenantFull:
    if count > most:
        return TenantFull(
            f"{count:,} jobs at once are more than the {most:,} of a tenant that may wait",
            fix="send fewer at once, or raise OUTLAST_API_WAITING_PER_TENANT",
        )
    more = "" if count == 1 else f", and {count:,} more are too many"
    return TenantFull(
        f"{waiting:,} jobs of tenant {tenant!a} wait, of {most:,} that may{more}",
        fix="send again once jobs were claimed or cancelled; add workers if it persists",
    )
