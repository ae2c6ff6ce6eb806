"""Code under replay reaches nothing outside, takes no longer than it may, and leaves the process as it was."""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

from app.jobs.context import JobContext
from app.jobs.handle import job
from app.replay.attempt import ReplayOptions
from app.replay.check import Finding, Verdict
from tests.unit.replay_traces import NAME, QUICK, found, step, trace

BRIEF = replace(QUICK, seconds=0.1)
PACKED = trace(step("pack", 0, '"box"'))


async def over_asyncio() -> None:
    await asyncio.open_connection("127.0.0.1", 9)


async def by_name() -> None:
    await asyncio.open_connection("db.invalid", 5432)


async def over_a_socket() -> None:
    with socket.socket() as connection:
        connection.connect(("127.0.0.1", 9))


async def over_http() -> None:
    await asyncio.to_thread(urllib.request.urlopen, "http://host.invalid/")  # noqa: S310 - refused


async def of_a_library() -> None:
    socket.create_connection(("host.invalid", 9))


async def a_datagram() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(b"x", ("127.0.0.1", 9))


async def a_process() -> None:
    await asyncio.create_subprocess_exec(sys.executable, "-V")


async def a_message() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendmsg([b"x"], [], 0, ("127.0.0.1", 9))


async def a_message_to_its_peer() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendmsg([b"x"])


async def without_blocking() -> None:
    with socket.socket() as connection:
        connection.setblocking(False)
        connection.connect_ex(("127.0.0.1", 9))


async def a_server() -> None:
    await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)


async def the_address() -> None:
    socket.gethostbyname("host.invalid")


async def the_addresses() -> None:
    socket.gethostbyname_ex("host.invalid")


async def the_name_of_an_address() -> None:
    socket.gethostbyaddr("127.0.0.1")


async def the_name_of_a_socket() -> None:
    socket.getnameinfo(("127.0.0.1", 9), 0)


async def in_a_thread() -> None:
    await asyncio.to_thread(subprocess.run, ["true"], check=True)


async def a_shell() -> None:
    os.system("true")  # noqa: S605, ASYNC221 - refused


async def read_from_a_shell() -> None:
    os.popen("true")  # noqa: S605, ASYNC220 - refused


async def a_fork() -> None:
    if os.fork() == 0:
        os._exit(0)


async def a_fork_with_a_terminal() -> None:
    if os.forkpty()[0] == 0:
        os._exit(0)


async def a_posix_spawn() -> None:
    os.posix_spawn("/nowhere/true", ["true"], {})  # noqa: ASYNC221 - refused


async def a_spawn() -> None:
    os.spawnv(os.P_WAIT, "/nowhere/true", ["true"])  # noqa: S606, ASYNC221 - refused


async def another_program() -> None:
    os.execv("/nowhere/true", ["true"])  # noqa: S606 - refused


async def a_forked_worker() -> None:
    multiprocessing.get_context("fork").Process(target=print).start()


async def a_spawned_worker() -> None:
    multiprocessing.get_context("spawn").Process(target=print).start()


async def a_pool() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        pool.submit(print)


async def with_a_fallback() -> None:
    with suppress(Exception):
        await over_a_socket()


def ends(first: Callable[[], Awaitable[None]], *, before: bool = True, within: ReplayOptions = QUICK) -> Finding:
    """Check a body that does something before, or after, all that is recorded."""

    @job(NAME)
    async def body(ctx: JobContext) -> None:
        if before:
            await first()
        await ctx.step.run("pack", str)
        await first()

    return found(PACKED, body, options=within)


WAYS = [
    (over_asyncio, "connects to ('127.0.0.1', 9)"),
    (by_name, "looks up 'db.invalid'"),
    (over_a_socket, "connects to ('127.0.0.1', 9)"),
    (over_http, "looks up 'host.invalid'"),
    (of_a_library, "looks up 'host.invalid'"),
    (a_datagram, "sends to ('127.0.0.1', 9)"),
    (a_message, "sends to ('127.0.0.1', 9)"),
    (a_message_to_its_peer, "sends over a socket"),
    (without_blocking, "connects to ('127.0.0.1', 9)"),
    (a_server, "binds a socket to ('127.0.0.1', 0)"),
    (the_address, "looks up 'host.invalid'"),
    (the_addresses, "looks up 'host.invalid'"),
    (the_name_of_an_address, "looks up '127.0.0.1'"),
    (the_name_of_a_socket, "looks up ('127.0.0.1', 9)"),
    (a_process, "starts the process"),
    (in_a_thread, "starts the process ['true']"),
    (a_shell, "starts the process 'true'"),
    (read_from_a_shell, "starts the process ['/bin/sh', '-c', 'true']"),
    (a_fork, "forks its process"),
    (a_fork_with_a_terminal, "forks its process"),
    (a_posix_spawn, "starts the process ['true']"),
    (a_spawn, "forks its process"),
    (another_program, "becomes the process ['true']"),
    (a_forked_worker, "forks its process"),
    (a_spawned_worker, "starts the process"),
    (a_pool, "forks its process"),
    (with_a_fallback, "connects to ('127.0.0.1', 9)"),
]


@pytest.mark.parametrize(("way", "said"), WAYS, ids=[way.__name__ for way, _ in WAYS])
def test_what_reaches_outside_before_the_record_is_over_is_named(way: Callable[[], Awaitable[None]], said: str) -> None:
    finding = ends(way)
    assert finding.verdict is Verdict.UNCHECKED
    assert f"the body {said}" in finding.message
    assert f"outside of its steps, at {__file__}:" in finding.message
    assert ends(way, before=False).verdict is Verdict.FITS


def test_the_process_can_connect_and_start_others_again_afterwards() -> None:
    spawn = multiprocessing.util.spawnv_passfds
    ends(over_a_socket)
    assert multiprocessing.util.spawnv_passfds is spawn
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
    assert subprocess.run([sys.executable, "-V"], check=True, capture_output=True).returncode == 0


async def for_ever() -> None:
    await asyncio.Event().wait()


async def for_ever_deaf() -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


async def blocking() -> None:
    time.sleep(60)  # noqa: ASYNC251 - what bodies should not do


@pytest.mark.parametrize("way", [for_ever, for_ever_deaf, blocking])
def test_a_body_that_takes_too_long_is_left(way: Callable[[], Awaitable[None]]) -> None:
    began = time.monotonic()
    finding = ends(way, within=BRIEF)
    assert finding.verdict is Verdict.UNCHECKED
    assert "takes longer than a replay may" in finding.message
    assert time.monotonic() - began < 10


def test_an_alarm_that_was_set_before_goes_on() -> None:
    handler = signal.getsignal(signal.SIGALRM)
    left = signal.getitimer(signal.ITIMER_REAL)[0]
    ends(over_a_socket)
    assert signal.getsignal(signal.SIGALRM) is handler
    assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= left


def test_what_a_body_prints_is_no_finding(capsys: pytest.CaptureFixture[str]) -> None:
    async def speaks() -> None:
        sys.stdout.write("hello\n")

    assert ends(speaks).verdict is Verdict.FITS
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "hello\nhello\n")


def test_what_a_body_began_ends_with_the_replay() -> None:
    ended: list[str] = []

    async def beside() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    tasks: set[asyncio.Task[None]] = set()

    async def begins() -> None:
        tasks.add(asyncio.get_running_loop().create_task(beside()))
        await asyncio.sleep(0)

    assert ends(begins).verdict is Verdict.FITS
    assert ended == ["cancelled", "cancelled"]
