"""The run signal: the first reason stands, the end only comes forward, and every thread can read and fire it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import cast

import pytest

from app.domain.errors import Aborted
from app.domain.verdict import Reason
from app.jobs.signal import RunSignal as ReadingFace
from app.worker.run_signal import RunSignal

GRACE = 0.03


def make(*, may_cancel: bool = True, grace: float = GRACE) -> RunSignal:
    return RunSignal(grace_seconds=grace, may_cancel=may_cancel, monotonic=time.monotonic)


async def test_it_has_the_reading_face_that_bodies_know() -> None:
    face: ReadingFace = make()
    assert not face.aborted
    assert face.reason is None
    face.raise_if_aborted()


@pytest.mark.parametrize("first", list(Reason))
async def test_the_first_reason_wins_and_never_changes(first: Reason) -> None:
    signal = make()
    signal.fire(first)
    for later in Reason:
        signal.fire(later)
    assert signal.reason is first
    signal.disarm()


async def test_a_later_reason_brings_the_end_forward_and_never_back() -> None:
    signal = make(grace=100)
    signal.fire(Reason.TIMEOUT)
    assert signal.cancel_at is not None
    first = signal.cancel_at
    signal.fire(Reason.DRAIN, cancel_at=first - 50)
    assert signal.cancel_at == first - 50
    signal.fire(Reason.DRAIN, cancel_at=first + 50)
    signal.fire(Reason.CANCEL)
    assert signal.cancel_at == first - 50
    signal.disarm()


async def test_the_body_is_cancelled_once_its_grace_is_over() -> None:
    signal, cancelled = make(), asyncio.Event()
    signal.on_cancel(cancelled.set)
    began = time.monotonic()
    signal.fire(Reason.CANCEL)
    assert not cancelled.is_set()
    await asyncio.wait_for(cancelled.wait(), 5)
    assert time.monotonic() - began >= GRACE


async def test_a_body_that_may_not_be_cancelled_is_not() -> None:
    signal, cancelled = make(may_cancel=False), asyncio.Event()
    signal.on_cancel(cancelled.set)
    signal.fire(Reason.TIMEOUT)
    await asyncio.wait_for(asyncio.shield(signal.closing), 5)
    assert not cancelled.is_set()


async def test_a_drain_gives_up_as_one_and_closes_no_single_attempt() -> None:
    signal, cancelled = make(), asyncio.Event()
    signal.on_cancel(cancelled.set)
    signal.fire(Reason.DRAIN, cancel_at=time.monotonic())
    await asyncio.wait_for(cancelled.wait(), 5)
    signal.fire(Reason.TIMEOUT)
    done, _ = await asyncio.wait({signal.closing}, timeout=GRACE * 4)
    assert not done


async def test_a_cancellation_waits_for_a_call_to_the_store() -> None:
    signal, cancelled = make(grace=0), asyncio.Event()
    signal.on_cancel(cancelled.set)
    with signal.in_store():
        signal.fire(Reason.CANCEL)
        await asyncio.wait_for(asyncio.shield(signal.closing), 5)
        assert not cancelled.is_set()
    assert cancelled.is_set()


async def test_a_cancel_named_after_its_instant_is_called_at_once() -> None:
    signal, cancelled = make(grace=0), asyncio.Event()
    signal.fire(Reason.CANCEL)
    await asyncio.wait_for(asyncio.shield(signal.closing), 5)
    signal.on_cancel(cancelled.set)
    assert cancelled.is_set()


async def test_the_clocks_of_the_attempt_fire_and_stop_when_it_ends() -> None:
    signal = make()
    signal.arm(timeout=timedelta(milliseconds=10), deadline_in=timedelta(hours=1))
    assert await asyncio.wait_for(signal.wait(), 5) is Reason.TIMEOUT
    other = make()
    other.arm(timeout=timedelta(milliseconds=1), deadline_in=None)
    other.disarm()
    done, _ = await asyncio.wait({other.closing}, timeout=0.05)
    assert not done
    assert not other.aborted


async def test_a_deadline_that_has_passed_fires_at_once() -> None:
    signal = make()
    signal.arm(timeout=None, deadline_in=timedelta(seconds=-5))
    assert signal.reason is Reason.DEADLINE
    signal.disarm()


async def test_a_body_that_blocks_the_loop_sees_its_timeout() -> None:
    signal = make()
    signal.arm(timeout=timedelta(milliseconds=20), deadline_in=None)
    until = time.monotonic() + 5
    while not signal.aborted:
        assert time.monotonic() < until
    assert signal.reason is Reason.TIMEOUT
    signal.disarm()


async def test_fired_from_a_thread_it_is_heard_on_the_loop_and_in_other_threads() -> None:
    signal = make()
    heard_in_thread = asyncio.get_running_loop().run_in_executor(None, signal.wait, timedelta(seconds=5))
    heard_on_loop = asyncio.ensure_future(signal.wait())
    await asyncio.sleep(0)
    thread = threading.Thread(target=signal.fire, args=(Reason.LEASE_LOST,))
    thread.start()
    assert await heard_in_thread is True
    assert await asyncio.wait_for(heard_on_loop, 5) is Reason.LEASE_LOST
    thread.join()
    signal.disarm()


async def test_off_the_loop_a_wait_without_a_timeout_blocks_and_gives_the_reason() -> None:
    signal = make()
    waiting = asyncio.get_running_loop().run_in_executor(None, signal.wait)
    signal.fire(Reason.TIMEOUT)
    assert cast("object", await asyncio.wait_for(waiting, 5)) is Reason.TIMEOUT
    signal.disarm()


async def test_a_blocking_wait_may_be_told_to_last_for_ever() -> None:
    signal = make()
    waiting = asyncio.get_running_loop().run_in_executor(None, signal.wait, timedelta.max)
    signal.fire(Reason.TIMEOUT)
    assert await asyncio.wait_for(waiting, 5) is True
    signal.disarm()


async def test_a_blocking_wait_ends_by_itself() -> None:
    signal = make()
    assert signal.wait(timedelta(milliseconds=5)) is False
    signal.arm(timeout=timedelta(milliseconds=10), deadline_in=None)
    assert signal.wait(timedelta(seconds=5)) is True
    signal.disarm()


@pytest.mark.parametrize("reason", list(Reason))
async def test_being_told_raises_what_happened_and_what_to_do(reason: Reason) -> None:
    signal = make()
    signal.fire(reason, said="worker 7 is draining (SIGTERM)" if reason is Reason.DRAIN else "")
    with pytest.raises(Aborted) as caught:
        signal.raise_if_aborted()
    assert caught.value.details["reason"] == reason.value
    assert caught.value.fix
    assert ("SIGTERM" in caught.value.cause) == (reason is Reason.DRAIN)
    signal.disarm()


# --- whether the body has read it


READS: dict[str, Callable[[RunSignal], object]] = {
    "aborted": lambda signal: signal.aborted,
    "reason": lambda signal: signal.reason,
    "wait": lambda signal: signal.wait(timedelta(0)),
}


@pytest.mark.parametrize("how", READS)
async def test_it_is_read_once_the_body_has_seen_that_it_fired(how: str) -> None:
    signal = make()
    READS[how](signal)
    seen = [signal.is_read]  # there was nothing to see
    signal.fire(Reason.DRAIN)
    seen.append(signal.is_read)
    assert signal.first is Reason.DRAIN
    seen.append(signal.is_read)  # the worker's own look is not the body's
    READS[how](signal)
    assert [*seen, signal.is_read] == [False, False, False, True]
    signal.disarm()


async def test_a_body_that_raises_or_waits_for_it_has_read_it() -> None:
    raising, waiting = make(), make()
    waits = asyncio.ensure_future(waiting.wait())
    await asyncio.sleep(0)
    for signal in (raising, waiting):
        signal.fire(Reason.DRAIN)
    with pytest.raises(Aborted):
        raising.raise_if_aborted()
    assert await waits is Reason.DRAIN
    assert (raising.is_read, waiting.is_read) == (True, True)
    for signal in (raising, waiting):
        signal.disarm()
