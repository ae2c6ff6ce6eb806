"""Both clients over sockets: streams that are taken up again, answers that are lost, and nothing done twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta

import pytest

from app.client import AsyncClient, Client, Ended, JobEvent, JobSummary, ProblemError, State, UnreachableError
from app.domain.outcome import Completed
from app.http.server import HttpServer
from tests.client.conftest import PROMPT
from tests.client.cutter import Cutter, cutter_to
from tests.http.api import Api
from tests.http.runs import record, say, step
from tests.support.drivers import NAME, new_id

pytestmark = pytest.mark.timeout(40)


@asynccontextmanager
async def cut_from(api: Api) -> AsyncIterator[tuple[Cutter, AsyncClient]]:
    """Give a client whose way to the application can be cut."""
    async with (
        api.served() as (_, port),
        cutter_to(port) as cutter,
        AsyncClient(cutter.url, patience=PROMPT) as client,
    ):
        yield cutter, client


async def kinds_until(events: AsyncIterator[JobEvent], kind: str) -> list[str]:
    found: list[str] = []
    async for event in events:
        found.append(event.kind)
        if event.kind == kind:
            break
    return found


async def test_a_job_is_followed_over_broken_connections_without_a_gap(each_api: Api) -> None:
    api = each_api
    async with cut_from(api) as (cutter, client):
        placed = await client.enqueue(NAME, {})
        async with aclosing(client.events(placed)) as events:
            first = await anext(events)
            assert isinstance(first.data, JobSummary)
            assert (first.kind, first.data.state) == ("state", "ready")
            claimed = await api.claim()
            await record(api, claimed, step("load"))
            seen = await kinds_until(events, "step")
            cutter.cut()
            await record(api, claimed, step("send", 1))
            await say(api, claimed, "sent", progress=(1.0, None))
            seen += await kinds_until(events, "step")
            cutter.cut()
            await api.env.close_attempt(claimed.token, Completed(result="1"))
            rest = [event async for event in events]
        seen += [event.kind for event in rest]
        assert seen.count("step") == 2
        assert seen.count("log") == 1
        assert seen.count("attempt") == 1
        assert rest[-1].data == Ended(id=placed.id, state=State.DONE)
        assert rest[-1].kind == "end"
        assert cutter.connections >= 3


async def test_following_goes_on_after_an_event_seen_before(api: Api) -> None:
    async with cut_from(api) as (_, client):
        placed = await client.enqueue(NAME, {})
        claimed = await api.claim()
        await record(api, claimed, step("load"), step("send", 1))
        await api.env.close_attempt(claimed.token, Completed(result="1"))
        whole = [event async for event in client.events(placed)]
        load = next(event for event in whole if event.kind == "step")
        again = [event async for event in client.events(placed, after=load.id)]
        assert [event.kind for event in whole].count("step") == 2
        assert [event.data for event in again if event.kind == "step"] == [
            event.data for event in whole if event.kind == "step"
        ][1:]


async def test_a_stream_of_a_draining_process_is_taken_up_by_the_next(api: Api) -> None:
    placed = await api.post()
    first = HttpServer(api.app, host="127.0.0.1", port=0, graceful_seconds=1)
    await first.start()
    async with AsyncClient(f"http://127.0.0.1:{first.port}", patience=PROMPT) as client:
        events = client.events(placed["id"])
        assert (await anext(events)).kind == "state"
        following = asyncio.ensure_future(kinds_until(events, "end"))
        api.streams.stop()
        await first.stop()
        second = HttpServer(api.app, host="127.0.0.1", port=first.port, graceful_seconds=1)
        await second.start()
        try:
            await api.finish()
            kinds = await following
            assert (kinds.count("attempt"), kinds[-1]) == (1, "end")
        finally:
            await second.stop()


async def test_what_cannot_be_followed_says_so(api: Api) -> None:
    async with cut_from(api) as (_, client):
        with pytest.raises(ProblemError) as absent:
            await anext(client.events(new_id()))
        assert absent.value.code == "JOB_NOT_FOUND"
    with pytest.raises(UnreachableError):
        await anext(AsyncClient("http://127.0.0.1:9", patience=IMPATIENT).events(new_id()))


IMPATIENT = type(PROMPT)(deadline=timedelta(milliseconds=30), first_pause=timedelta(milliseconds=10))


async def test_an_enqueue_whose_answer_is_lost_makes_one_job(each_api: Api) -> None:
    async with cut_from(each_api) as (cutter, client):
        cutter.lose_replies(2)
        placed = await client.enqueue(NAME, {"n": 1})
        assert cutter.replies_lost == 2
        assert not placed.deduped
        assert [job.id async for job in client.list()] == [placed.id]


async def test_many_whose_answer_is_lost_are_there_once(each_api: Api) -> None:
    async with cut_from(each_api) as (cutter, client):
        cutter.lose_replies(2)
        placed = await client.enqueue_many(NAME, [{"n": n} for n in range(3)])
        assert cutter.replies_lost == 2
        assert {job.id async for job in client.list()} == {each.id for each in placed}
        assert len(placed) == 3


async def test_actions_whose_answers_are_lost_are_done_once(each_api: Api) -> None:
    async with cut_from(each_api) as (cutter, client):
        placed = await client.enqueue(NAME, {"n": 1}, delay=timedelta(hours=1))
        job = await client.get(placed)
        cutter.lose_replies(1)
        copied = await client.duplicate(job)
        cutter.lose_replies(1)
        assert (await client.update(job, priority=1)).priority == 1
        cutter.lose_replies(1)
        assert (await client.cancel(job)).verdict == "cancelled_before_start"
        cutter.lose_replies(1)
        await client.delete(job)
        assert cutter.replies_lost == 4
        assert [job.id async for job in client.list()] == [copied.id]


async def test_reads_and_waits_survive_cuts(api: Api) -> None:
    async with cut_from(api) as (cutter, client):
        placed = await client.enqueue(NAME, {})
        cutter.lose_replies(2)
        assert (await client.get(placed)).id == placed.id
        waiter = asyncio.ensure_future(client.wait(placed, timeout=timedelta(seconds=20)))
        async with asyncio.timeout(5):
            while api.waiters.count == 0:
                await asyncio.sleep(0.005)
        cutter.cut()
        await api.finish(Completed(result="7"))
        assert await waiter == 7


async def test_the_blocking_client_does_all_of_it_too(each_api: Api) -> None:
    api = each_api
    async with api.served() as (_, port), cutter_to(port) as cutter:

        def before() -> str:
            with Client(cutter.url, patience=PROMPT) as client:
                placed = client.enqueue(NAME, {"n": 1})
                assert [job.id for job in client.list(limit=1)] == [placed.id]
                return str(placed.id)

        def after(job: str) -> tuple[list[str], object]:
            with Client(cutter.url, patience=PROMPT) as client:
                return [event.kind for event in client.events(job)], client.wait(job, timeout=timedelta(seconds=9))

        job = await asyncio.to_thread(before)
        following = asyncio.ensure_future(asyncio.to_thread(after, job))
        async with asyncio.timeout(9):
            while api.streams.count == 0:
                await asyncio.sleep(0.005)
        cutter.cut()
        await api.finish(Completed(result="7"))
        kinds, result = await following
        assert (kinds[-1], result) == ("end", 7)
