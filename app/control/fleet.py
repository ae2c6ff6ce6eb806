"""The worker processes behind a store: which live, what they run, whether they drain.

Read only. Called by the HTTP routes.
"""

from __future__ import annotations

from ..domain.snapshot import WorkerView
from ..drivers.protocol import JobDriver


class FleetControl:
    """Reads the workers."""

    def __init__(self, driver: JobDriver) -> None:
        self._driver = driver

    async def workers(self) -> tuple[WorkerView, ...]:
        """Give live workers and those that left in the last hour, newest first."""
        return await self._driver.workers()
