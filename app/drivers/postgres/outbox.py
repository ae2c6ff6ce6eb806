"""The outbox in PostgreSQL: one class that gives every verb its database, and rings for relays after a commit.

Owns the composition of the verbs and nothing else. Beside the jobs it shares their driver's database; over an engine
of its own it is the outbox of another one, whose relays publish through the driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncEngine

from ...domain.audit import AuditEntry
from ...domain.errors import SchemaOutdated
from ...domain.job import JobId, NewJob
from ...domain.outbox import Claimed, OutboxId, OutboxView, Pass, Refusal, RelayId, UnpublishedRow
from ..outbox import OutboxStore
from ..protocol import Wake
from . import outbox_claim, outbox_publish, outbox_stage, outbox_view
from .database import Database
from .look import look
from .notify import notify
from .outbox_looks import Looks
from .outbox_stage import Transaction
from .tables import DEFAULT_SCHEMA

_MIGRATE = "run `outlast migrate up --db` with the address of OUTLAST_OUTBOX_URL"


class PostgresOutbox:
    """An `OutboxStore` in PostgreSQL. What each verb does is said by the protocol.

    `rings`: the driver's database, over which relays are woken; it is the one the jobs are in.
    """

    def __init__(self, db: Database, *, rings: Database | None = None) -> None:
        self._db = db
        self._rings = rings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looks = Looks(time.monotonic)
        self._stage = outbox_stage.stage_statement(db.schema)
        self._owns_engine = False

    @classmethod
    def over(cls, engine: AsyncEngine, *, schema: str = DEFAULT_SCHEMA) -> PostgresOutbox:
        """Give the outbox of a database apart from the jobs'; closing it disposes of the engine."""
        outbox = cls(Database(engine, schema))
        outbox._owns_engine = True
        return outbox

    async def open(self) -> None:
        """Prove that the table is there.

        Raises:
            SchemaOutdated: it is not.
        """
        table = self._db.in_schema("outlast.outbox")
        async with self._db.raw() as conn:
            if not await conn.fetchval("select to_regclass($1) is not null", table):
                raise SchemaOutdated(f"there is no table {table}", fix=_MIGRATE)

    async def close(self) -> None:
        """Give the connections back, those of a database of its own; else they are the driver's."""
        if self._owns_engine:
            await self._db.close()
            await self._db.engine.dispose()

    def ring_on(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Ring for relays on this loop, whose driver is open; None: no more."""
        self._loop = loop

    async def stage(self, transaction: Transaction, jobs: Sequence[NewJob]) -> None:
        """Stage on the caller's connection."""
        await outbox_stage.stage(self._stage, transaction, jobs, self._ring)

    def stage_now(self, transaction: Transaction, jobs: Sequence[NewJob]) -> None:
        """Stage on the connection of a caller that does not await."""
        outbox_stage.stage_now(self._stage, transaction, jobs, self._ring)

    # --- relays

    async def publish(self, batch: int) -> Pass:
        """Publish into the jobs of this database."""
        return await outbox_publish.publish(self._db, self._looks, batch)

    async def claim(self, relay_id: RelayId, batch: int) -> Claimed:
        """Take rows for a lease."""
        return await outbox_claim.claim(self._db, self._looks, relay_id, batch)

    async def end(self, relay_id: RelayId, ids: Sequence[OutboxId]) -> int:
        """Let published rows go."""
        return await outbox_claim.end(self._db, relay_id, ids)

    async def quarantine(self, relay_id: RelayId, refusals: Sequence[Refusal]) -> int:
        """Put rows aside."""
        return await outbox_claim.quarantine(self._db, relay_id, refusals)

    async def defer(self, relay_id: RelayId, ids: Sequence[OutboxId]) -> int:
        """Let rows rest."""
        return await outbox_claim.defer(self._db, relay_id, ids)

    async def release(self, relay_id: RelayId) -> int:
        """Stage again what a relay has claimed."""
        return await outbox_claim.release(self._db, self._looks, relay_id)

    async def recover(self) -> int:
        """Stage again what a lease that has passed was on."""
        return await outbox_claim.recover(self._db, self._looks)

    # --- operators and readers

    async def view(self, limit: int = 50, *, tenant: str | None = None) -> OutboxView:
        """Give the outbox as it stands."""
        return await look(self._db, lambda db: outbox_view.view(db, limit, tenant=tenant))

    async def replay(
        self,
        ids: Sequence[OutboxId] | None = None,
        *,
        may_double: bool = False,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> int:
        """Stage quarantined rows again."""
        count = await outbox_view.replay(self._db, self._looks, ids, may_double=may_double, tenant=tenant, audit=audit)
        if count and self._rings is not None:
            await notify(self._rings, Wake.STAGED)
        return count

    async def forwarded(self, staged_id: JobId) -> JobId | None:
        """Give the job that stands for a staged id."""
        return await outbox_view.forwarded(self._db, staged_id)

    async def find(self, staged_id: JobId, *, tenant: str | None = None) -> UnpublishedRow | None:
        """Give the row that waits here."""
        return await outbox_view.find(self._db, staged_id, tenant=tenant)

    def _ring(self) -> None:
        """Wake relays after a caller's commit, on whatever thread that was. Never fails: polling finds the rows."""
        loop, rings = self._loop, self._rings
        if loop is not None and rings is not None:
            with contextlib.suppress(RuntimeError):  # the loop ended with its driver still open
                loop.call_soon_threadsafe(rings.ringer.ring, (Wake.STAGED,))


_: type[OutboxStore[Transaction]] = PostgresOutbox
