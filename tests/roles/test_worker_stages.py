"""A body that stages jobs in a transaction of its own."""

from __future__ import annotations

from app.domain.outbox import Pass
from app.drivers.memory.driver import MemoryDriver
from app.jobs import JobContext, StagedJob, job
from tests.roles.harness import working


async def test_a_body_stages_in_its_transaction_and_its_failure_leaves_nothing() -> None:
    driver = MemoryDriver()
    staged: list[StagedJob] = []

    @job("orders.bill")
    def bill(order: int) -> None: ...

    @job("orders.close")
    async def close(ctx: JobContext, order: int, fails: bool = False) -> None:
        with driver.outbox.transaction() as session:
            staged.append(await bill.enqueue({"order": order}, session=session, parent_id=ctx.id))
            if fails:
                raise ValueError("no")

    async with working(close, driver=driver) as bench:
        good = await bench.enqueue("orders.close", {"order": 1})
        await bench.until("attempt.completed", good)
        bad = await bench.enqueue("orders.close", {"order": 2, "fails": True}, max_attempts=1)
        await bench.until("attempt.dead", bad)
        assert await driver.outbox.publish(10) == Pass(published=1)
        view = await bench.view(staged[0].id)
        assert (view.name, view.parent_id, view.payload) == ("orders.bill", good, '{"order":1}')
        assert await driver.describe(staged[1].id) is None
