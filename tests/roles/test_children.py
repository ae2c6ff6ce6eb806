"""Children that a parent keeps: restarted after pauses that grow, told once, never left behind; scripts stand in."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Sequence

import pytest

from app.lifecycle.children import Children
from app.lifecycle.shutdown import Shutdown
from app.observability.metrics import Metrics
from app.observability.probe import Probe
from app.observability.telemetry import Telemetry

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]

SAYS_AND_WAITS = """
import json, os, signal, socket, sys
link = socket.socket(fileno=int(sys.argv[1]))
signal.signal(signal.SIGTERM, lambda *_: os._exit(int(sys.argv[2])))
link.sendall(json.dumps({"admin": "http://127.0.0.1:1"}).encode() + b"\\n")
link.recv(1)
"""
CRASHES = "raise SystemExit(1)"
IGNORES = SAYS_AND_WAITS.replace("lambda *_: os._exit(int(sys.argv[2]))", "signal.SIG_IGN")


LEAVES_A_WORD = """
import json, os, signal, socket, sys
def leave(*_):
    os.write(1, b"left in order")
    os._exit(0)
link = socket.socket(fileno=int(sys.argv[1]))
signal.signal(signal.SIGTERM, leave)
link.sendall(json.dumps({"admin": "http://127.0.0.1:1"}).encode() + b"\\n")
link.recv(1)
"""


class Family:
    """Children of a script, under a shutdown, with an ear for what is said of them.

    The system refuses the first `refused` of them.
    """

    def __init__(self, script: str, count: int = 1, *, seconds: float = 10.0, code: int = 0, refused: int = 0) -> None:
        self._refusals = iter(range(refused))
        telemetry = Telemetry(metrics=Metrics())
        self.probe = Probe(telemetry)
        self.shutdown = Shutdown(drain_seconds=seconds, telemetry=telemetry)
        self.children = Children(
            lambda number: self._command(script, number, code),
            count,
            environment=os.environ,
            shutdown=self.shutdown,
            telemetry=telemetry,
        )
        self.is_up = threading.Event()
        self.codes: list[int] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.codes.append(self.children.run(on_up=self.is_up.set))

    def _command(self, script: str, number: int, code: int) -> Sequence[str]:
        if next(self._refusals, None) is not None:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return command(script, number, code)

    def ended(self) -> int:
        self._thread.join(30)
        (code,) = self.codes
        return code


def command(script: str, number: int, code: int) -> Sequence[str]:
    return sys.executable, "-c", script, str(number), str(code)


@pytest.mark.parametrize("code", [0, 70])
def test_children_are_told_and_their_worst_code_is_given(code: int) -> None:
    family = Family(SAYS_AND_WAITS, 2, code=code)
    assert family.is_up.wait(20)
    assert {child.admin for child in family.children.at()} == {"http://127.0.0.1:1"}
    family.shutdown.request("SIGTERM")
    family.shutdown.request("SIGTERM")
    assert family.ended() == code
    assert family.children.at() == ()


async def test_pauses_before_a_crashing_child_comes_again_grow() -> None:
    family = Family(CRASHES)
    await family.probe.wait("child.ended", count=2, within=20)
    assert [one.facts["again_after"] for one in family.probe.of("child.ended")][:2] == [1.0, 2.0]
    family.shutdown.request("SIGTERM")
    assert family.ended() == 0, "nothing ran that the drain had to end"
    assert not family.is_up.is_set()


async def test_a_child_that_was_killed_comes_again() -> None:
    family = Family(SAYS_AND_WAITS)
    assert family.is_up.wait(20)
    (child,) = family.children.at()
    os.kill(child.pid, signal.SIGKILL)
    heard = await family.probe.wait("child.ended", within=20)
    assert (heard.facts["exit_code"], heard.facts["again_after"]) == (137, 1.0)
    await family.probe.wait("child.started", count=2, within=20)
    family.shutdown.request("SIGTERM")
    assert family.ended() == 0


def test_a_child_that_outlives_the_deadline_is_killed() -> None:
    family = Family(IGNORES, seconds=0.5)
    assert family.is_up.wait(20)
    family.shutdown.request("SIGTERM")
    assert family.ended() == 137


async def test_a_child_that_the_system_refuses_is_tried_again_and_the_others_go_on() -> None:
    family = Family(SAYS_AND_WAITS, 2, refused=1)
    refused = await family.probe.wait("child.not_started", within=20)
    assert refused.facts == {"place": 0, "error": "Resource temporarily unavailable", "again_after": 1.0}
    assert family.is_up.wait(20)
    assert list(family.probe.of("child.ended")) == []
    family.shutdown.request("SIGTERM")
    assert family.ended() == 0


def test_children_of_a_parent_that_fails_are_told_before_they_are_killed(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise RuntimeError("of the parent's own")

    telemetry = Telemetry(metrics=Metrics())
    children = Children(
        lambda number: command(LEAVES_A_WORD, number, 0),
        2,
        environment=os.environ,
        shutdown=Shutdown(drain_seconds=10.0, telemetry=telemetry),
        telemetry=telemetry,
    )
    with pytest.raises(RuntimeError, match="own"):
        children.run(on_up=fail)
    assert capfd.readouterr().out == "left in order" * 2
