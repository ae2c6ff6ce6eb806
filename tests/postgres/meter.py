"""What a verb costs, in figures without noise: statements sent, WAL bytes written, buffers touched; and rows in bulk.

Nothing here is a time. Statements are counted at the asyncpg connections, WAL at a server of the test's own, buffers
by the server's own account of one statement.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import event

from app.domain.job import ClaimedJob, WorkerId
from app.domain.outcome import Completed, Settlement
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.protocol import ClaimRequest, QueueShare
from tests.support.made import NAME, QUEUE, new_job, new_worker

PAYLOAD = '{"order": 123456789}'

# Tokens and their envelopes, as fresh jobs of one priority have them; a priority is a rank of its own.
_READY = f"""
with n as materialized (
  select gen_random_uuid() as id, nextval('outlast.token_seq') as seq from generate_series(1, $1)
  where (select pg_current_xact_id()) is not null),
j as (
  insert into outlast.job(id, seq, name_id, queue, priority, tenant, payload, max_attempts, max_crashes)
  select id, seq, $2, '{QUEUE}', $3, 'default', '{{}}', 3, 3 from n)
insert into outlast.ready(queue, rank, seq, job_id, name_id, moved) select '{QUEUE}', $3 * 2 + 1, seq, id, $2, false
from n"""
# Only the tokens of them: by the million, and never claimed.
_TOKENS = f"""
with b as (select setval('outlast.token_seq', nextval('outlast.token_seq') + $1::bigint) - $1::bigint as seq)
insert into outlast.ready(queue, rank, seq, job_id, name_id, since, moved)
select '{QUEUE}', 11, b.seq + i, '00000000-0000-7000-8000-000000000000', $2, null, false
from b cross join generate_series(1, $1) i"""
# Ids in the order of their jobs' ends, as version 7 has them, about.
_FINISHED = """
insert into outlast.finished(job_id, state, attempt, claim_no, crashes, interrupts)
select lpad(to_hex(i), 32, '0')::uuid, 0, 1, 1, 0, 0 from generate_series(1, $1) i"""
_WAITING = f"""
insert into outlast.waiting(job_id, due_at, queue, rank, name_id)
select gen_random_uuid(), outlast.clock() - $2::interval + i * interval '1 us', '{QUEUE}', 11, 1
from generate_series(1, $1) i"""
# With sequences nobody else has.
_RUNNING = f"""
insert into outlast.running(job_id, seq, worker, queue, rank, name_id)
select gen_random_uuid(), -i, $2, '{QUEUE}', 11, 1 from generate_series(1, $1) i"""


class Meter:
    """A driver whose statements are counted. Wake-ups are counted apart: they are sent beside the verbs."""

    def __init__(self, url: str) -> None:
        self.engine = create_engine(url, pool_size=1)  # which is warm after one of each
        event.listen(self.engine.sync_engine, "connect", self._watch)
        self.driver = PostgresDriver(self.engine, owns_engine=True)
        self.statements: list[str] = []
        self._rings: Any = None

    @property
    def verbs(self) -> list[str]:
        """Give the statements sent in the last `counting`, wake-ups left out.

        Each is a round trip: on a connection that knows them, prepared statements are only bound and executed.
        """
        return [sql for sql in self.statements if "pg_notify" not in sql]

    @asynccontextmanager
    async def counting(self) -> AsyncIterator[None]:
        """Count from nothing; wake-ups of what went before are let through first."""
        await self.quiet()
        self._watch_ringer()
        self.statements.clear()
        yield
        await asyncio.sleep(0)  # asyncpg tells of a statement in the loop's next round

    async def register(self, lease: timedelta = timedelta(minutes=10)) -> WorkerId:
        """Register a worker; nobody renews its lease."""
        return await self.driver.register_worker(new_worker(lease_ms=lease // timedelta(milliseconds=1)))

    async def enqueue(self, count: int, payload: str = PAYLOAD) -> None:
        """Enqueue jobs with a payload of 20 bytes, or another, in one batch."""
        await self.driver.enqueue_many([new_job(payload=payload) for _ in range(count)])

    async def claim(self, worker: WorkerId, room: int) -> tuple[ClaimedJob, ...]:
        """Claim what there is, at most `room`."""
        return await self.driver.claim(asks(worker, room))

    async def finish(self, claimed: tuple[ClaimedJob, ...]) -> None:
        """Settle claims as done, as a worker does."""
        await self.driver.settle([Settlement(one.token, Completed(), one.key is not None) for one in claimed])

    async def finish_and_claim(
        self, claimed: tuple[ClaimedJob, ...], worker: WorkerId, room: int
    ) -> tuple[ClaimedJob, ...]:
        """Settle claims as done and claim in the same statement."""
        done = [Settlement(token=one.token, outcome=Completed()) for one in claimed]
        return (await self.driver.settle_and_claim(done, asks(worker, room)))[1]

    async def quiet(self) -> None:
        """Let wake-ups under way be sent."""
        await self.driver._db.ringer.quiet()
        await asyncio.sleep(0)

    def _watch_ringer(self) -> None:
        ringing = self.driver._db.ringer._connection
        if ringing is not None and ringing is not self._rings:
            self._rings = ringing
            ringing.add_query_logger(self._saw)

    def _watch(self, connection: Any, _record: object) -> None:
        connection.driver_connection.add_query_logger(self._saw)

    def _saw(self, record: Any) -> None:
        self.statements.append(record.query)


@asynccontextmanager
async def metered(url: str) -> AsyncIterator[Meter]:
    """Open a counted driver."""
    meter = Meter(url)
    await meter.driver.open()
    try:
        yield meter
    finally:
        await meter.driver.close()


def asks(worker: WorkerId, room: int, *queues: str) -> ClaimRequest:
    """Give a claim on queues with that much room."""
    shares = tuple(QueueShare(queue=queue, room=room) for queue in queues or (QUEUE,))
    return ClaimRequest(worker_id=worker, shares=shares, names=frozenset({NAME}), room=room)


async def wal_position(connection: Any) -> int:
    """Give how many bytes of WAL the server has written so far."""
    return int(await connection.fetchval("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"))


async def pile_ready(connection: Any, rows: int, *, name_id: int, priority: int = 5) -> None:
    """Make jobs ready by the hundred thousand."""
    await connection.execute(_READY, rows, name_id, priority)


async def pile_tokens(connection: Any, rows: int, *, name_id: int) -> None:
    """Let a backlog be there by the million, behind what is ready: tokens of the usual priority without envelopes."""
    await connection.execute(_TOKENS, rows, name_id)


async def pile_waiting(connection: Any, rows: int, *, ago: timedelta = timedelta(minutes=1)) -> None:
    """Let delayed jobs have fallen due by the hundred thousand; only their tokens."""
    await connection.execute(_WAITING, rows, ago)


async def pile_running(connection: Any, rows: int, *, worker: WorkerId) -> None:
    """Let claims be held by the thousand; only their tokens, numbered from -1 down."""
    await connection.execute(_RUNNING, rows, worker)


async def pile_finished(connection: Any, rows: int) -> None:
    """Let jobs be done by the hundred thousand; only their tokens, as nothing hot reads more of them."""
    await connection.execute(_FINISHED, rows)


async def buffers(connection: Any, sql: str, binds: tuple[object, ...]) -> tuple[int, int]:
    """Run a statement and take it back; gives the pages it touched and the rows it gave."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        found = await connection.fetchval(f"explain (analyze, buffers, format json) {sql}", *binds)
    finally:
        await transaction.rollback()
    top = json.loads(found)[0]["Plan"]
    nodes = list(_nodes(top))
    # Parts that write and are read by nobody run after the rest, and are not in the whole's account.
    read = {node["CTE Name"] for node in nodes if "CTE Name" in node}
    apart = [n for n in nodes if n.get("Subplan Name", "").startswith("CTE ") and n["Subplan Name"][4:] not in read]
    pages = sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in (top, *apart))
    return int(pages), int(top["Actual Rows"])


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)
