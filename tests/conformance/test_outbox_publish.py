"""Publishing, both ways: in one transaction beside the jobs, and through the driver under a lease."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from app.domain.job import DEFAULT_TENANT
from app.domain.outbox import RELAY_LEASE, SOURCE_KEPT, STALE, OutboxId, Pass, UnpublishedRow
from app.domain.outcome import Completed
from app.domain.state import State
from app.drivers.protocol import PurgeQuery, Wake
from app.drivers.reading import ListQuery
from app.outbox.passes import Passes
from tests.support.drivers import new_job
from tests.support.outbox import BATCH, Outbox, ids, new_relay, passes_of

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


async def finish(outbox: Outbox) -> None:
    """Run what is ready to done, and purge it."""
    worker = await outbox.env.register()
    for job in await outbox.env.claim(worker, room=BATCH):
        await outbox.env.close_attempt(job.token, Completed())


async def purge(outbox: Outbox, older_than: timedelta = timedelta()) -> int:
    return await outbox.env.driver.purge(PurgeQuery(state=State.DONE, older_than=older_than))


async def test_the_longest_staged_go_first_and_a_full_pass_says_so(outbox: Outbox, passes: Passes) -> None:
    staged = []
    for _ in range(5):
        staged.append(await outbox.staged())
        await outbox.env.advance(timedelta(milliseconds=10))
    assert await passes.once(3) == Pass(published=3, is_full=True)
    assert [await outbox.is_there(job_id) for job_id in staged] == [True, True, True, False, False]
    assert await passes.once(3) == Pass(published=2)
    assert await passes.once(3) == Pass()


async def test_a_key_that_is_live_on_publish_leads_to_its_job(outbox: Outbox, passes: Passes) -> None:
    holder = await outbox.env.enqueue(key="order:1")
    staged = await outbox.staged(key="order:1", on_conflict="error")
    assert await passes.once(BATCH) == Pass(deduped=1)
    assert await outbox.store.forwarded(staged) == holder
    assert not await outbox.is_there(staged)
    assert await outbox.store.find(staged) is None


async def test_a_staged_id_leads_to_its_job_when_that_is_done_and_the_key_is_free_again(
    outbox: Outbox, passes: Passes
) -> None:
    holder = await outbox.env.enqueue(key="order:1")
    staged = await outbox.staged(key="order:1")
    assert await passes.once(BATCH) == Pass(deduped=1)
    await finish(outbox)
    other = await outbox.env.enqueue(key="order:1")
    assert other != holder
    assert await outbox.store.forwarded(staged) == holder


async def test_a_published_row_leads_to_itself_and_an_unknown_id_nowhere(outbox: Outbox, passes: Passes) -> None:
    staged = await outbox.staged()
    assert await outbox.store.forwarded(staged) is None
    await passes.once(BATCH)
    assert await outbox.store.forwarded(staged) == staged
    assert await outbox.store.forwarded(new_job().id) is None


async def test_of_rows_with_one_key_in_a_batch_one_becomes_the_job(outbox: Outbox, passes: Passes) -> None:
    staged = [await outbox.staged(key="order:1") for _ in range(4)]
    assert await passes.once(BATCH) == Pass(published=1, deduped=3)
    there = [job_id for job_id in staged if await outbox.is_there(job_id)]
    assert len(there) == 1
    assert {await outbox.store.forwarded(job_id) for job_id in staged} == set(there)


async def test_of_rows_with_one_key_and_several_payloads_those_with_the_holders_lead_to_it(
    outbox: Outbox, passes: Passes
) -> None:
    holder = await outbox.env.enqueue(key="order:1", fingerprint=2)
    staged = []
    for fingerprint in (1, 2, 1, 2, 3):
        staged.append(await outbox.staged(key="order:1", fingerprint=fingerprint))
        await outbox.env.advance(timedelta(milliseconds=1))
    done = await passes.once(BATCH)
    assert (done.published, done.deduped) == (0, 2)
    assert sorted(ids(done.quarantined)) == sorted(staged[at] for at in (0, 2, 4))
    assert [await outbox.store.forwarded(staged[at]) for at in (1, 3)] == [holder, holder]


async def test_a_key_that_is_free_on_publish_is_taken(outbox: Outbox, passes: Passes) -> None:
    staged = await outbox.staged(key="order:1", dedupe_for=HOUR)
    await passes.once(BATCH)
    again = await outbox.env.enqueue_again(key="order:1")
    assert (again.id, again.deduped) == (staged, True)
    assert (await outbox.env.describe(staged)).key_expires_at == outbox.env.now() + HOUR


async def test_another_payload_under_a_live_key_is_quarantined_and_blocks_nobody(
    outbox: Outbox, passes: Passes
) -> None:
    holder = await outbox.env.enqueue(key="order:1", fingerprint=1)
    before, wrong, after = [
        await outbox.staged(**fields) for fields in ({}, {"key": "order:1", "fingerprint": 2}, {"key": "order:2"})
    ]
    done = await passes.once(BATCH)
    assert (done.published, done.deduped, ids(done.quarantined)) == (2, 0, [wrong])
    assert [await outbox.is_there(job_id) for job_id in (before, wrong, after)] == [True, False, True]
    view = await outbox.view()
    assert (view.staged, view.claimed, view.quarantined, view.lag) == (0, 0, 1, timedelta())
    (item,) = view.items
    assert (item.id, item.code, item.quarantined_at) == (
        OutboxId(wrong),
        "IDEMPOTENCY_MISMATCH",
        outbox.env.now(),
    )
    assert str(holder) in item.message
    row = await outbox.store.find(wrong)
    assert row == UnpublishedRow(tenant=DEFAULT_TENANT, refusal=done.quarantined[0])
    assert await passes.once(BATCH) == Pass()


async def test_a_quarantined_row_is_published_when_it_is_replayed_after_the_repair(
    outbox: Outbox, passes: Passes
) -> None:
    await outbox.env.enqueue(key="order:1", fingerprint=1)
    wrong = await outbox.staged(key="order:1", fingerprint=2)
    await passes.once(BATCH)
    assert await outbox.store.replay([OutboxId(wrong)]) == 1
    assert ids((await passes.once(BATCH)).quarantined) == [wrong]
    await finish(outbox)
    assert await outbox.store.replay() == 1
    assert await passes.once(BATCH) == Pass(published=1)
    assert await outbox.is_there(wrong)


async def test_a_replayed_row_is_as_old_as_it_was(outbox: Outbox, passes: Passes) -> None:
    """Its delay counts from when it was staged, and so does what is said of how far the relay is behind."""
    await outbox.env.enqueue(key="order:1", fingerprint=1)
    staged_at = outbox.env.now()
    wrong = await outbox.staged(key="order:1", fingerprint=2, delay=timedelta(hours=1))
    await passes.once(BATCH)
    await finish(outbox)
    await outbox.env.advance(timedelta(hours=2))
    assert await outbox.store.replay() == 1
    assert (await outbox.view()).lag == timedelta(hours=2)
    assert await passes.once(BATCH) == Pass(published=1)
    job = await outbox.env.describe(wrong)
    assert (job.state, job.run_at) == (State.READY, staged_at + timedelta(hours=1))


async def test_a_replay_leaves_alone_what_is_not_quarantined(outbox: Outbox) -> None:
    staged = await outbox.staged()
    assert await outbox.store.replay([OutboxId(staged), OutboxId(new_job().id)]) == 0
    assert await outbox.store.replay() == 0


async def test_a_replay_of_one_tenant_leaves_alone_the_rows_of_others(outbox: Outbox, passes: Passes) -> None:
    mine, other = [await outbox.written("{", tenant=tenant) for tenant in ("mine", "other")]
    await passes.once(BATCH)
    assert await outbox.store.replay([OutboxId(other)], tenant="mine") == 0
    assert await outbox.store.replay([OutboxId(other)], may_double=True, tenant="mine") == 0
    assert await outbox.store.replay(tenant="mine") == 1
    assert [row_id for row_id, _ in await outbox.quarantined()] == [other]
    assert await outbox.store.replay([OutboxId(mine), OutboxId(other)], tenant="other") == 1
    assert await outbox.quarantined() == []


async def test_a_payload_that_is_no_json_is_quarantined(outbox: Outbox, passes: Passes) -> None:
    wrong = [await outbox.written(payload) for payload in ("{", '{"a": 1, "a": 2}')]
    right = await outbox.staged()
    done = await passes.once(BATCH)
    assert (done.published, ids(done.quarantined)) == (1, wrong)
    assert {refusal.code for refusal in done.quarantined} == {"JSON_INVALID"}
    assert await outbox.is_there(right)


async def test_rows_of_a_lost_relay_are_published_once_its_lease_is_over(outbox: Outbox, passes: Passes) -> None:
    staged = await outbox.staged()
    assert ids((await outbox.store.claim(new_relay(), BATCH)).rows) == [staged]
    assert await outbox.store.recover() == 0
    assert await passes.once(BATCH) == Pass()
    await outbox.env.advance(RELAY_LEASE)
    assert await outbox.store.recover() == 1
    assert await passes.once(BATCH) == Pass(published=1)


async def test_a_row_whose_relay_was_lost_after_publishing_makes_no_second_job(outbox: Outbox, passes: Passes) -> None:
    staged = await outbox.staged()
    (row,) = (await outbox.store.claim(new_relay(), BATCH)).rows
    await outbox.env.driver.enqueue(row.job)  # and there it was lost
    await outbox.env.advance(RELAY_LEASE)
    await outbox.store.recover()
    assert await passes.once(BATCH) == Pass(published=1)
    assert len((await outbox.env.driver.list(_all())).items) == 1
    assert await outbox.is_there(staged)


async def test_nor_when_the_first_is_done_and_purged(outbox: Outbox, passes: Passes) -> None:
    staged = await outbox.staged(key="order:1")
    (row,) = (await outbox.store.claim(new_relay(), BATCH)).rows
    await outbox.env.driver.enqueue(row.job)
    await finish(outbox)
    await outbox.env.advance(7 * DAY)
    assert await purge(outbox) == 1
    await outbox.store.recover()
    assert await passes.once(BATCH) == Pass(published=1)
    assert (await outbox.env.driver.list(_all())).items == ()
    assert await outbox.store.find(staged) is None


async def test_a_row_that_was_claimed_and_is_older_than_sources_are_kept_is_never_published(
    outbox: Outbox, passes: Passes
) -> None:
    staged = await outbox.staged()
    relay = new_relay()
    await outbox.store.claim(relay, BATCH)
    assert await outbox.store.release(relay) == 1
    await outbox.env.advance(SOURCE_KEPT + timedelta(seconds=1))
    done = await passes.once(BATCH)
    assert (done.published, ids(done.quarantined)) == (0, [staged])
    assert not await outbox.is_there(staged)
    assert await outbox.quarantined() == [(OutboxId(staged), None)]
    assert (await outbox.view()).items[0].message == STALE
    assert await outbox.store.replay() == 0
    assert await outbox.store.replay(may_double=True) == 0
    assert await outbox.store.replay([OutboxId(staged)]) == 0
    assert await outbox.store.replay([OutboxId(staged)], may_double=True) == 1
    assert await passes.once(BATCH) == Pass(published=1)


async def test_a_row_that_was_never_claimed_is_published_however_old_it_is(outbox: Outbox, passes: Passes) -> None:
    staged = await outbox.staged()
    await outbox.env.advance(2 * SOURCE_KEPT)
    assert await purge(outbox) == 0
    assert await passes.once(BATCH) == Pass(published=1)
    assert await outbox.is_there(staged)


async def test_a_published_row_is_remembered_longer_than_rows_may_be_published_again(
    outbox: Outbox, passes: Passes
) -> None:
    staged = await outbox.staged()
    await passes.once(BATCH)
    await finish(outbox)
    await outbox.env.advance(SOURCE_KEPT + timedelta(seconds=1))
    await purge(outbox)
    assert await outbox.store.forwarded(staged) == staged
    await outbox.env.advance(DAY)
    await purge(outbox)
    assert await outbox.store.forwarded(staged) is None


@pytest.mark.parametrize(("fields", "wake"), [({}, Wake.READY), ({"delay": HOUR}, Wake.DELAYED)])
async def test_publishing_wakes_who_waits_for_jobs(
    outbox: Outbox, passes: Passes, fields: dict[str, Any], wake: Wake
) -> None:
    heard = asyncio.Event()
    async with outbox.env.driver.listen(lambda each: heard.set() if each is wake else None):
        await outbox.staged(**fields)
        await passes.once(BATCH)
        async with asyncio.timeout(10):
            await heard.wait()


async def test_the_lag_is_the_age_of_the_oldest_row_that_is_not_published(outbox: Outbox, passes: Passes) -> None:
    assert (await outbox.view()).lag == timedelta()
    first = outbox.env.now()
    await outbox.staged()
    await outbox.env.advance(HOUR)
    await outbox.staged()
    view = await outbox.view()
    assert (view.staged, view.claimed, view.lag, view.oldest_at) == (2, 0, HOUR, first)
    await outbox.store.claim(new_relay(), 1)
    await outbox.env.advance(RELAY_LEASE / 2)
    view = await outbox.view()
    assert (view.staged, view.claimed, view.lag, view.oldest_at) == (1, 1, HOUR + RELAY_LEASE / 2, first)
    await passes.once(BATCH)
    assert (await outbox.view()).oldest_at == first
    await outbox.env.advance(RELAY_LEASE)
    await outbox.store.recover()
    await passes.once(BATCH)
    assert (await outbox.view()).oldest_at is None


async def test_both_ways_beside_each_other_publish_every_row_once(outbox: Outbox) -> None:
    staged = [await outbox.staged() for _ in range(20)]
    relays = [passes_of("shared", outbox), passes_of("driver", outbox), passes_of("driver", outbox)]
    published = 0
    for turn in range(8):
        published += (await relays[turn % 3].once(3)).published
    assert published == 20
    assert all([await outbox.is_there(job_id) for job_id in staged])


def _all() -> ListQuery:
    return ListQuery(limit=200)
