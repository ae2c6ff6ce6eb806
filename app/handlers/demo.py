"""Seven jobs and a schedule to try the service with, and to copy from.

A file read, a flaky, a failing, a long, a busy and two durable ones, and primes every minute. Each runs with an empty
payload: POST `{"name": "demo.flaky", "payload": {}}` to `/v1/jobs`. They show the ways to write a job: a pydantic model
or plain parameters, `async def` or `def`, with or without the `JobContext`. `dev` loads them.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import SystemRandom
from typing import Annotated, BinaryIO

from pydantic import BaseModel, Field

from ..jobs import JobContext, RetryPolicy, Terminal, job, schedule

_log = logging.getLogger(__name__)

_LINE = b"2026-01-01T00:00:00Z INFO request served path=/v1/things status=200 duration_ms=17 worker=%06d\n"
_LINES_BETWEEN_LOOKS = 10_000
_NUMBERS_BETWEEN_LOOKS = 1_000
_PIECE = timedelta(milliseconds=250)
_REPORT_EVERY = 40  # pieces: every ten seconds


class FileToCount(BaseModel):
    """A file to count, or how large a sample to make up when no file is named."""

    path: str | None = Field(None, description="A file below the worker's working directory; a sample when left out.")
    sample_megabytes: int = Field(8, ge=1, le=64)


class Counts(BaseModel):
    """What is in a file."""

    file: str
    lines: int
    words: int
    bytes: int
    longest_line: int


@job("demo.count_lines", timeout=timedelta(minutes=5))
def count_lines(ctx: JobContext, payload: FileToCount) -> Counts:
    """Read a file of some megabytes line by line and count what is in it.

    A plain `def`, because reading a file blocks: it runs in a thread and keeps nobody else waiting. It looks at its
    signal now and then, so that a deploy or a cancel does not wait for the end of the file.
    """
    if payload.path is not None:
        path = _below_here(payload.path)
        with path.open("rb") as file:
            return _count(ctx, payload.path, file)
    with tempfile.TemporaryFile() as sample:
        for number in range(payload.sample_megabytes * 1_000_000 // len(_LINE % 0)):
            sample.write(_LINE % number)
        sample.seek(0)
        return _count(ctx, "a sample", sample)


def _below_here(path: str) -> Path:
    """Let a caller read below the working directory only; a wrong path stays wrong, so no retry is spent on it."""
    here = Path.cwd()
    try:
        found = (here / path).resolve(strict=True)
    except (OSError, ValueError) as exc:
        raise Terminal(f"there is no file {path!r} below the worker's working directory") from exc
    if not found.is_relative_to(here) or not found.is_file():
        raise Terminal(f"{path!r} is not a file below the worker's working directory")
    return found


def _count(ctx: JobContext, name: str, file: BinaryIO) -> Counts:
    lines = words = size = longest = 0
    for line in file:
        lines += 1
        words += len(line.split())
        size += len(line)
        longest = max(longest, len(line.rstrip(b"\r\n")))
        if lines % _LINES_BETWEEN_LOOKS == 0:
            ctx.signal.raise_if_aborted()
    return Counts(file=name, lines=lines, words=words, bytes=size, longest_line=longest)


@job("demo.flaky", retry=RetryPolicy(max_attempts=10, backoff=timedelta(seconds=1), jitter="none"))
async def flaky(ctx: JobContext, failures: Annotated[int, Field(ge=0, le=9)] = 2) -> str:
    """Fail twice, then succeed: watch the attempts of one job add up.

    Plain parameters instead of a model: the payload is `{"failures": 3}`, or `{}` for the default.
    """
    if ctx.attempt <= failures:
        raise ConnectionError(f"the far side did not answer, attempt {ctx.attempt} of {failures + 1}")
    return f"succeeded on attempt {ctx.attempt}"


@job("demo.failing", retry=RetryPolicy(max_attempts=3, backoff=timedelta(seconds=1), jitter="none"))
async def failing(reason: str = "this job always fails") -> None:
    """Fail each time: after three attempts, one and two seconds apart, the job is a dead letter with its error kept."""
    raise RuntimeError(reason)


class Endurance(BaseModel):
    """How long to stay busy."""

    seconds: int = Field(60, ge=1, le=3600)


class Report(BaseModel):
    """What a long job did."""

    pieces: int
    seconds: float
    started: int = Field(description="How often this job was started, interruptions included.")


@job("demo.long", timeout=timedelta(hours=2))
async def long(ctx: JobContext, payload: Endurance) -> Report:
    """Work for a minute in quarter-second pieces and report every ten seconds; try a cancel or Ctrl-C meanwhile.

    Between pieces it asks its signal whether to go on. Told to stop by a deploy it is interrupted, which counts against
    no budget, and starts again on the next worker.
    """
    pieces = int(timedelta(seconds=payload.seconds) / _PIECE)
    for piece in range(1, pieces + 1):
        ctx.signal.raise_if_aborted()
        await asyncio.sleep(_PIECE.total_seconds())
        if piece % _REPORT_EVERY == 0:
            _log.info("demo.long %s: piece %d of %d", ctx.id, piece, pieces)
    return Report(pieces=pieces, seconds=pieces * _PIECE.total_seconds(), started=ctx.claim_no)


class Checkout(BaseModel):
    """What became of an order."""

    reserved_at: datetime
    approved_by: str | None = Field(description="Whoever the approval names; nobody when none came in time.")
    attempts: int = Field(description="How often this job was started: each wait gives the worker back.")


@job("demo.checkout", step_timeout=timedelta(seconds=30))
async def checkout(
    ctx: JobContext, order: str = "1001", approve_within_seconds: Annotated[int, Field(ge=1, le=86_400)] = 60
) -> Checkout:
    """Reserve, sleep five seconds, wait a minute for an approval: stop the worker at any point, nothing repeats.

    Each `ctx.step` is recorded, and a later start goes on after the last. While it sleeps or waits it holds no worker.
    It is approved by the event `demo.approved` with the order's number as its key, `{"by": "you"}` as its payload.
    """
    reserved_at = await ctx.step.run("reserve", _reserve, order)
    ctx.progress(0.3, f"order {order} is reserved")
    await ctx.step.sleep("cool-off", timedelta(seconds=5))
    ctx.log(f"order {order} waits for its approval")
    approval = await ctx.step.wait_for_event(
        "approval", "demo.approved", key=order, timeout=timedelta(seconds=approve_within_seconds)
    )
    ctx.progress(1.0, "approved" if approval else "nobody approved it")
    by = approval.get("by") if isinstance(approval, dict) else None
    return Checkout(reserved_at=reserved_at, approved_by=None if by is None else str(by), attempts=ctx.claim_no)


async def _reserve(order: str) -> datetime:
    """Do what must be done once; on a replay its first answer is given again."""
    _log.info("demo.checkout: order %s is reserved", order)
    return datetime.now(UTC)  # noqa: TID251 - a step records the moment it was made


class Parcel(BaseModel):
    """A parcel that was packed."""

    number: str = Field(description="Drawn once; however often the job is started, it is this one.")
    packed_in_seconds: float
    started: int = Field(description="How often this job was started, interruptions included.")


@job("demo.parcel", step_timeout=timedelta(minutes=10))
async def parcel(ctx: JobContext, seconds: Annotated[int, Field(ge=1, le=300)] = 20) -> Parcel:
    """Draw a number at random, then pack for twenty seconds: stop the worker meanwhile, and the number stays.

    Told to stop by a deploy it is interrupted in its second step. The next start gets the first from the record.
    """
    number = await ctx.step.run("number", _draw)
    await ctx.step.run("pack", _pack, ctx, seconds)
    return Parcel(number=number, packed_in_seconds=seconds, started=ctx.claim_no)


async def _draw() -> str:
    return f"{SystemRandom().randrange(10**9):09d}"


async def _pack(ctx: JobContext, seconds: int) -> None:
    pieces = int(timedelta(seconds=seconds) / _PIECE)
    for piece in range(1, pieces + 1):
        ctx.signal.raise_if_aborted()
        await asyncio.sleep(_PIECE.total_seconds())
        ctx.progress(piece / pieces, f"packed {piece} of {pieces}")


class Primes(BaseModel):
    """How far primes were counted."""

    below: int
    count: int
    largest: int | None


@job("demo.primes", timeout=timedelta(minutes=5))
def primes(ctx: JobContext, below: Annotated[int, Field(ge=0, le=5_000_000)] = 200_000) -> Primes:
    """Count primes by trial division, the slow way on purpose: a job that keeps a processor busy.

    A plain `def`, so it runs in a thread; it stops between batches of numbers when its signal says so.
    """
    found: list[int] = []
    for number in range(2, below):
        if number % _NUMBERS_BETWEEN_LOOKS == 0:
            ctx.signal.raise_if_aborted()
        if _is_prime(number, found):
            found.append(number)
    return Primes(below=below, count=len(found), largest=found[-1] if found else None)


every_minute = schedule(
    "demo.every-minute", job=primes, cron="* * * * *", tz="UTC", payload={"below": 20_000}, overlap="skip"
)


def _is_prime(number: int, smaller: list[int]) -> bool:
    for prime in smaller:
        if prime * prime > number:
            return True
        if number % prime == 0:
            return False
    return True
