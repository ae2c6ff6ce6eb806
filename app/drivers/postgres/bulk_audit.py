"""The audit of a bulk operation: a row for each job that was acted on, in the commit of its batch.

Beside the row of the operation itself, so that what was done to one job is found by its id alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ...domain.audit import DONE, Target
from ...domain.bulk import AUDITED_AS, BulkAction
from .database import Database, Raw, Row

_KEEP = f"""
insert into outlast.audit(id, actor, tenant, action, target_kind, target, reason, outcome, details)
select gen_random_uuid(), $1, a.tenant, $2, '{Target.JOB}', a.target, $3, a.outcome, a.details
from unnest($4::text[], $5::text[], $6::text[], $7::text[]) a(target, tenant, outcome, details)"""  # noqa: S608  a word of our own


async def keep_done(db: Database, conn: Raw, bulk: Row, found: Sequence[Row]) -> None:
    """Keep a row for each job that the action was done to, in the transaction at hand."""
    done = [row for row in found if row["verdict"] == 0]
    if not done:
        return
    await conn.execute(
        db.in_schema(_KEEP),
        *(bulk["made_by"], AUDITED_AS[BulkAction(bulk["action"])], bulk["reason"]),
        [str(row["job_id"]) for row in done],
        [row["tenant"] for row in done],
        [row["detail"] or DONE for row in done],
        [_details(bulk, row) for row in done],
    )


def _details(bulk: Row, row: Row) -> str:
    was = {"name": row["name"], "queue": row["queue"], "state": row["state"]}
    return json.dumps({"bulk_id": str(bulk["id"]), **was}, ensure_ascii=True)
