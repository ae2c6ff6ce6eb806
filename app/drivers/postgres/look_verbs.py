"""The verbs of people who ask why: a job's situation, a part of the driver.

Apart because nothing that runs jobs needs them. Each is a function in the module of its name.
"""

from __future__ import annotations

from ...domain.job import JobId
from ...domain.reason import Situation
from ...domain.vitals import Vitals
from . import explain, vitals
from .database import Database


class LookVerbs:
    """What can be asked of a store in PostgreSQL beyond its jobs. What each verb promises, the protocol says."""

    _db: Database

    async def situation(self, job_id: JobId, *, tenant: str | None = None) -> Situation | None:
        """Give a job and all that decides about its claim."""
        return await explain.situation(self._db, job_id, tenant=tenant)

    async def vitals(self) -> Vitals:
        """Give the health of the store."""
        return await vitals.vitals(self._db)
