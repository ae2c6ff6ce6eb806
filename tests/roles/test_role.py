"""The lifecycle that every role shares, on a role that does nothing but live."""

from __future__ import annotations

import asyncio
import io
import sys
import time

import pytest

from app.domain.errors import Draining
from app.lifecycle.drain import DrainNotice
from app.lifecycle.role import Life, Phase, Role
from app.lifecycle.shutdown import ExitCode, Shutdown
from app.observability.metrics import Metrics
from app.observability.probe import Probe
from app.observability.telemetry import Telemetry


class Calm(Role):
    """Lives until told to leave; `on_close` is awaited last."""

    def __init__(
        self, name: str = "calm", *, close_error: Exception | None = None, order: list[str] | None = None
    ) -> None:
        super().__init__(name)
        self.lives = 0
        self.close_error = close_error
        self.order = order if order is not None else []
        self.notices: list[str] = []
        self.given_up = 0
        self.close_gate: asyncio.Event | None = None

    @property
    def abandoned(self) -> int:
        return self.given_up

    def told(self, life: Life, notice: DrainNotice) -> None:
        self.notices.append(notice.cause)

    async def live(self, life: Life) -> None:
        self.lives += 1
        life.running()
        await life.is_leaving.wait()
        self.order.append(f"{self.name} accept")
        life.idle()
        if self.close_gate is not None:
            await self.close_gate.wait()
        self.order.append(f"{self.name} close")
        if self.close_error is not None:
            raise self.close_error


def notice(seconds: float = 5.0, cause: str = "SIGTERM") -> DrainNotice:
    return DrainNotice(cause=cause, started=time.monotonic(), seconds=seconds)


def shutdown(seconds: float = 5.0) -> tuple[Shutdown, Probe]:
    telemetry = Telemetry(metrics=Metrics())
    return Shutdown(drain_seconds=seconds, telemetry=telemetry), Probe(telemetry)


def test_what_bodies_printed_is_written_before_a_process_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[object] = []

    class Stream(io.StringIO):
        def flush(self) -> None:
            did.append("flushed")

    monkeypatch.setattr(sys, "stdout", Stream())
    monkeypatch.setattr(sys, "stderr", Stream())
    leaving = Shutdown(drain_seconds=1, telemetry=Telemetry(metrics=Metrics()), end=did.append)
    leaving.finish(70)
    assert did == ["flushed", "flushed", 70]


