"""`recode_copies`: the texts of a forked job and its run are given anew, bound to it as they were to the first.

Part of the fork's own transaction, after the copy. Only where a codec encrypts payloads.
"""

from __future__ import annotations

from ...domain.job import JobId
from ...domain.sealed import Recode
from ...domain.step import OWN_KINDS
from .database import Database, Raw
from .resolve import KIND_CODES

_PAYLOAD = "select payload from outlast.job where id = $1"
_SET_PAYLOAD = "update outlast.job set payload = $2 where id = $1"
_VALUES = """
select s.name, s.value from outlast.step s join outlast.job j on s.run_id = j.run_id
where j.id = $1 and s.value is not null and s.kind = any($2::smallint[])"""
_SET_VALUES = """
update outlast.step s set value = v.value from unnest($2::text[], $3::text[]) v(name, value), outlast.job j
where j.id = $1 and s.run_id = j.run_id and s.name = v.name"""


async def recode_copies(db: Database, conn: Raw, recode: Recode, *, was: JobId, now: JobId) -> None:
    """Give the texts of the new job `now` anew, which are those of `was`.

    Raises:
        PayloadUnreadable: one cannot be read.
    """
    payload = recode.payload(await conn.fetchval(db.in_schema(_PAYLOAD), now), was, now)
    await conn.execute(db.in_schema(_SET_PAYLOAD), now, payload)
    rows = await conn.fetch(db.in_schema(_VALUES), now, [KIND_CODES[kind] for kind in sorted(OWN_KINDS)])
    if rows:
        values = [recode.value(row["value"], was, now, row["name"]) for row in rows]
        await conn.execute(db.in_schema(_SET_VALUES), now, [row["name"] for row in rows], values)
