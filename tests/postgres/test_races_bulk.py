"""Races of bulk operations with each other, with who aborts them, and with the verbs that move the same tokens."""

from __future__ import annotations

import pytest

from app.domain.bulk import BulkAction, BulkState, BulkStep, BulkView
from app.domain.errors import JobStateConflict
from app.domain.job import JobId
from app.domain.outcome import Completed, SettleAnswer
from app.domain.state import State
from app.drivers.bulk import BulkStore
from app.drivers.postgres.bulk import PostgresBulk
from app.drivers.protocol import PurgeQuery
from tests.conformance.runs import HOUR, SECOND, a_sleep, an_event, called, emit, new_event, suspended
from tests.postgres.arena import Arena, Seat, Started
from tests.support.bulk import a_bulk, dead, store_of
from tests.support.drivers import NAME

pytestmark = pytest.mark.postgres

CANCEL, RETRY, DELETE = BulkAction.CANCEL, BulkAction.RETRY, BulkAction.DELETE


def of(seat: Seat) -> BulkStore:
    """Give the bulk operations on a seat's own connection."""
    return PostgresBulk(seat.driver._db)  # type: ignore[attr-defined] # a seat's driver is PostgreSQL's


async def step(arena: Arena, made: BulkView) -> BulkStep:
    """Do the next batch; it must not have to wait."""
    done = await arena.at_once(lambda seat: of(seat).step(only=made.id))
    assert done is not None
    return done


async def over(arena: Arena, action: BulkAction, *states: State, **fields: object) -> BulkView:
    return await store_of(arena).make(a_bulk(action, *states, **fields))  # type: ignore[arg-type] # fields of it


async def state(arena: Arena, job_id: JobId) -> State:
    return (await arena.describe(job_id)).state


# --- executors


async def test_an_operation_that_somebody_has_in_hand_is_passed_over(arena: Arena) -> None:
    jobs = [await arena.enqueue() for _ in range(4)]
    made = await over(arena, CANCEL)
    async with arena.holding() as first:
        assert (await of(first).step(batch=2)) is not None
        assert await arena.at_once(lambda seat: of(seat).step()) is None
        other = await over(arena, BulkAction.SET_PRIORITY, ids=[jobs[3]], priority=1)
        assert (await step(arena, other)).done == 1
        await first.commit()
    assert (await step(arena, made)).view.done == 4
    assert [await state(arena, job_id) for job_id in jobs] == [State.CANCELLED] * 4


async def test_what_an_executor_that_died_had_begun_is_done_by_the_next(arena: Arena) -> None:
    held = await arena.running()
    made = await over(arena, CANCEL)
    async with arena.holding() as first:
        done = await of(first).step()
        assert done is not None
        assert done.done == 1
        await first.rollback()
    assert await state(arena, held.token.job_id) is State.RUNNING
    view = (await step(arena, made)).view
    assert (view.state, view.done) == (BulkState.DONE, 1)
    assert len(await arena.ledger(held.token.job_id)) == 1


async def test_an_executor_killed_in_the_middle_of_a_batch_has_done_nothing(arena: Arena) -> None:
    jobs = [await dead(arena, key="k"), await dead(arena)]
    made = await over(arena, RETRY, State.DEAD)
    async with arena.holding() as enqueuing:
        await enqueuing.enqueue(key="k")
        stepping = await arena.start(lambda seat: of(seat).step(only=made.id))
        await stepping.is_blocked_by(enqueuing)
        await arena.fetch("select pg_terminate_backend($1)", stepping.seat.pid)
        with pytest.raises(Exception, match=r"terminat|closed"):
            await stepping.result()
        await enqueuing.rollback()
    assert [await state(arena, job_id) for job_id in jobs] == [State.DEAD, State.DEAD]
    assert (await step(arena, made)).done == 2
    assert [await state(arena, job_id) for job_id in jobs] == [State.READY, State.READY]


async def test_an_abort_waits_for_the_batch_at_hand_and_lets_it_be(arena: Arena) -> None:
    jobs = [await arena.enqueue() for _ in range(3)]
    made = await over(arena, CANCEL)
    async with arena.holding() as stepping:
        await of(stepping).step(batch=2)
        aborting = await arena.start(lambda seat: of(seat).abort(made.id, by="bob"))
        await aborting.is_blocked_by(stepping)
        await stepping.commit()
    view = await aborting.result()
    assert (view.state, view.done, view.left) == (BulkState.ABORTED, 2, 1)
    assert await store_of(arena).step() is None
    assert await state(arena, jobs[2]) is State.READY


async def test_no_batch_begins_beside_an_abort(arena: Arena) -> None:
    job_id = await arena.enqueue()
    made = await over(arena, CANCEL)
    async with arena.holding() as aborting:
        await of(aborting).abort(made.id, by="bob")
        assert await arena.at_once(lambda seat: of(seat).step()) is None
        await aborting.commit()
    assert await store_of(arena).step() is None
    assert await state(arena, job_id) is State.READY


