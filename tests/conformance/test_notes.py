from __future__ import annotations

from datetime import timedelta

from app.domain.job import JobId
from app.domain.outcome import Completed, DeadLettered, Interrupted
from app.domain.state import DeadReason, State
from app.domain.step import LINES_DROPPED, MAX_LOG_LINES, LogLine, NewNotes, ProgressView, RetryMode
from app.drivers.protocol import PurgeQuery
from app.drivers.reading import ListQuery
from tests.conformance.fences import Fence, every_fence
from tests.conformance.runs import MINUTE, record
from tests.support.drivers import ERROR, DriverEnv, new_id, new_job, with_token


async def lines(env: DriverEnv, job_id: JobId) -> tuple[LogLine, ...]:
    view = await env.driver.run(job_id)
    assert view is not None
    return view.lines


async def test_lines_are_kept_in_order(env: DriverEnv) -> None:
    held = await env.running()
    began = env.now()
    assert await env.driver.note([NewNotes(held.token, lines=("one", "two"))]) == 1
    await env.advance(timedelta(seconds=3))
    assert await env.driver.note([NewNotes(held.token, lines=("three",))]) == 1
    kept = await lines(env, held.token.job_id)
    assert [(line.message, line.at, line.claim_no) for line in kept] == [
        ("one", began, 1),
        ("two", began, 1),
        ("three", began + timedelta(seconds=3), 1),
    ]
    assert [line.seq for line in kept] == sorted({line.seq for line in kept})


async def test_progress_is_replaced_by_later_progress(env: DriverEnv) -> None:
    held = await env.running()
    assert await env.driver.note([NewNotes(held.token, progress=(0.25, "loading"))]) == 1
    assert (await env.describe(held.token.job_id)).progress == ProgressView(value=0.25, message="loading", at=env.now())
    await env.advance(timedelta(seconds=1))
    assert await env.driver.note([NewNotes(held.token, progress=(0.4, None))]) == 1
    expected = ProgressView(value=0.4, message=None, at=env.now())
    assert (await env.describe(held.token.job_id)).progress == expected
    view = await env.driver.run(held.token.job_id)
    assert view is not None
    assert view.progress == expected


async def test_a_run_that_says_nothing_has_no_progress(env: DriverEnv) -> None:
    held = await env.running()
    assert await env.driver.note([NewNotes(held.token)]) == 1
    assert (await env.describe(held.token.job_id)).progress is None
    assert await lines(env, held.token.job_id) == ()


async def test_a_list_shows_no_progress(env: DriverEnv) -> None:
    held = await env.running()
    await env.driver.note([NewNotes(held.token, progress=(0.5, None))])
    (view,) = (await env.driver.list(ListQuery())).items
    assert view.progress is None


async def test_nothing_to_note_is_nothing(env: DriverEnv) -> None:
    assert await env.driver.note([]) == 0


@every_fence
async def test_a_claim_that_is_gone_notes_nothing(env: DriverEnv, fence: Fence) -> None:
    held = await env.running()
    await env.driver.note([NewNotes(held.token, lines=("kept",), progress=(0.1, None))])
    before = await env.driver.run(held.token.job_id)
    stale = await fence(env, held)
    assert await env.driver.note([NewNotes(stale, lines=("late",), progress=(0.9, None))]) == 0
    now = await env.driver.run(held.token.job_id)
    assert now is None or now == before


async def test_each_claim_is_fenced_by_itself(env: DriverEnv) -> None:
    worker = await env.register()
    await env.driver.enqueue_many([new_job() for _ in range(3)])
    tokens = [held.token for held in await env.claim(worker)]
    await env.driver.cancel(tokens[1].job_id, reason="stop")
    notes = [NewNotes(token, lines=("line",), progress=(0.5, None)) for token in tokens]
    assert await env.driver.note(notes) == 2
    assert [len(await lines(env, token.job_id)) for token in tokens] == [1, 0, 1]
    unknown = with_token(tokens[0], job_id=new_id())
    assert await env.driver.note([NewNotes(unknown, lines=("line",)), NewNotes(tokens[0], lines=("more",))]) == 1
    assert [line.message for line in await lines(env, tokens[0].job_id)] == ["line", "more"]


