"""Claims of relays: for a lease, fenced on the claimant."""

from __future__ import annotations

from datetime import timedelta

from app.domain.outbox import RELAY_LEASE, OutboxId, Pass, Refusal
from tests.support.outbox import BATCH, Outbox, ids, new_relay


def refusal(row_id: OutboxId) -> Refusal:
    return Refusal(id=row_id, name="demo.job", code="PAYLOAD_INVALID", message="no")


async def test_a_claimed_row_is_nobody_elses_until_its_lease_is_over(outbox: Outbox) -> None:
    staged = await outbox.staged()
    first, second = new_relay(), new_relay()
    assert ids((await outbox.store.claim(first, BATCH)).rows) == [staged]
    assert (await outbox.store.claim(second, BATCH)).rows == ()
    assert (await outbox.store.claim(first, BATCH)).rows == ()
    await outbox.env.advance(RELAY_LEASE)
    assert await outbox.store.recover() == 1
    assert await outbox.store.recover() == 0
    assert ids((await outbox.store.claim(second, BATCH)).rows) == [staged]


async def test_a_claim_takes_at_most_the_batch_and_gives_the_job_with_its_source(outbox: Outbox) -> None:
    first = await outbox.staged(key="a")
    await outbox.env.advance(RELAY_LEASE)
    await outbox.staged()
    (row,) = (await outbox.store.claim(new_relay(), 1)).rows
    assert (row.job.id, row.job.source_id, row.job.key, row.is_stale) == (first, first, "a", False)
    assert row.staged_at == outbox.env.now() - RELAY_LEASE


async def test_end_release_and_quarantine_are_the_claimants_alone(outbox: Outbox) -> None:
    staged = OutboxId(await outbox.staged())
    lost, present = new_relay(), new_relay()
    await outbox.store.claim(lost, BATCH)
    await outbox.env.advance(RELAY_LEASE)
    await outbox.store.recover()
    await outbox.store.claim(present, BATCH)
    assert await outbox.store.end(lost, [staged]) == 0
    assert await outbox.store.quarantine(lost, [refusal(staged)]) == 0
    assert await outbox.store.release(lost) == 0
    view = await outbox.view()
    assert (view.staged, view.claimed, view.quarantined) == (0, 1, 0)
    assert await outbox.store.quarantine(present, [refusal(staged)]) == 1
    assert await outbox.quarantined() == [(staged, "PAYLOAD_INVALID")]
    assert await outbox.store.end(present, [staged]) == 0


async def test_a_row_that_was_recovered_and_not_claimed_again_is_not_ended_by_who_had_it(outbox: Outbox) -> None:
    staged = OutboxId(await outbox.staged())
    lost = new_relay()
    await outbox.store.claim(lost, BATCH)
    await outbox.env.advance(RELAY_LEASE)
    await outbox.store.recover()
    assert await outbox.store.end(lost, [staged]) == 0
    assert await outbox.store.quarantine(lost, [refusal(staged)]) == 0
    assert await outbox.publish() == Pass(published=1)


async def test_a_release_hands_back_everything_at_once(outbox: Outbox) -> None:
    staged = [await outbox.staged() for _ in range(3)]
    relay = new_relay()
    await outbox.store.claim(relay, 2)
    assert await outbox.store.release(relay) == 2
    assert sorted(ids((await outbox.store.claim(new_relay(), BATCH)).rows)) == sorted(staged)


async def test_a_release_hands_back_what_a_look_has_passed(outbox: Outbox) -> None:
    staged, relay = [await outbox.staged() for _ in range(3)], new_relay()
    assert len((await outbox.store.claim(relay, BATCH)).rows) == 3
    assert (await outbox.store.claim(relay, BATCH)).rows == ()
    assert await outbox.store.release(relay) == 3
    assert sorted(ids((await outbox.store.claim(relay, BATCH)).rows)) == sorted(staged)


async def test_rows_rest_for_their_claimant_alone(outbox: Outbox) -> None:
    staged = OutboxId(await outbox.staged())
    lost, present = new_relay(), new_relay()
    await outbox.store.claim(lost, BATCH)
    await outbox.env.advance(RELAY_LEASE)
    await outbox.store.recover()
    await outbox.store.claim(present, BATCH)
    assert await outbox.store.defer(lost, [staged]) == 0
    assert await outbox.store.defer(present, [staged]) == 1
    assert (await outbox.view()).deferred == 1


async def test_a_row_that_rested_was_never_published_however_old_it_is(outbox: Outbox) -> None:
    staged, relay = OutboxId(await outbox.staged()), new_relay()
    await outbox.store.claim(relay, BATCH)
    assert await outbox.store.defer(relay, [staged]) == 1
    await outbox.env.advance(timedelta(days=91))
    await outbox.store.recover()
    (row,) = (await outbox.store.claim(relay, BATCH)).rows
    assert (row.id, row.is_stale) == (staged, False)


async def test_ended_rows_are_gone(outbox: Outbox) -> None:
    staged = OutboxId(await outbox.staged())
    relay = new_relay()
    await outbox.store.claim(relay, BATCH)
    assert await outbox.store.end(relay, [staged]) == 1
    assert await outbox.store.end(relay, [staged]) == 0
    assert (await outbox.view()).oldest_at is None


async def test_quarantined_rows_are_listed_newest_first_and_bounded(outbox: Outbox) -> None:
    relay = new_relay()
    staged = [OutboxId(await outbox.staged()) for _ in range(3)]
    await outbox.store.claim(relay, BATCH)
    for row_id in staged:
        await outbox.store.quarantine(relay, [refusal(row_id)])
        await outbox.env.advance(RELAY_LEASE / 10)
    view = await outbox.store.view(2)
    assert (ids(view.items), view.quarantined) == ([staged[2], staged[1]], 3)