@pytest.mark.parametrize("error", [OSError(32, "Broken pipe"), ValueError("closed")])
def test_a_stream_that_cannot_be_written_does_not_keep_a_process(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(io.StringIO):
        def flush(self) -> None:
            raise error

    did: list[object] = []
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", Broken())
        Shutdown(drain_seconds=1, telemetry=Telemetry(metrics=Metrics()), end=did.append).finish(70)
    assert did == [70]


def now(role: Role) -> Phase:
    """Read the phase anew, where a type checker would remember it."""
    return role.phase


async def served(leaving: Shutdown, *roles: Role) -> asyncio.Future[int]:
    """Serve the roles and return once all run."""
    serving = asyncio.ensure_future(leaving.serve(roles))
    while any(role.phase is not Phase.RUNNING for role in roles):
        await asyncio.sleep(0)
    return serving


async def test_ten_cycles_are_ten_lives() -> None:
    role = Calm()
    for _ in range(10):
        await role.start()
        assert now(role) is Phase.RUNNING
        await asyncio.gather(role.stop(), role.stop())
        assert now(role) is Phase.STOPPED
    assert role.lives == 10


async def test_a_failure_to_close_reaches_every_caller_and_the_role_is_stopped() -> None:
    role = Calm(close_error=OSError("no"))
    await role.start()
    outcomes = await asyncio.gather(role.stop(), role.stop(), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [OSError, OSError]
    assert role.phase is Phase.STOPPED
    role.close_error = None
    await role.start()
    await role.stop()


async def test_a_cancelled_caller_of_stop_does_not_cancel_the_teardown() -> None:
    role = Calm()
    role.close_gate = asyncio.Event()
    await role.start()
    first, second = asyncio.ensure_future(role.stop()), asyncio.ensure_future(role.stop())
    await role.wait_idle()
    first.cancel()
    await asyncio.wait({first})
    role.close_gate.set()
    await second
    assert first.cancelled()
    assert role.order == ["calm accept", "calm close"]


async def test_start_is_refused_while_leaving() -> None:
    role = Calm()
    role.close_gate = asyncio.Event()
    await role.start()
    role.drain(notice())
    with pytest.raises(Draining):
        await role.start()
    role.close_gate.set()
    await role.stop()


async def test_a_drain_of_a_role_that_does_not_run_is_nothing() -> None:
    role = Calm()
    role.drain(notice())
    assert role.phase is Phase.NEW
    await role.start()
    await role.stop()


async def test_every_bind_is_told() -> None:
    role = Calm()
    role.close_gate = asyncio.Event()
    await role.start()
    role.drain(notice(cause="http"))
    role.drain(notice(cause="SIGTERM"))
    role.close_gate.set()
    await role.stop()
    assert role.notices == ["http", "SIGTERM"]


async def test_a_process_drains_all_roles_before_it_closes_any() -> None:
    leaving, probe = shutdown()
    order: list[str] = []
    roles = [Calm("a", order=order), Calm("b", order=order)]
    for role in roles:
        role.close_gate = asyncio.Event()
    serving = await served(leaving, *roles)
    assert not leaving.is_draining
    first = leaving.request("http")
    assert leaving.request("SIGTERM") is first
    await asyncio.gather(*(role.wait_idle() for role in roles))
    for role in roles:
        assert role.close_gate is not None
        role.close_gate.set()
    assert await serving == ExitCode.CLEAN
    assert order[:2] == ["a accept", "b accept"]
    assert probe.names() == ["drain.started", "drain.ended"]
    status = leaving.status()
    assert (status.state, status.phase, status.signal, status.reason) == ("stopped", "close", None, "http")
    assert leaving._telemetry.metrics.registry.get_sample_value("outlast_drain_phase") == 3


async def test_abandoned_work_has_its_exit_code() -> None:
    leaving, _ = shutdown()
    role = Calm()
    role.given_up = 1
    serving = await served(leaving, role)
    leaving.request("SIGTERM")
    assert await serving == ExitCode.ABANDONED


async def test_a_role_that_does_not_close_by_the_deadline_is_left() -> None:
    leaving, _ = shutdown(seconds=0.2)
    role = Calm()
    role.close_gate = asyncio.Event()
    serving = await served(leaving, role)
    leaving.request("SIGTERM")
    assert await serving == ExitCode.ABANDONED
    role.close_gate.set()
    await role.stop()


async def test_a_role_that_cannot_close_does_not_keep_the_others_from_closing() -> None:
    leaving, probe = shutdown()
    order: list[str] = []
    roles = [Calm("bad", close_error=OSError(), order=order), Calm("good", order=order)]
    serving = await served(leaving, *roles)
    leaving.request("SIGTERM")
    assert await serving == ExitCode.LOOP_DIED
    assert "good close" in order
    assert len(probe.of("role.failed", role="bad")) == 1


class Broken(Role):
    async def live(self, life: Life) -> None:
        raise OSError("no port")


async def test_a_start_that_fails_stops_what_had_started_and_is_raised() -> None:
    leaving, _ = shutdown()
    good = Calm("good")
    with pytest.raises(OSError, match="no port"):
        await leaving.serve([good, Broken("broken")])
    assert good.phase is Phase.STOPPED


async def test_a_start_that_hangs_does_not_keep_a_process_past_its_deadline() -> None:
    class Hangs(Role):
        gate = asyncio.Event()

        async def live(self, life: Life) -> None:
            await self.gate.wait()

    leaving, _ = shutdown(seconds=0.2)
    role = Hangs("hangs")
    serving = asyncio.ensure_future(leaving.serve([role]))
    await asyncio.sleep(0)
    began = leaving.request("SIGTERM").started
    assert await serving == ExitCode.ABANDONED
    assert time.monotonic() - began < 2.0
    role.gate.set()
    await role.stop()


async def test_a_request_before_serving_starts_nothing() -> None:
    leaving, _ = shutdown()
    leaving.request("SIGTERM")
    role = Calm()
    assert await leaving.serve([role]) == ExitCode.CLEAN


async def test_start_up_work_is_cut_by_a_request() -> None:
    leaving, _ = shutdown()
    cut: list[bool] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut.append(True)
            raise

    working = asyncio.ensure_future(leaving.unless_requested(waits()))
    await asyncio.sleep(0)
    leaving.request("SIGTERM")
    assert await working is False
    assert cut == [True]


async def test_start_up_work_that_ends_first_is_done_and_its_failure_raised() -> None:
    leaving, _ = shutdown()

    async def fine() -> None:
        pass

    async def fails() -> None:
        raise ZeroDivisionError

    assert await leaving.unless_requested(fine()) is True
    with pytest.raises(ZeroDivisionError):
        await leaving.unless_requested(fails())
