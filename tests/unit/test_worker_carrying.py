"""How bodies share a task: only while none of them waits, and none can tell."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import pytest

from app.domain.verdict import Ended, Raised, Reason, Returned
from app.worker.bodies import Bodies, _steps
from app.worker.execute import Caller
from app.worker.roster import Run, body_name

Body: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

_SEEN: ContextVar[str] = ContextVar("seen", default="nothing")


class Stage:
    """Bodies under test, each called by its name."""

    def __init__(self, *, monotonic: Callable[[], float] = float) -> None:
        self.ended: dict[str, Ended] = {}
        self.task_ids: list[int] = []
        self.task_names: list[str] = []
        self._bodies: dict[str, Body] = {}
        self._over = asyncio.Event()
        caller = cast("Caller", SimpleNamespace(on_loop=self._on_loop))
        pool = cast("ThreadPoolExecutor", None)
        self.sut = Bodies(caller=caller, pool=pool, monotonic=monotonic, on_ended=self._ended)

    def begin(self, name: str, body: Body | None = None) -> Run:
        """Begin a body; without one it returns at once."""
        self._bodies[name] = body or _returns
        run = Run(
            job=cast("Any", SimpleNamespace(token=SimpleNamespace(job_id=name))),
            handle=cast("Any", SimpleNamespace(is_sync=False)),
            lease=cast("Any", None),
            signal=cast("Any", SimpleNamespace(first=None)),
            claimed_at=0.0,
        )
        self.sut.begin(run)
        return run

    async def until_ended(self, *names: str) -> None:
        """Wait for the ends of some."""
        while not self.ended.keys() >= set(names):
            self._over.clear()
            await self._over.wait()

    async def _on_loop(self, run: Run, task: asyncio.Task[Any]) -> Ended:
        name = str(run.job.token.job_id)
        assert asyncio.current_task() is task is run.task
        self.task_ids.append(id(task))
        self.task_names.append(task.get_name())
        try:
            await self._bodies[name]()
        except asyncio.CancelledError:
            return Raised(error=cast("Any", "cancelled"))
        return Returned(result=f'"{name}"')

    def _ended(self, run: Run, ended: Ended) -> None:
        assert run.has_ended
        self.ended[str(run.job.token.job_id)] = ended
        self._over.set()


async def _returns() -> None:
    assert _SEEN.get() == "nothing"
    _SEEN.set("another body")


async def test_bodies_that_never_wait_run_in_order_in_one_task_each_in_a_context_and_under_a_name_of_its_own() -> None:
    stage, names = Stage(), [f"job {number}" for number in range(10)]
    for name in names:
        assert stage.begin(name).is_body_running
    await stage.until_ended(*names)
    assert list(stage.ended) == names
    assert stage.ended["job 3"] == Returned(result='"job 3"')
    assert len(set(stage.task_ids)) == 1
    assert stage.task_names == [body_name(name) for name in names]


async def test_many_bodies_that_wait_are_begun_in_a_few_turns_of_the_loop_in_order() -> None:
    stage, door, turns = Stage(), asyncio.Event(), 0
    names = [f"job {number}" for number in range(100)]
    begun: list[tuple[str, int]] = []

    def waits(name: str) -> Body:
        async def body() -> None:
            begun.append((name, turns))
            await door.wait()

        return body

    for name in names:
        stage.begin(name, waits(name))
    while len(begun) < len(names):
        await asyncio.sleep(0)
        turns += 1
    assert [name for name, _ in begun] == names
    a_turn = [sum(turn == at for _, turn in begun) for at in range(turns)]
    assert a_turn[:6] == [1, 2, 4, 8, 16, 32], "a worker with many places is not filled one a turn"
    assert turns <= 8
    assert max(a_turn) <= 33, "and the loop is not held either"
    assert len(set(stage.task_ids)) == len(names)
    door.set()
    await stage.until_ended(*names)


async def test_bodies_begun_beside_others_that_return_leave_the_rest_to_be_carried_in_a_row() -> None:
    stage, door = Stage(), asyncio.Event()

    async def waits() -> None:
        await door.wait()

    waiting, returning = [f"waits {number}" for number in range(7)], [f"returns {number}" for number in range(200)]
    for name in waiting:
        stage.begin(name, waits)
    for name in returning:
        stage.begin(name)
    await stage.until_ended(*returning)
    assert list(stage.ended) == returning
    # Three turns begin the seven; in the fourth each task beside the carrier begins one, the carrier all others.
    assert len(set(stage.task_ids[7:])) <= 8
    door.set()
    await stage.until_ended(*waiting)


async def test_a_body_that_waits_keeps_its_task_and_context_and_the_others_go_on_in_another() -> None:
    stage, door = Stage(), asyncio.Event()

    async def waits() -> None:
        task = asyncio.current_task()
        _SEEN.set("mine")
        for _ in range(3):
            await asyncio.sleep(0)
            assert asyncio.current_task() is task
        await door.wait()
        assert _SEEN.get() == "mine"
        assert await asyncio.get_running_loop().create_task(_seen()) == "mine"
        async with asyncio.timeout(5), asyncio.TaskGroup() as children:
            children.create_task(asyncio.sleep(0))

    stage.begin("before")
    run = stage.begin("waits", waits)
    stage.begin("after")
    stage.begin("after that")
    await stage.until_ended("before", "after", "after that")
    assert run.is_body_running
    assert run.task is not None
    assert run.task.get_name() == body_name("waits")
    before, waiting, *others = stage.task_ids
    assert before == waiting
    assert len(set(others) | {waiting}) == 2
    door.set()
    await stage.until_ended("waits")
    assert stage.ended["waits"] == Returned(result='"waits"')
    assert run.task is None


async def _seen() -> str:
    return _SEEN.get()


async def test_a_body_that_never_waits_is_met_by_no_timeout_of_the_one_before() -> None:
    stage, door = Stage(), asyncio.Event()

    async def quick() -> None:
        async with asyncio.timeout(0.001):  # noqa: ASYNC100 - that it never waits is the point
            pass

    stage.begin("quick", quick)
    stage.begin("slow", door.wait)  # type: ignore[arg-type] # what it gives is not looked at
    asyncio.get_running_loop().call_later(0.02, door.set)
    await stage.until_ended("quick", "slow")
    assert stage.ended["slow"] == Returned(result='"slow"')


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _cancel_and_take_back(_: list[object]) -> None:
    _this_task().cancel()
    _this_task().uncancel()


@pytest.mark.parametrize(
    "leave",
    [
        lambda kept: kept.append(_this_task()),
        lambda kept: kept.append(weakref.ref(_this_task())),
        lambda _: _this_task().add_done_callback(lambda _: None),
        lambda _: _this_task().cancel(),
        _cancel_and_take_back,
    ],
    ids=["kept", "kept weakly", "callback", "cancelled", "cancelled and taken back"],
)
async def test_a_task_on_which_a_body_left_a_trace_carries_no_other(leave: Callable[[list[object]], object]) -> None:
    stage = Stage()
    kept: list[object] = []
    tasks: list[asyncio.Task[Any]] = []

    async def leaves() -> None:
        leave(kept)

    async def after() -> None:
        await asyncio.sleep(0)
        tasks.append(_this_task())

    first = stage.begin("leaves", leaves)
    stage.begin("after", after)
    await asyncio.sleep(0)
    assert first.has_ended
    await stage.until_ended("leaves", "after")
    assert all((each() if isinstance(each, weakref.ref) else each) is not tasks[0] for each in kept)
    assert stage.ended["after"] == Returned(result='"after"')
    assert tasks[0].cancelling() == 0


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a wait"])
async def test_a_body_that_returns_has_returned_though_its_cancellation_is_still_to_be_met(waits: bool) -> None:
    stage = Stage()

    async def returns_cancelled() -> None:
        if waits:
            await asyncio.sleep(0)
        _this_task().cancel()

    stage.begin("it", returns_cancelled)
    stage.begin("after")
    await stage.until_ended("it", "after")
    assert stage.ended == {"it": Returned(result='"it"'), "after": Returned(result='"after"')}


async def test_a_body_is_cancelled_where_it_waits_and_never_called_when_cancelled_before() -> None:
    stage = Stage()
    waiting = stage.begin("waiting", asyncio.Event().wait)  # type: ignore[arg-type] # as above
    unbegun = stage.begin("unbegun")
    unbegun.cancel_body()
    await stage.until_ended("unbegun")
    assert len(stage.task_ids) == 1, "the body was not called"
    waiting.cancel_body()
    await stage.until_ended("waiting")
    assert stage.ended["waiting"] == Raised(error=cast("Any", "cancelled"))
    assert isinstance(stage.ended["unbegun"], Raised)


async def test_what_a_drain_tells_before_it_is_called_is_given_back_once_and_called_when_told_later() -> None:
    stage, runs = Stage(), dict[str, Run]()

    def tell(*names: str) -> None:
        for name in names:
            cast("Any", runs[name].signal).first = Reason.DRAIN

    async def tells() -> None:
        tell("second", "third")
        runs["late"] = stage.begin("late")

    runs["cancelled"], runs["first"] = stage.begin("cancelled"), stage.begin("first", tells)
    cast("Any", runs["cancelled"].signal).first = Reason.CANCEL
    runs |= {name: stage.begin(name) for name in ("second", "third")}
    await stage.until_ended("late")
    runs |= {name: stage.begin(name) for name in ("fourth", "fifth")}
    tell("fourth")
    assert stage.sut.give_back() == [runs["second"], runs["third"], runs["fourth"]]
    tell("fifth")
    await stage.until_ended("fifth")
    assert list(stage.ended) == ["cancelled", "first", "late", "fifth"]
    assert [name for name, run in runs.items() if not run.has_begun] == ["second", "third", "fourth"]
    assert stage.sut.give_back() == []


async def test_a_child_that_raises_what_closes_a_coroutine_ends_its_body_alone() -> None:
    stage = Stage()

    async def child() -> None:
        raise GeneratorExit

    async def waits_for_it() -> None:
        await asyncio.get_running_loop().create_task(child())

    stage.begin("it", waits_for_it)
    stage.begin("after")
    await stage.until_ended("it", "after")
    ended = stage.ended["it"]
    assert isinstance(ended, Raised)
    assert ended.error.type == "GeneratorExit"


async def test_after_a_slice_of_time_the_loop_gets_its_turn() -> None:
    now = [0.0]
    stage = Stage(monotonic=lambda: now[0])
    seen: list[int] = []

    async def takes_long() -> None:
        now[0] += 1
        if not seen:
            asyncio.get_running_loop().call_soon(lambda: seen.append(len(stage.ended)))

    for number in range(5):
        stage.begin(f"job {number}", takes_long)
    await stage.until_ended(*(f"job {number}" for number in range(5)))
    assert seen[0] == 1


def test_a_body_that_waits_at_the_end_of_the_loop_is_closed_in_its_own_context() -> None:
    closed: list[str] = []

    async def body() -> Ended:
        _SEEN.set("mine")
        try:
            await asyncio.sleep(0)
        finally:
            closed.append(_SEEN.get())
        return Returned(result=None)

    call, context = body(), copy_context()
    steps = _steps(call, context, context.run(call.send, None))
    steps.send(None)
    steps.close()
    assert closed == ["mine"]
