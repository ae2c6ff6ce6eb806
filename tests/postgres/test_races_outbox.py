"""Races of relays with each other, with callers and with producers of the same keys."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from app.domain.outbox import RELAY_LEASE, OutboxId, Pass
from app.domain.outcome import Completed
from app.drivers.postgres.outbox import PostgresOutbox
from tests.postgres.arena import Arena, Seat
from tests.support.drivers import new_job
from tests.support.outbox import BATCH, PostgresOutboxEnv, ids, new_relay

pytestmark = pytest.mark.postgres


@pytest.fixture
async def outbox(arena: Arena) -> AsyncIterator[PostgresOutboxEnv]:
    outbox = PostgresOutboxEnv(arena)
    await arena.driver.cancel(await arena.enqueue(), reason="only its name is needed")
    yield outbox
    await outbox.engine.dispose()


def of(seat: Seat) -> PostgresOutbox:
    """Give the outbox on a seat's own connection."""
    return PostgresOutbox(seat.driver._db)  # type: ignore[attr-defined] # a seat's driver is PostgreSQL's


async def test_two_passes_share_the_outbox_without_waiting(arena: Arena, outbox: PostgresOutboxEnv) -> None:
    await outbox.staged()
    await outbox.staged()
    async with arena.holding() as first:
        assert (await of(first).publish(1)).published == 1
        assert (await arena.at_once(lambda seat: of(seat).publish(BATCH))).published == 1
        await first.commit()
    assert await outbox.publish() == Pass()


async def test_what_a_pass_that_rolled_back_had_is_published_by_the_next(
    arena: Arena, outbox: PostgresOutboxEnv
) -> None:
    staged = await outbox.staged(key="a")
    async with arena.holding() as first:
        assert (await of(first).publish(BATCH)).published == 1
        assert (await arena.at_once(lambda seat: of(seat).publish(BATCH))) == Pass()
        await first.rollback()
    assert await outbox.publish() == Pass(published=1)
    assert await outbox.is_there(staged)


async def test_a_pass_does_not_see_what_is_staged_before_its_commit(arena: Arena, outbox: PostgresOutboxEnv) -> None:
    early = new_job()
    async with outbox.transaction() as transaction:
        await outbox.store.stage(transaction, [early])
        late = await outbox.staged()
        assert (await arena.at_once(lambda seat: of(seat).publish(BATCH))).published == 1
        assert await outbox.is_there(late)
    assert await outbox.publish() == Pass(published=1)
    assert await outbox.is_there(early.id)


async def test_a_claim_passes_over_what_a_pass_publishes_and_the_other_way_round(
    arena: Arena, outbox: PostgresOutboxEnv
) -> None:
    first, second = await outbox.staged(), await outbox.staged()
    async with arena.holding() as publishing:
        assert (await of(publishing).publish(1)).published == 1
        claimed = await arena.at_once(lambda seat: of(seat).claim(new_relay(), BATCH))
        assert len(claimed.rows) == 1
        await publishing.commit()
    assert {*ids(claimed.rows)} < {first, second}
    async with arena.holding() as claiming:
        third = await outbox.staged()
        assert ids((await of(claiming).claim(new_relay(), BATCH)).rows) == [third]
        assert (await arena.at_once(lambda seat: of(seat).publish(BATCH))) == Pass()
        await claiming.commit()
    assert (await outbox.view()).claimed == 2


async def test_of_an_end_and_a_recovery_of_one_row_the_first_wins(arena: Arena, outbox: PostgresOutboxEnv) -> None:
    staged = OutboxId(await outbox.staged())
    relay = new_relay()
    await outbox.store.claim(relay, BATCH)
    await arena.advance(RELAY_LEASE)
    async with arena.holding() as ending:
        assert await of(ending).end(relay, [staged]) == 1
        assert await arena.at_once(lambda seat: of(seat).recover()) == 0
        await ending.rollback()
    async with arena.holding() as recovering:
        assert await of(recovering).recover() == 1
        late = await arena.start(lambda seat: of(seat).end(relay, [staged]))
        await late.is_blocked_by(recovering)
        await recovering.commit()
        assert await late.result() == 0
    assert (await outbox.view()).staged == 1


