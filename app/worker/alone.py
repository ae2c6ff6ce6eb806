"""When a job that must run alone in its worker gets its turn.

Such a job is handed back while others run, and left to other workers. It is asked for again when this worker is empty,
and once it has waited for long, nothing else is claimed until the worker is. Owns that rule, no claim; asked by the
claim loop.
"""

from __future__ import annotations

from collections.abc import Callable

from ..domain.job import JobId
from ..domain.state import State
from ..drivers.protocol import JobDriver
from ..observability.telemetry import Telemetry


class AloneTurn:
    """One job that is known to wait, if any, and since when. `roll` spreads the fleet's workers over time."""

    def __init__(
        self,
        *,
        driver: JobDriver,
        telemetry: Telemetry,
        patience_seconds: float,
        monotonic: Callable[[], float],
        roll: Callable[[], float],
    ) -> None:
        self._driver = driver
        self._telemetry = telemetry
        self._patience = patience_seconds
        self._monotonic = monotonic
        self._roll = roll
        self._due_at = 0.0
        self._asked_at: float | None = None
        self.waits: JobId | None = None

    @property
    def is_due(self) -> bool:
        """Say whether it has waited for long."""
        return self.waits is not None and self._monotonic() >= self._due_at

    def handed_back(self, job_id: JobId) -> None:
        """Note that it waits; the first one stays the one that is waited for."""
        if self.waits is None:
            self.waits = job_id
            self._due_at = self._monotonic() + self._patience * (1 + self._roll() / 2)
            self._asked_at = None

    def over(self) -> None:
        """Note that it waits no more, as far as this worker can see."""
        self.waits = None

    async def holds_back(self, worker_id: int, *, ask_every: float) -> bool:
        """Say, in a worker that is not empty, whether it is to become so: the job is due and nobody else has taken it.

        Said in the log when it begins; the store is asked about the job every `ask_every` seconds.
        """
        if self.waits is None or not self.is_due:
            return False
        now = self._monotonic()
        if self._asked_at is None:
            self._telemetry.claims_held_back(self.waits, worker_id)
        elif now - self._asked_at < ask_every:
            return True
        self._asked_at = now
        if not await self._still_waits(self.waits):
            self.over()
        return self.waits is not None

    async def _still_waits(self, job_id: JobId) -> bool:
        try:
            view = await self._driver.describe(job_id)
        except Exception as error:  # noqa: BLE001 - said; it is asked again
            self._telemetry.store_call_failed("describe", error)
            return True
        return view is not None and view.state is State.READY
