"""The outbox as operators see it: what waits, what is quarantined, replay; and where a staged id leads.

`outbox` is where callers stage; where a job came of it is asked beside the jobs. Called by the HTTP routes and the
command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..domain.errors import JobNotFound, NotImplementedYet
from ..domain.job import JobId
from ..domain.outbox import OutboxId, OutboxView
from ..drivers.outbox import OutboxStore, outbox_of
from ..drivers.protocol import JobDriver

SHOWN = 50


class OutboxControl:
    """Reads the outbox, and replays what was quarantined."""

    def __init__(self, outbox: OutboxStore[Any] | None, *, jobs: JobDriver) -> None:
        self._outbox = outbox
        self._jobs = jobs
        self._beside_jobs = outbox_of(jobs)

    async def view(self, limit: int = SHOWN, *, tenant: str | None = None) -> OutboxView:
        """Give the outbox as it stands, with the newest quarantined rows; of these only one tenant's, if named."""
        view = await self._given().view(limit)
        return replace(view, items=tuple(item for item in view.items if tenant in {None, item.tenant}))

    async def replay(self, ids: Sequence[OutboxId] | None, *, may_double: bool = False) -> int:
        """Stage quarantined rows again, these or all; gives their number. Repeating it is safe.

        Rows that are too old to know whether they were published are staged only when named, with `may_double`.
        """
        return await self._given().replay(ids, may_double=may_double)

    async def follow(self, job_id: JobId, absent: JobNotFound, *, tenant: str | None) -> JobId:
        """Give the job that a staged id's key led to.

        Raises:
            JobNotFound: it leads nowhere this tenant may look, or waits to be published.
        """
        found = None if self._beside_jobs is None else await self._beside_jobs.forwarded(job_id)
        if found is not None and found != job_id and await self._jobs.describe(found, tenant=tenant) is not None:
            return found
        # Whose row waits is not asked for: its id is known to nobody but those it was given to.
        if found is None and self._outbox is not None and await self._outbox.is_staged(job_id):
            raise JobNotFound(
                f"job {job_id} is staged and not published yet",
                fix="ask again in a moment; GET /v1/outbox says how far the relays are, and what is quarantined",
            ) from absent
        raise absent

    def _given(self) -> OutboxStore[Any]:
        if self._outbox is None:
            raise NotImplementedYet("this store has no outbox", fix="set OUTLAST_DATABASE_URL to postgresql://…")
        return self._outbox
