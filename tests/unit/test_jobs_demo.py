"""The demo jobs do what their docstrings say, from an empty payload on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.domain.errors import Aborted
from app.handlers import demo
from app.jobs import JobContext, JobHandle, Registry, Terminal
from app.jobs.invoke import bind, encode_result
from app.jobs.jobtype import JobType
from app.steps.api import Steps
from app.steps.suspension import Suspension
from tests.unit.jobs_fakes import FakeSignal, context
from tests.unit.steps_fakes import FakeRun

NAMES = {
    *("demo.checkout", "demo.count_lines", "demo.flaky", "demo.failing", "demo.long", "demo.parcel", "demo.primes"),
}


def _handle(name: str) -> JobHandle[Any, Any]:
    handle = Registry.from_modules(["app.handlers.demo"]).get(name)
    assert handle is not None
    return handle


def test_the_registry_finds_them_all() -> None:
    assert Registry.from_modules(["app.handlers.demo"]).names == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_runs_from_an_empty_payload_and_says_what_it_does(name: str) -> None:
    handle = _handle(name)
    JobType.of_handle(handle).check_payload("{}", {})
    bind(handle, "{}", context())
    assert len(handle.doc) > 40


def test_count_lines_makes_a_sample_of_the_size_asked_for() -> None:
    counts = demo.count_lines(context(), demo.FileToCount(sample_megabytes=1))
    assert 900_000 < counts.bytes <= 1_000_000
    assert counts.lines * (counts.longest_line + 1) == counts.bytes
    assert encode_result(demo.count_lines, counts)


def test_count_lines_counts_the_file_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("some.txt").write_bytes(b"one two\r\n\nthree")
    counts = demo.count_lines(context(), demo.FileToCount(path="some.txt"))
    assert counts == demo.Counts(file="some.txt", lines=3, words=3, bytes=15, longest_line=7)


@pytest.mark.parametrize("path", ["/etc/hostname", "../outside.txt", "link", "missing", "folder", "a\0b", ""])
def test_count_lines_reads_below_the_working_directory_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    inside = tmp_path / "inside"
    inside.joinpath("folder").mkdir(parents=True)
    tmp_path.joinpath("outside.txt").write_text("secret")
    inside.joinpath("link").symlink_to(tmp_path / "outside.txt")
    monkeypatch.chdir(inside)
    with pytest.raises(Terminal):
        demo.count_lines(context(), demo.FileToCount(path=path))


def test_count_lines_and_primes_stop_when_told() -> None:
    with pytest.raises(Aborted):
        demo.count_lines(context(signal=FakeSignal(looks=0)), demo.FileToCount(sample_megabytes=2))
    with pytest.raises(Aborted):
        demo.primes(context(signal=FakeSignal(looks=0)))


async def test_flaky_fails_twice_then_succeeds() -> None:
    for attempt in (1, 2):
        with pytest.raises(ConnectionError):
            await demo.flaky(context(attempt=attempt))
    assert await demo.flaky(context(attempt=3)) == "succeeded on attempt 3"


async def test_failing_fails_with_growing_delays_and_few_attempts() -> None:
    with pytest.raises(RuntimeError, match="always"):
        await demo.failing()
    retry = demo.failing.policy.retry
    assert retry.max_attempts == 3
    assert retry.delay_after(1, 0.5) < retry.delay_after(2, 0.5)


async def test_long_works_in_pieces_and_stops_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rest = asyncio.sleep

    async def no_wait(_seconds: float) -> None:
        await rest(0)

    monkeypatch.setattr(asyncio, "sleep", no_wait)
    report = await demo.long(context(claim_no=2), demo.Endurance())
    assert report == demo.Report(pieces=240, seconds=60.0, started=2)
    signal = FakeSignal(looks=5)
    with pytest.raises(Aborted):
        await demo.long(context(signal=signal), demo.Endurance())
    assert signal.looked == 5


def test_primes_counts_primes() -> None:
    assert demo.primes(context(), 100) == demo.Primes(below=100, count=25, largest=97)
    assert demo.primes(context(), 0) == demo.Primes(below=0, count=0, largest=None)


def test_importing_what_authors_import_brings_no_machinery_with_it() -> None:
    script = (
        "import sys, app.jobs, app.handlers.demo\n"
        "assert not {'sqlalchemy', 'asyncpg', 'fastapi', 'structlog'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


async def test_checkout_reserves_once_sleeps_and_takes_its_approval() -> None:
    run = FakeRun()

    def body(step: Steps) -> Any:
        def progress(_value: float, message: str) -> None:
            said.append(message)

        ctx = SimpleNamespace(step=step, progress=progress, log=said.append, claim_no=run.claim_no)
        return demo.checkout(cast("JobContext", ctx))

    said: list[str] = []
    for wait in ("cool-off", "approval"):
        with pytest.raises(Suspension):
            await run.attempt(body)
        run.over(wait, '{"by":"ann"}' if wait == "approval" else None, has_event=wait == "approval")
    done = await run.attempt(body)
    assert (done.approved_by, done.attempts, run.recorder.replayed) == ("ann", 3, 3)
    assert said[-1] == "approved"


async def test_parcel_draws_its_number_once_however_often_it_is_told_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, rest = FakeRun(), asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _seconds: rest(0))
    signals = iter([FakeSignal(looks=3), FakeSignal()])

    def body(step: Steps) -> Any:
        ctx = SimpleNamespace(step=step, progress=lambda *_: None, signal=next(signals), claim_no=run.claim_no)
        return demo.parcel(cast("JobContext", ctx), 1)

    with pytest.raises(Aborted):
        await run.attempt(body)
    (drawn,) = run.steps.values()
    done = await run.attempt(body)
    assert drawn.value == f'"{done.number}"'
    assert (done.packed_in_seconds, done.started, run.recorder.replayed) == (1, 2, 1)