async def test_an_operation_made_twice_at_once_is_one(arena: Arena) -> None:
    await arena.enqueue()
    bulk = a_bulk(CANCEL)
    async with arena.holding() as first:
        await of(first).make(bulk)
        second = await arena.start(lambda seat: of(seat).make(bulk))
        await second.is_blocked_by(first)
        await first.commit()
    assert (await second.result()).selected == 1


# --- who moves the same tokens


async def test_a_job_that_is_being_claimed_is_left_for_the_next_round(arena: Arena) -> None:
    job_id = await arena.enqueue()
    worker = await arena.register()
    any_live, ready_only = await over(arena, CANCEL), await over(arena, CANCEL, State.READY)
    async with arena.holding() as claiming:
        await claiming.claim_one(worker)
        assert not (await step(arena, any_live)).has_decided
        await claiming.commit()
    done = await step(arena, ready_only)
    assert (done.changed, done.view.state) == (1, BulkState.DONE)
    assert (await step(arena, any_live)).done == 1
    (item,) = await store_of(arena).items(any_live.id)
    assert item.detail == "signalled"
    assert await state(arena, job_id) is State.CANCELLED


async def test_claims_go_on_beside_a_batch(arena: Arena) -> None:
    await arena.enqueue(queue="mail")
    job_id = await arena.enqueue()
    worker = await arena.register(queues=("default", "mail"))
    await over(arena, CANCEL, ids=[job_id])
    async with arena.holding() as stepping:
        await of(stepping).step()
        taken = await arena.at_once(lambda seat: seat.claim(worker, queues=("default", "mail")))
        assert [job.queue for job in taken] == ["mail"]
        await stepping.commit()


async def test_a_job_that_is_being_settled_is_left_and_then_has_changed(arena: Arena) -> None:
    held = await arena.running(key="k")
    made = await over(arena, CANCEL)
    async with arena.holding() as settling:
        await settling.settle(held.token, Completed())
        assert not (await step(arena, made)).has_decided
        await settling.commit()
    done = await step(arena, made)
    assert (done.changed, done.view.state) == (1, BulkState.DONE)
    assert await state(arena, held.token.job_id) is State.DONE


async def test_a_settle_behind_a_bulk_cancel_is_superseded_by_it(arena: Arena) -> None:
    held = await arena.running(key="k")
    await over(arena, CANCEL)
    async with arena.holding() as stepping:
        await of(stepping).step()
        settling = await arena.start(lambda seat: seat.settle(held.token, Completed()))
        await settling.is_blocked_by(stepping)
        await stepping.commit()
    assert await settling.result() is SettleAnswer.CANCELLED


async def test_a_run_whose_wait_is_being_ended_is_left_for_the_next_round(arena: Arena) -> None:
    run = await suspended(arena, an_event())
    made = await over(arena, CANCEL)
    async with arena.holding() as emitting:
        await emit(emitting)
        assert not (await step(arena, made)).has_decided
        await emitting.commit()
    assert (await step(arena, made)).done == 1
    assert await state(arena, run.token.job_id) is State.CANCELLED


@pytest.mark.parametrize("held", ["outlast.wait where name = 'nap'", "outlast.suspended"])
async def test_a_run_of_which_somebody_holds_one_row_is_left_whole(arena: Arena, held: str) -> None:
    """A sweep locks the waits that are due, and looks for their token in a statement of its own."""
    run = await suspended(arena, an_event(), a_sleep(number=1))
    made = await over(arena, CANCEL)
    async with arena.holding() as holding:
        await holding.connection.execute(f"select from {held} for update")
        assert not (await step(arena, made)).has_decided
        await holding.rollback()
    assert (await step(arena, made)).done == 1
    assert await arena.bucket(run.token.job_id) == "finished"


async def test_an_emit_behind_a_bulk_cancel_finds_no_wait(arena: Arena) -> None:
    run = await suspended(arena, an_event())
    await over(arena, CANCEL)
    async with arena.holding() as stepping:
        await of(stepping).step()
        emitting = await arena.start(lambda seat: seat.driver.emit(new_event()))
        await emitting.is_blocked_by(stepping)
        await stepping.commit()
    assert (await emitting.result()).matched == 0
    assert await state(arena, run.token.job_id) is State.CANCELLED


async def test_a_job_that_calls_others_is_left_while_it_moves(arena: Arena) -> None:
    parent, child = await called(arena)
    made = await over(arena, CANCEL, ids=[parent.token.job_id])
    async with arena.holding() as ending:
        await ending.driver.cancel(child.token.job_id, reason="wakes its parent in this transaction")
        assert not (await step(arena, made)).has_decided
        await ending.commit()
    assert (await step(arena, made)).done == 1
    assert await state(arena, parent.token.job_id) is State.CANCELLED


