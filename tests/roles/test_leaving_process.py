"""Real signals to a real process: how it leaves, how soon, and with which code."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

pytestmark = pytest.mark.process


class Child:
    """The process under test and what it says, line by line."""

    def __init__(self, mode: str, seconds: float, loop: str = "uvloop") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.roles.leaving_process", mode, str(seconds), loop],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._queue: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(line.strip())

    def until(self, start: str) -> float:
        """Wait for a line that starts so; gives the seconds it took."""
        began = time.monotonic()
        while True:
            line = self._queue.get(timeout=15)
            self.lines.append(line)
            if line.startswith(start):
                return time.monotonic() - began

    def ends(self) -> tuple[int, float]:
        """Wait for the end; gives the exit code and the seconds it took."""
        began = time.monotonic()
        code = self.process.wait(timeout=15)
        took = time.monotonic() - began
        self._reader.join(5)
        while not self._queue.empty():
            self.lines.append(self._queue.get())
        return code, took

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(5)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Iterator[type[Child]]:
    children: list[Child] = []

    class Started(Child):
        def __init__(self, mode: str, seconds: float, loop: str = "uvloop") -> None:
            super().__init__(mode, seconds, loop)
            children.append(self)

    yield Started
    for child in children:
        child.close()


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_leaves_clean(start: type[Child], number: signal.Signals, loop: str) -> None:
    child = start("told", 5, loop)
    child.until("attempt.started")
    child.process.send_signal(number)
    code, took = child.ends()
    assert code == 0
    assert took < 3
    assert "told drain" in child.lines
    assert child.lines[-2:] == ["exit 0", "the interpreter's own end"]
    assert "attempt.interrupted told" in child.lines


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_idle_threads_of_pools_do_not_keep_a_clean_process_from_its_own_end(start: type[Child], loop: str) -> None:
    child = start("pool", 5, loop)
    child.until("attempt.completed")
    child.process.send_signal(signal.SIGTERM)
    code, took = child.ends()
    assert (code, child.lines[-1]) == (0, "the interpreter's own end")
    assert "unflushed" in child.lines
    assert took < 3


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_thread_that_a_body_left_behind_does_not_keep_the_process(start: type[Child], loop: str) -> None:
    child = start("hung", 2, loop)
    child.until("attempt.started")
    child.process.send_signal(signal.SIGTERM)
    code, took = child.ends()
    assert code == 0
    assert "attempt.interrupted hung" in child.lines
    assert took < 5


def test_further_sigterms_change_nothing(start: type[Child]) -> None:
    child = start("told", 5)
    child.until("attempt.started")
    for _ in range(3):
        child.process.send_signal(signal.SIGTERM)
    assert child.ends()[0] == 0
    assert child.lines.count("drain.started") == 1


@pytest.mark.parametrize(("mode", "loop"), [("deaf", "uvloop"), ("deaf", "asyncio"), ("thread", "uvloop")])
def test_a_body_that_does_not_end_is_given_up_within_the_budget(start: type[Child], mode: str, loop: str) -> None:
    child = start(mode, 1, loop)
    child.until("attempt.started")
    child.process.send_signal(signal.SIGTERM)
    code, took = child.ends()
    assert code == 70
    assert took < 2.5
    assert child.lines.count(f"worker.drain_abandoned {mode}") == 1


def test_a_blocked_loop_is_ended_by_the_watchdog(start: type[Child]) -> None:
    child = start("blocks", 1)
    child.until("attempt.started")
    child.process.send_signal(signal.SIGTERM)
    code, took = child.ends()
    assert code == 70
    assert 2.5 < took < 5
    assert any(line.startswith("process.ended blocks") for line in child.lines)


def test_a_second_sigint_a_second_later_ends_at_once_and_names_what_is_left(start: type[Child]) -> None:
    child = start("deaf", 20)
    child.until("attempt.started")
    child.process.send_signal(signal.SIGINT)
    child.until("worker.drain_signalled")
    child.process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        child.process.wait(timeout=1.1)
    child.process.send_signal(signal.SIGINT)
    code, took = child.ends()
    assert code == 70
    assert took < 2
    assert any(line.startswith("process.ended deaf") for line in child.lines)


def test_a_role_that_dies_ends_the_process_with_its_code(start: type[Child]) -> None:
    child = start("dying", 2)
    assert child.ends()[0] == 75
    assert any(line.startswith("role.failed") for line in child.lines)


BY_EXIT = ("by_task", "by_callback", "by_thread", "by_timer", "by_soon")


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("how", [*BY_EXIT, "by_stop", "by_executor"])
def test_what_leaves_through_the_loop_ends_neither_the_process_nor_a_neighbour(
    start: type[Child], how: str, loop: str
) -> None:
    child = start(how, 5, loop)
    child.until("attempt.completed escapes")
    child.process.send_signal(signal.SIGTERM)
    assert child.ends()[0] == 0
    assert child.lines[-2:] == ["exit 0", "the interpreter's own end"]
    assert f"escaped {how}" in child.lines
    assert child.lines.count("attempt.started told") == 1
    assert "told drain" in child.lines  # and not before, by any other reason
    assert child.lines.count("loop.left") == (how != "by_executor")


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_stranger_that_cancels_every_task_ends_the_process_in_order(start: type[Child], loop: str) -> None:
    child = start("cancels", 5, loop)
    code, _ = child.ends()
    assert code == 75
    assert "taken over cancels interrupted worker_closed" in child.lines
    assert child.lines[-2:] == ["exit 75", "the interpreter's own end"]
    assert any(line.startswith("role.failed") for line in child.lines)
    errors = child.process.stderr.read().splitlines() if child.process.stderr is not None else []
    assert all(line.startswith("{") for line in errors), errors


def test_a_loop_that_does_not_move_ends_the_process(start: type[Child]) -> None:
    child = start("stall", 5)
    child.until("attempt.started")
    code, took = child.ends()
    assert code == 75
    assert took < 4
    assert any(line.startswith("worker.loop_blocked") for line in child.lines)


def test_a_worker_that_was_stopped_for_longer_than_its_lease_tells_its_bodies_when_it_wakes(
    start: type[Child],
) -> None:
    child = start("sleeper", 5)
    child.until("attempt.started")
    child.process.send_signal(signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        child.process.wait(timeout=2)
    child.process.send_signal(signal.SIGCONT)
    assert child.until("told lease_lost") < 1
    child.until("lease.lost")
    child.until("attempt.started")
    child.process.send_signal(signal.SIGTERM)
    assert child.ends()[0] == 0
