"""The heartbeat's verbs on a connection of their own, outside the engine.

A pool that is busy or a loop that is blocked must not cost a lease, hence a connection that belongs to the heartbeat
thread's loop alone. Opens it when needed and again after it broke. Holds no timer: when to renew is the caller's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from ...domain.drain import LAST_PHASE, DrainReport
from ...domain.job import ClaimToken, WorkerId
from ...domain.outcome import SettleAnswer
from ...domain.snapshot import Renewal, Revocation
from .connect import connect
from .database import Database, Row
from .drains import REPORT, TRIM, report_binds
from .sqlstate import Contended, translate
from .superseded import SUPERSEDED_BY

# Shorter than half a lease, after which a worker without a landed renewal stops claiming.
COMMAND_TIMEOUT = timedelta(seconds=5)

# The row without a number says whether the lease was extended; the others are claims that are gone.
_RENEW = f"""
with me as (
  update outlast.worker set lease_until = outlast.clock() + lease_ms * interval '1 ms', renewed_at = outlast.clock()
  where id = $1 and lost_at is null and closed_at is null and lease_until > outlast.clock()
  returning drain_asked_by)
select null::int as place, exists (select from me) as held, null as by,
  case when exists (select from me) then (select drain_asked_by from me)
    else (select drain_asked_by from outlast.worker where id = $1) end as asked_by
union all
select t.place, null, {SUPERSEDED_BY}, null from unnest($2::uuid[], $3::bigint[]) with ordinality t(id, seq, place)
where (select r.seq from outlast.running r where r.job_id = t.id and (r.worker = $1) is true) is distinct from t.seq
order by place nulls first
"""  # noqa: S608  fragments of our own

# Worker before claims, claims by id, as everywhere: a settle may hold some of them just then. The lease ends after
# the time given, later or sooner than it would have. The phase is shown here too: a blocked loop shows none.
_ABANDON = f"""
with me as (
  update outlast.worker set lease_until = outlast.clock() + $5::interval, drain_phase = '{LAST_PHASE}'
  where id = $1 and lost_at is null and closed_at is null and lease_until > outlast.clock() returning id),
own as materialized (
  select r.job_id from outlast.running r, unnest($2::uuid[], $3::bigint[], $4::int[]) t(id, seq, claim_no), me
  where r.job_id = t.id and r.seq = t.seq and r.claim_no = t.claim_no and r.worker = me.id
  order by r.job_id for update of r)
update outlast.running r set abandoned = true where r.job_id = any(array(select job_id from own)) returning r.job_id
"""  # noqa: S608  a word of our own


class PostgresHeartbeat:
    """Renews and abandons for one worker process; see the protocol."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._connection: Any = None

    async def renew(self, worker_id: WorkerId, held: Sequence[ClaimToken]) -> Renewal:
        """Extend the lease by its own length unless it has passed; say which claims in `held` are gone."""
        ids, fences = [token.job_id for token in held], [token.fence for token in held]
        header, *gone = await self._fetch(_RENEW, worker_id, ids, fences)
        revoked = tuple(Revocation(token=held[row["place"] - 1], by=SettleAnswer(row["by"])) for row in gone)
        return Renewal(is_held=header["held"], revoked=revoked, drain_asked_by=header["asked_by"])

    async def abandon(self, worker_id: WorkerId, tokens: Sequence[ClaimToken], lease: timedelta) -> int:
        """Mark claims as abandoned and let the lease end after `lease`; gives how many were marked."""
        own = [token for token in tokens if token.worker_id == worker_id]
        claims = ([token.job_id for token in own], [token.fence for token in own], [token.claim_no for token in own])
        try:
            return len(await self._fetch(_ABANDON, worker_id, *claims, lease))
        except Contended:
            # Rolled back whole by a deadlock; there is no later chance to mark them.
            return len(await self._fetch(_ABANDON, worker_id, *claims, lease))

    async def report_drain(self, report: DrainReport) -> None:
        """Keep what became of a drained worker's runs, and the newest reports of all."""
        await self._fetch(REPORT, *report_binds(report))
        await self._fetch(TRIM)

    async def close(self) -> None:
        """End the connection; one that does not answer is cut."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            await connection.close(timeout=1)
        except Exception:  # noqa: BLE001  the lease is what counts, and it is the store's to judge
            connection.terminate()

    async def _fetch(self, sql: str, *binds: object) -> list[Row]:
        """Run a statement; after any failure the connection is cut and the next call opens another."""
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await connect(
                    self._db.url, application_name="outlast heartbeat", command_timeout=COMMAND_TIMEOUT
                )
            rows: list[Row] = await self._connection.fetch(self._db.in_schema(sql), *binds)
            return rows
        except BaseException as error:
            # Cancelled in mid-statement included: what the server still does on this connection is unknown.
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.terminate()
            known = translate(error)
            if known is None:
                raise
            raise known from error


@asynccontextmanager
async def open_heartbeat(db: Database) -> AsyncIterator[PostgresHeartbeat]:
    """Give the heartbeat's verbs on the running loop of the calling thread; connects at the first call."""
    heartbeat = PostgresHeartbeat(db)
    try:
        yield heartbeat
    finally:
        await heartbeat.close()
