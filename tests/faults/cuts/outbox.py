"""Operations around the outbox: a caller's transaction, and the relay's passes in one database and from one to another.

A caller whose COMMIT is unknown looks whether its own row is there, and does the whole again if not. A relay does its
next pass, until nothing is staged.
"""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from app.domain.errors import DriverUnavailable
from app.domain.job import JobId, NewJob
from app.domain.outbox import OutboxId, Pass, Refusal
from app.drivers.postgres.outbox import PostgresOutbox
from app.outbox.passes import DriverPasses, Passes, SharedPasses
from tests.faults.cuts.bench import Bench
from tests.faults.cuts.cell import Operation
from tests.faults.outbox import check_outbox
from tests.support.drivers import new_id
from tests.support.outbox import new_relay
from tests.support.store import Store

_BATCH = 100
_SALE = text("insert into public.sale(id) values (:id)")


class Stage(Operation):
    """A sale and the job that is about it, in the caller's transaction."""

    name = "stage in a caller's transaction"
    errors = (DriverUnavailable, SQLAlchemyError, OSError, TimeoutError)
    number: ClassVar[int] = 1

    async def arrange(self) -> None:
        self.sale = new_id()
        self.outbox = self.bench.outbox()
        self.jobs = [self.new() for _ in range(self.number)]

    async def call(self) -> Any:
        async with AsyncSession(self.bench.caller) as session, session.begin():
            await session.execute(_SALE, {"id": self.sale})
            await self.outbox.stage(session, self.jobs)

    async def again(self) -> Any:
        """Look, and repeat the transaction with jobs of new ids, as a caller does that runs the same code again."""
        if await self.fetch("select id from public.sale"):
            return
        self.jobs = [self.new() for _ in range(self.number)]
        await self.call()

    async def check(self, answer: Any) -> None:
        staged = {row["id"] for row in await self.fetch("select id from outlast.outbox")}
        assert staged == {job.id for job in self.jobs}, "the sale and its jobs are not the same transaction"
        await self.bench.straight.driver.outbox.publish(_BATCH)
        assert await self.bench.ids() == staged
        self.acked |= {JobId(one) for one in staged}


class StageSeveral(Stage):
    name = "stage several in a caller's transaction"
    number = 3


class Relayed(Operation):
    """Rows of an outbox and a relay for them."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.rows: list[NewJob] = []
        self.relay = new_relay()

    def place(self) -> Store:
        """Give the database of the outbox."""
        return self.bench.straight

    def passes(self) -> Passes:
        """Give one relay's passes."""
        return SharedPasses(self.bench.outbox())

    async def arrange(self) -> None:
        await self.name_known()
        await self.stage()
        self.one = self.passes()

    async def stage(self) -> None:
        await self.put(self.new(), self.new(key="free"))

    async def put(self, *jobs: NewJob) -> None:
        """Stage and commit, straight."""
        outbox = PostgresOutbox(self.place().driver._db)
        engine = self.place().driver._db.engine.execution_options(isolation_level="READ COMMITTED")
        async with engine.begin() as connection:
            await outbox.stage(connection, jobs)
        self.rows += jobs

    async def call(self) -> Any:
        return await self.one.once(_BATCH)

    async def again(self) -> Any:
        """Do pass after pass until there is nothing to do."""
        while (await self.one.once(_BATCH)) != Pass():
            pass

    async def check(self, answer: Any) -> None:
        quarantined = {row["id"] for row in await self.place().fetch("select id from outlast.outbox where state = 2")}
        assert quarantined == self.refused()
        published = {job.id for job in self.rows} - quarantined
        async with self.bench.straight.driver._db.raw() as conn:
            await check_outbox(conn, published, ())
        self.acked |= {JobId(one) for one in published & await self.bench.ids()}

    def refused(self) -> set[UUID]:
        """Give the rows that nobody may publish."""
        return set()


class MixedRows:
    """A plain row, a delayed one, two of one key, one whose key is held, and one whose key is another payload's."""

    async def stage(self: Any) -> None:
        await self.enqueued(key="held", fingerprint=1)
        await self.put(
            self.new(),
            self.new(key="twice"),
            self.new(key="twice"),
            self.new(key="held", fingerprint=1),
            self.new(key="held", fingerprint=2),
        )

    def refused(self: Any) -> set[UUID]:
        return {self.rows[-1].id}


