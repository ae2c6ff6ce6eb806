"""What a job type's `redact` keeps from whoever looks, and the way around it, which leaves a row in the audit.

What is known of a type is its newest publication. Programs read back what they sent but for the paths a type names;
pages leave out members with telling names as well. Called by the HTTP routes and the dashboard.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from ..domain.audit import Acting, Action
from ..domain.job import JobId
from ..domain.redaction import redacted
from ..domain.snapshot import JobView
from ..drivers.protocol import JobDriver
from .acting import on_job
from .catalogue import TypeCatalogue


class Redaction:
    """Knows what is left out of the jobs of each type."""

    def __init__(self, driver: JobDriver, catalogue: TypeCatalogue) -> None:
        self._driver = driver
        self._catalogue = catalogue

    async def of(self, name: str) -> tuple[str, ...]:
        """Give the paths that a job type names; none for a type that nobody has published."""
        found = await self._catalogue.find(name)
        return () if found is None else paths_of(found.document)

    async def of_job(self, job_id: JobId, *, tenant: str | None) -> tuple[str, ...]:
        """Give the paths that the type of a job names; none for a job that is gone, of which nothing is shown."""
        view = await self._driver.describe(job_id, tenant=tenant)
        return () if view is None else await self.of(view.name)

    async def reveal(self, view: JobView, *, by: Acting) -> None:
        """Note that somebody sees a job whole. What cannot be noted is not to be shown: an error of the store is one.

        Raises:
            DriverUnavailable: the row could not be written.
        """
        entry = on_job(by, Action.JOB_REVEAL, view.id, name=view.name)
        assert entry is not None, "somebody acts"  # noqa: S101 - `by` is given
        await self._driver.keep_entry(replace(entry, tenant=view.tenant))


def shown_view(view: JobView, paths: Sequence[str], *, by_name: bool = False) -> JobView:
    """Give a job with its payload and result as they may be shown."""
    payload = redacted(view.payload, paths, by_name=by_name)
    return replace(view, payload=payload, result=redacted(view.result, paths, by_name=by_name))


@lru_cache(maxsize=1_024)
def paths_of(document: str) -> tuple[str, ...]:
    """Give the paths that a published job type names."""
    content = json.loads(document)
    policy = content.get("policy") if isinstance(content, dict) else None
    paths = policy.get("redact") if isinstance(policy, dict) else None
    return tuple(path for path in paths or () if isinstance(path, str)) if isinstance(paths, list) else ()
