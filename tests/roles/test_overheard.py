"""Signals of a process that somebody else's server runs: heard first, and left to that server."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from app.lifecycle.overheard import ask_to_leave, overheard

NUMBERS = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """What the server and its application hear, in order; the server's own handlers stand, as uvicorn's do."""
    said: list[str] = []
    before = {number: signal.signal(number, lambda *_: said.append("server")) for number in NUMBERS}
    yield said
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_is_heard_before_the_server_has_it(number: signal.Signals, heard: list[str]) -> None:
    with overheard(heard.append):
        signal.raise_signal(number)
    signal.raise_signal(number)
    assert heard == [number.name, "server", "server"]


def test_a_process_can_be_asked_to_leave(heard: list[str]) -> None:
    with overheard(heard.append):
        ask_to_leave()
    assert heard == ["SIGTERM", "server"]


def test_what_the_server_sets_meanwhile_stays(heard: list[str]) -> None:
    with overheard(heard.append):
        signal.signal(signal.SIGTERM, lambda *_: heard.append("another"))
    signal.raise_signal(signal.SIGTERM)
    assert heard == ["another"]


async def test_outside_the_main_thread_nothing_is_heard(heard: list[str]) -> None:
    handlers = [signal.getsignal(number) for number in NUMBERS]

    def open_and_look() -> list[object]:
        with overheard(heard.append):
            return [signal.getsignal(number) for number in NUMBERS]

    assert await asyncio.to_thread(open_and_look) == handlers