class RelayShared(Relayed):
    name = "relay pass in one database"


class RelaySharedMixed(MixedRows, Relayed):
    name = "relay pass in one database, every kind of row"


class RelayApart(Relayed):
    name = "relay pass between two databases"

    def place(self) -> Store:
        return self.bench.apart

    def passes(self) -> Passes:
        return DriverPasses(self.bench.outbox_apart(), self.driver, self.relay)


class RelayApartPlain(RelayApart):
    name = "relay pass between two databases, no keys"

    async def stage(self) -> None:
        await self.put(self.new(), self.new())


class RelayApartMixed(MixedRows, RelayApart):
    name = "relay pass between two databases, every kind of row"


class Ending(RelayApart):
    """Rows that a relay has claimed and published."""

    name = "relay: mark published"
    is_published: ClassVar[bool] = True

    async def arrange(self) -> None:
        await self.stage()
        straight = PostgresOutbox(self.bench.apart.driver._db)
        claimed = await straight.claim(self.relay, _BATCH)
        if self.is_published:
            await self.straight.enqueue_many([row.job for row in claimed.rows])
        self.product = self.bench.outbox_apart()

    async def call(self) -> Any:
        return await self.product.end(self.relay, [OutboxId(job.id) for job in self.rows])

    async def again(self) -> Any:
        return await self.call()

    async def check(self, answer: Any) -> None:
        assert answer == (0 if self.is_cut and self.is_stored else 2)
        await super().check(answer)


class Quarantine(Ending):
    name = "relay: quarantine"
    is_published = False

    async def call(self) -> Any:
        refusals = [
            Refusal(id=OutboxId(job.id), name=job.name, code="PAYLOAD_INVALID", message="no") for job in self.rows
        ]
        return await self.product.quarantine(self.relay, refusals)

    def refused(self) -> set[UUID]:
        return {job.id for job in self.rows}


class ReleaseRows(Ending):
    """What it has claimed is staged again; what was published already is not published twice."""

    name = "relay: release"

    async def call(self) -> Any:
        return await self.product.release(self.relay)

    async def check(self, answer: Any) -> None:
        await Relayed.again(self)
        await super().check(answer)

    async def arrange(self) -> None:
        await super().arrange()
        self.one = self.passes()


class Defer(ReleaseRows):
    """Rows whose queue is full rest, and are published once they have."""

    name = "relay: defer"
    is_published = False

    async def call(self) -> Any:
        return await self.product.defer(self.relay, [OutboxId(job.id) for job in self.rows])

    async def check(self, answer: Any) -> None:
        view = await self.product.view()
        assert (view.deferred, view.claimed) == (2, 0)
        assert [row["claims"] for row in await self.bench.apart.fetch("select claims from outlast.outbox")] == [0, 0]
        await self.bench.apart.fetch("update outlast.outbox set lease_until = outlast.clock() - interval '1 s'")
        assert await self.product.recover() == 0, "of these nothing is in doubt"
        await super().check(answer)


class Recover(ReleaseRows):
    """The relay that had claimed them is gone."""

    name = "relay: recover"

    async def arrange(self) -> None:
        await super().arrange()
        await self.bench.apart.fetch("update outlast.outbox set lease_until = outlast.clock() - interval '1 s'")

    async def call(self) -> Any:
        return await self.product.recover()


class Replay(Ending):
    """An operator stages quarantined rows again; of those that are jobs already none is made twice."""

    name = "outbox: replay"

    async def arrange(self) -> None:
        await super().arrange()
        refusals = [
            Refusal(id=OutboxId(job.id), name=job.name, code="PAYLOAD_INVALID", message="no") for job in self.rows
        ]
        await PostgresOutbox(self.bench.apart.driver._db).quarantine(self.relay, refusals)
        self.one = self.passes()

    async def call(self) -> Any:
        return await self.product.replay()

    async def check(self, answer: Any) -> None:
        await Relayed.again(self)
        await super().check(answer)


STAGING: tuple[type[Operation], ...] = (Stage, StageSeveral)
SHARED: tuple[type[Operation], ...] = (RelayShared, RelaySharedMixed)
APART: tuple[type[Operation], ...] = (
    RelayApart,
    RelayApartPlain,
    RelayApartMixed,
    Ending,
    Quarantine,
    ReleaseRows,
    Defer,
    Recover,
    Replay,
)