async def test_a_job_that_was_taken_with_its_children_is_not_looked_at_again(arena: Arena) -> None:
    parent, child = await called(arena)
    other = await arena.enqueue()
    worker = await arena.register()
    made = await over(arena, CANCEL, ids=[parent.token.job_id, other])
    async with arena.holding() as claiming:
        await claiming.claim_one(worker)
        assert (await step(arena, made)).done == 1
        assert not (await step(arena, made)).has_decided
        await claiming.commit()
    view = (await step(arena, made)).view
    assert (view.state, view.done, view.changed, view.failed) == (BulkState.DONE, 2, 0, 0)
    assert await state(arena, child.token.job_id) is State.CANCELLED


async def test_a_dead_job_that_is_being_retried_is_left_and_then_has_changed(arena: Arena) -> None:
    job_id = await dead(arena)
    made = await over(arena, RETRY, State.DEAD)
    async with arena.holding() as retrying:
        await retrying.driver.retry(job_id)
        assert not (await step(arena, made)).has_decided
        await retrying.commit()
    assert (await step(arena, made)).changed == 1


async def test_a_retry_behind_a_bulk_retry_finds_the_job_ready(arena: Arena) -> None:
    job_id = await dead(arena)
    await over(arena, RETRY, State.DEAD)
    async with arena.holding() as stepping:
        await of(stepping).step()
        retrying = await arena.start(lambda seat: seat.driver.retry(job_id))
        await retrying.is_blocked_by(stepping)
        await stepping.commit()
    with pytest.raises(JobStateConflict):
        await retrying.result()


async def test_a_bulk_retry_behind_an_enqueue_of_its_key_is_refused_or_wins_it(arena: Arena) -> None:
    async def beside(made: BulkView) -> Started[BulkStep | None]:
        return await arena.start(lambda seat: of(seat).step(only=made.id))

    for is_kept in (True, False):
        job_id = await dead(arena, key=f"k-{is_kept}")
        made = await over(arena, RETRY, ids=[job_id])
        async with arena.holding() as enqueuing:
            await enqueuing.enqueue(key=f"k-{is_kept}", queue="mail")
            stepping = await beside(made)
            await stepping.is_blocked_by(enqueuing)
            await (enqueuing.commit() if is_kept else enqueuing.rollback())
        await stepping.result()
        if is_kept:
            assert (await step(arena, made)).failed == 1
        assert await state(arena, job_id) is (State.DEAD if is_kept else State.READY)
        await arena.driver.cancel(job_id, reason="its queue must be empty")


async def test_a_promote_and_a_bulk_run_now_share_delayed_jobs(arena: Arena) -> None:
    job_id = await arena.enqueue(delay=HOUR)
    made = await over(arena, BulkAction.RUN_NOW)
    await arena.advance(HOUR + SECOND)
    async with arena.holding() as promoting:
        assert await promoting.driver.promote() == 1
        assert not (await step(arena, made)).has_decided
        await promoting.commit()
    assert (await step(arena, made)).changed == 1
    assert await arena.bucket(job_id) == "ready"


async def test_a_purge_and_a_bulk_delete_pass_each_other_by(arena: Arena) -> None:
    first, second = await dead(arena), await dead(arena)
    await arena.advance(HOUR)
    made = await over(arena, DELETE)
    query = PurgeQuery(state=State.DEAD, older_than=SECOND, batch=1)
    async with arena.holding() as purging:
        assert await purging.driver.purge(query) == 1
        assert (await step(arena, made)).done == 1
        await purging.commit()
    done = await step(arena, made)
    assert (done.changed, done.view.state) == (1, BulkState.DONE)
    assert [await arena.driver.describe(job_id) for job_id in (first, second)] == [None, None]


async def test_a_retry_behind_a_bulk_delete_finds_no_job_and_keeps_no_key(arena: Arena) -> None:
    job_id = await dead(arena, key="k")
    await over(arena, DELETE)
    async with arena.holding() as stepping:
        await of(stepping).step()
        retrying = await arena.start(lambda seat: seat.driver.retry(job_id))
        await retrying.is_blocked_by(stepping)
        await stepping.commit()
    with pytest.raises(Exception, match="there is no job"):
        await retrying.result()
    assert await arena.key_holder("k") is None


async def test_a_claim_passes_over_what_gets_another_priority(arena: Arena) -> None:
    job_id = await arena.enqueue()
    worker = await arena.register()
    await over(arena, BulkAction.SET_PRIORITY, name=NAME, priority=1)
    async with arena.holding() as stepping:
        await of(stepping).step()
        assert await arena.at_once(lambda seat: seat.claim(worker)) == ()
        await stepping.commit()
    assert (await arena.claim_one(worker)).token.job_id == job_id
