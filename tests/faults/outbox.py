"""The checker of the outbox: a rolled back transaction left no job; a committed one left exactly one thing a row.

That is a job of its own, the way to the job that its key led to, or a quarantined row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from app.domain.job import JobId


class End(StrEnum):
    """What became of a row."""

    JOB = "job"
    DEDUPED = "deduped"
    QUARANTINED = "quarantined"


_ENDS = """
select i.id,
  (select count(*) from outlast.job j where j.id = i.id) as jobs,
  (select s.job_id from outlast.source s where s.source_id = i.id) as leads_to,
  (select o.state from outlast.outbox o where o.id = i.id) as state
from unnest($1::uuid[]) i(id)"""


async def check_outbox(connection: Any, committed: Iterable[JobId], rolled_back: Iterable[JobId]) -> Counter[End]:
    """Fail on the first row that ended otherwise; gives how many ended which way."""
    found: Counter[End] = Counter()
    for row in await connection.fetch(_ENDS, list(committed)):
        ends = []
        if row["leads_to"] == row["id"]:
            ends.append(End.JOB)
        if row["leads_to"] not in (None, row["id"]):
            assert row["jobs"] == 0, f"{row['id']} is a job and leads to another"
            ends.append(End.DEDUPED)
        if row["state"] is not None:
            assert row["state"] == 2, f"{row['id']} is still staged or claimed"
            ends.append(End.QUARANTINED)
        assert len(ends) == 1, f"{row['id']} ended as {ends}"
        found.update(ends)
    for row in await connection.fetch(_ENDS, list(rolled_back)):
        assert (row["jobs"], row["leads_to"], row["state"]) == (0, None, None), f"{row['id']} was rolled back"
    return found