async def test_two_recoveries_stage_a_row_again_once(arena: Arena, outbox: PostgresOutboxEnv) -> None:
    await outbox.staged()
    await outbox.store.claim(new_relay(), BATCH)
    await arena.advance(RELAY_LEASE)
    async with arena.holding() as first:
        assert await of(first).recover() == 1
        assert await arena.at_once(lambda seat: of(seat).recover()) == 0
        await first.commit()


async def test_a_replay_passes_a_row_on_once(arena: Arena, outbox: PostgresOutboxEnv) -> None:
    staged = await outbox.staged(payload="{")
    await outbox.publish()
    async with arena.holding() as first:
        assert await of(first).replay() == 1
        second = await arena.start(lambda seat: of(seat).replay())
        await second.is_blocked_by(first)
        await first.commit()
        assert await second.result() == 0
    assert ids((await outbox.publish()).quarantined) == [staged]


async def test_a_pass_behind_an_enqueue_of_the_same_key_leads_to_its_job(
    arena: Arena, outbox: PostgresOutboxEnv
) -> None:
    staged = await outbox.staged(key="a")
    async with arena.holding() as enqueueing:
        holder = await enqueueing.enqueue(key="a")
        late = await arena.start(lambda seat: of(seat).publish(BATCH))
        await late.is_blocked_by(enqueueing)
        await enqueueing.commit()
        assert await late.result() == Pass(deduped=1)
    assert await outbox.store.forwarded(staged) == holder


async def test_a_pass_behind_an_enqueue_that_rolls_back_takes_the_key(arena: Arena, outbox: PostgresOutboxEnv) -> None:
    staged = await outbox.staged(key="a")
    async with arena.holding() as enqueueing:
        await enqueueing.enqueue(key="a")
        late = await arena.start(lambda seat: of(seat).publish(BATCH))
        await late.is_blocked_by(enqueueing)
        await enqueueing.rollback()
        assert await late.result() == Pass(published=1)
    assert await arena.key_holder("a") == staged


async def test_an_enqueue_behind_a_pass_finds_the_staged_job(arena: Arena, outbox: PostgresOutboxEnv) -> None:
    staged = await outbox.staged(key="a")
    async with arena.holding() as publishing:
        assert (await of(publishing).publish(BATCH)).published == 1
        late = await arena.start(lambda seat: seat.enqueue_again(key="a"))
        await late.is_blocked_by(publishing)
        await publishing.commit()
        answer = await late.result()
    assert (answer.id, answer.deduped) == (staged, True)


async def test_a_pass_beside_a_settle_that_frees_the_key_does_not_wait(arena: Arena, outbox: PostgresOutboxEnv) -> None:
    held = await arena.running(key="a")
    staged = await outbox.staged(key="a")
    async with arena.holding() as settling:
        await settling.close_attempt(held.token, Completed())
        assert (await arena.at_once(lambda seat: of(seat).publish(BATCH))) == Pass(deduped=1)
        await settling.commit()
    assert await outbox.store.forwarded(staged) == held.token.job_id


async def test_two_relays_that_publish_one_row_through_the_driver_make_one_job(
    arena: Arena, outbox: PostgresOutboxEnv
) -> None:
    staged = await outbox.staged(key="a")
    (row,) = (await outbox.store.claim(new_relay(), BATCH)).rows
    async with arena.holding() as first:
        assert not (await first.driver.enqueue(row.job)).deduped
        late = await arena.start(lambda seat: seat.driver.enqueue(row.job))
        await late.is_blocked_by(first)
        await first.commit()
        assert (await late.result()).id == staged
    assert len(await arena.fetch("select 1 from outlast.job where key = 'a'")) == 1
