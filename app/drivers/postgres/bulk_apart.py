"""Jobs of a bulk operation that take more than one statement each: every one is a transaction of its own.

A cancel of a job that calls others takes them along. A delete of a job that somebody waits for tells them first. The
job is held before it is acted on, in the state that was asked for, or left for a later round. Called by `bulk_step`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from ...domain.job import JobId
from ..protocol import Wake
from .bulk_acts import OF_BATCH, reason_of
from .bulk_cancel import CALLERS, HOLD
from .bulk_delete import WAITED_FOR
from .cancel import cancel_children, cancel_family
from .database import Database, Raw, Row
from .delete import DELETE_ONE
from .notify import REVOKES

# One job that has ended or is held, or nothing; $4 is the operation.
_HOLD_ENDED = f"""{OF_BATCH.strip()},
one as materialized (
  select f.* from fit f
  where (select true from outlast.bulk_item i where i.bulk_id = $4 and i.job_id = f.id and i.verdict is null)),
hld as materialized (
  select t.job_id from outlast.held t where t.job_id = any(array(select id from one)) for update skip locked),
fin as materialized (
  select t.job_id from outlast.finished t where t.job_id = any(array(select id from one)) for update skip locked)
select e.tenant, e.queue, e.name, e.state, (select count(*) from hld) as is_held from one e
where e.id = any(array(select job_id from hld union all select job_id from fin))"""  # noqa: S608  fragments of our own


class Took(NamedTuple):
    """One job that was taken: its row as a batch would have answered, and the jobs that ended, which is to be told."""

    row: Row
    ended: Sequence[UUID]
    wakes: tuple[Wake, ...]


class Apart(NamedTuple):
    """Which jobs of a batch are taken one by one, and how. `tells_first`: who waits for one is told before."""

    which: str
    take: Callable[[Database, Raw, JobId, Row], Awaitable[Took | None]]
    tells_first: bool = False


async def _cancel(db: Database, conn: Raw, job_id: JobId, bulk: Row) -> Took | None:
    held = await conn.fetchrow(db.in_schema(HOLD), [job_id], bulk["tenant"], bulk["states"], bulk["id"])
    if held is None:
        return None
    verdict, ended = await cancel_family(db, conn, job_id, reason=reason_of(bulk), tenant=bulk["tenant"])
    if verdict is None:
        return None
    return Took(_row(job_id, held, verdict.value), ended, (Wake.FINISHED, *REVOKES))


async def _delete(db: Database, conn: Raw, job_id: JobId, bulk: Row) -> Took | None:
    held = await conn.fetchrow(db.in_schema(_HOLD_ENDED), [job_id], bulk["tenant"], bulk["states"], bulk["id"])
    if held is None:
        return None
    ended = await cancel_children(db, conn, job_id) if held["is_held"] else []
    await conn.execute(db.in_schema(DELETE_ONE), job_id)
    return Took(_row(job_id, held, None), [job_id, *ended], (Wake.FINISHED, *(REVOKES if ended else ())))


def _row(job_id: JobId, held: Row, detail: str | None) -> Row:
    facts = {name: held[name] for name in ("tenant", "queue", "name", "state")}
    return {"job_id": job_id, "verdict": 0, "code": None, "detail": detail, **facts}


CANCEL_APART = Apart(CALLERS, _cancel)
DELETE_APART = Apart(WAITED_FOR, _delete, tells_first=True)