async def test_lines_and_progress_outlive_an_attempt(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker)
    await env.driver.note([NewNotes(held.token, lines=("one",), progress=(0.5, "half"))])
    await env.close_attempt(held.token, Interrupted(cause="drain"))
    assert (await env.describe(held.token.job_id)).progress is not None
    again = await env.claim_one(worker)
    await env.driver.note([NewNotes(again.token, lines=("two",))])
    assert [(line.message, line.claim_no) for line in await lines(env, held.token.job_id)] == [("one", 1), ("two", 2)]
    await env.close_attempt(again.token, Completed())
    progress = (await env.describe(held.token.job_id)).progress
    assert progress is not None
    assert progress.value == 0.5


async def test_a_resumed_run_keeps_its_notes_and_a_fresh_one_has_none(env: DriverEnv) -> None:
    held = await env.running()
    await record(env, held.token, "a")
    await env.driver.note([NewNotes(held.token, lines=("one",), progress=(0.5, None))])
    await env.close_attempt(held.token, DeadLettered(error=ERROR, reason=DeadReason.TERMINAL))
    await env.driver.retry(held.token.job_id)
    assert [line.message for line in await lines(env, held.token.job_id)] == ["one"]
    await env.driver.cancel(held.token.job_id, reason="stop")
    await env.driver.retry(held.token.job_id, mode=RetryMode.FRESH)
    assert await lines(env, held.token.job_id) == ()
    assert (await env.describe(held.token.job_id)).progress is None


async def test_a_purge_takes_the_notes_along(env: DriverEnv) -> None:
    held = await env.running()
    await env.driver.note([NewNotes(held.token, lines=("one",), progress=(0.5, None))])
    await env.close_attempt(held.token, Completed())
    await env.advance(2 * MINUTE)
    assert await env.driver.purge(PurgeQuery(state=State.DONE, older_than=MINUTE)) == 1
    assert await env.driver.run(held.token.job_id) is None


# --- the most lines of a run


async def test_the_last_line_of_a_full_run_says_that_others_are_dropped(env: DriverEnv) -> None:
    held = await env.running()
    await env.driver.note([NewNotes(held.token, lines=tuple(str(number) for number in range(MAX_LOG_LINES + 5)))])
    kept = [line.message for line in await lines(env, held.token.job_id)]
    assert kept == [*(str(number) for number in range(MAX_LOG_LINES - 1)), LINES_DROPPED]
    assert await env.driver.note([NewNotes(held.token, lines=("more",), progress=(1.0, None))]) == 1
    assert [line.message for line in await lines(env, held.token.job_id)] == kept
    assert (await env.describe(held.token.job_id)).progress is not None


async def test_lines_are_counted_over_calls(env: DriverEnv) -> None:
    held = await env.running()
    first = tuple(str(number) for number in range(MAX_LOG_LINES - 2))
    await env.driver.note([NewNotes(held.token, lines=first)])
    await env.driver.note([NewNotes(held.token, lines=("last",))])
    await env.driver.note([NewNotes(held.token, lines=("too much",))])
    kept = [line.message for line in await lines(env, held.token.job_id)]
    assert kept == [*first, "last", LINES_DROPPED]


async def test_a_run_is_read_on_from_a_number(env: DriverEnv) -> None:
    held = await env.running()
    await record(env, held.token, "load")
    assert await env.driver.note([NewNotes(held.token, lines=("one",), progress=(0.5, None))]) == 1
    await record(env, held.token, "charge")
    assert await env.driver.note([NewNotes(held.token, lines=("two",))]) == 1
    whole = await env.driver.run(held.token.job_id)
    assert whole is not None
    load, charge = whole.history.steps
    one, two = whole.lines
    assert [load.seq, one.seq, charge.seq, two.seq] == sorted({load.seq, one.seq, charge.seq, two.seq})
    for after, steps, kept in ((0, (load, charge), (one, two)), (one.seq, (charge,), (two,)), (two.seq, (), ())):
        rest = await env.driver.run(held.token.job_id, after=after)
        assert rest is not None
        assert (rest.history.steps, rest.lines, rest.progress) == (steps, kept, whole.progress)


async def test_what_an_older_claim_said_beside_the_next_one_is_dropped(env: DriverEnv) -> None:
    """A worker sends together what its runs said, and may hold a job again that it had lost."""
    held = await env.running(await env.register())
    await env.driver.release((held.token,), cause="test")
    again = await env.claim_one(held.token.worker_id)
    notes = [NewNotes(held.token, ("older",), (0.9, None)), NewNotes(again.token, ("newer",))]
    assert await env.driver.note(notes) == 1
    run = await env.driver.run(held.token.job_id)
    assert run is not None
    assert ([line.message for line in run.lines], run.progress) == (["newer"], None)
