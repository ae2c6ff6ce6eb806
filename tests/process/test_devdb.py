"""The PostgreSQL of `outlast dev`: found again after a kill, restarted under a drain, at home in awkward folders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from app.cli import devdb_account
from app.cli.devdb import DevPostgres
from app.domain.errors import DriverUnavailable
from tests.support import postgres

pytestmark = [pytest.mark.process, pytest.mark.postgres]

CHECKOUT = Path(__file__).parents[2]

# Starts a server as `outlast dev` would, says its pid and waits for the end of its input.
STARTER = """
import signal, sys
from pathlib import Path
from app.cli.devdb import DevPostgres
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
server = DevPostgres(Path(sys.argv[1]), version=sys.argv[2], durable=False)
server.start()
server.supervise()
print(server.pid, flush=True)
sys.stdin.read()
server.stop()
"""


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="outlast-dev-", dir=postgres.scratch()) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder) / "pg"


@pytest.fixture
def make(root: Path) -> Iterator[Callable[..., DevPostgres]]:
    made: list[DevPostgres] = []

    def build(where: Path = root, say: Callable[[str], None] = print) -> DevPostgres:
        made.append(DevPostgres(where, version=postgres.chosen_version(), durable=False, say=say))
        return made[-1]

    yield build
    for server in made:
        server.stop("immediate")
        server.cluster.remove()


def starter(root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", STARTER, str(root), postgres.chosen_version()],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def finish(process: subprocess.Popen[str]) -> None:
    process.communicate()


async def ask(server: DevPostgres, sql: str) -> object:
    connection = await asyncpg.connect(server.dsn(scheme="postgresql"))
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


def eventually(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.02)


async def test_a_database_outlives_stop_kill_and_restart(make: Callable[..., DevPostgres]) -> None:
    server = make()
    server.start()
    await ask(server, "create table kept (n int)")
    await ask(server, "insert into kept values (1)")
    server.stop()
    assert server.pid is None
    server.start()
    server.kill()
    assert server.pid is None
    server.start()
    server.restart()
    server.stop_immediate()
    server.stop_immediate()
    server.start()
    assert await ask(server, "select n from kept") == 1
    assert await ask(server, "show server_encoding") == "UTF8"
    assert await ask(server, "select lower('ÄÉ')") == "äé"
    assert await ask(server, "select 'a' > 'B'"), "sorted by code point"


async def test_no_tcp_port_is_opened_and_pgport_is_not_followed(
    make: Callable[..., DevPostgres], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "9")
    monkeypatch.setenv("PGHOST", "198.51.100.1")
    server = make()
    server.start()
    assert await ask(server, "show listen_addresses") == ""
    mode = server.cluster.socket_dir.stat().st_mode & 0o777
    assert mode == 0o700, "only the server's account and root get in"


def test_a_server_whose_starter_was_killed_is_taken_over(root: Path, make: Callable[..., DevPostgres]) -> None:
    first = starter(root)
    pid = int(said(first))
    first.kill()
    finish(first)
    lines: list[str] = []
    second = make(say=lines.append)
    second.start()
    assert second.pid == pid
    assert any("taken over" in line for line in lines)
    second.stop()
    assert second.pid is None


def test_a_folder_in_use_is_refused(root: Path, make: Callable[..., DevPostgres]) -> None:
    first = starter(root)
    said(first)
    with pytest.raises(DriverUnavailable, match="in use by another process"):
        make().start()
    finish(first)


def test_a_refused_start_leaves_the_other_process_its_server(root: Path, make: Callable[..., DevPostgres]) -> None:
    first = make()
    first.start()
    pid = first.pid
    second = make()
    with pytest.raises(DriverUnavailable, match="in use"):
        second.start()
    second.stop()
    second.kill()
    assert first.pid == pid


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_group_takes_the_server_away_for_a_moment_only(
    sent: signal.Signals, root: Path, make: Callable[..., DevPostgres]
) -> None:
    dev = starter(root)
    pid = int(said(dev))
    assert os.getpgid(pid) == dev.pid, "the server is in the process group of its starter"
    os.killpg(dev.pid, sent)
    watcher = make()
    eventually(lambda: watcher.pid not in {None, pid})
    finish(dev)
    assert watcher.pid is None


async def test_sessions_live_on_through_a_terminate_to_the_group(root: Path, make: Callable[..., DevPostgres]) -> None:
    dev = starter(root)
    said(dev)
    connection = await asyncpg.connect(make().dsn(scheme="postgresql"))
    os.killpg(dev.pid, signal.SIGTERM)
    for _ in range(20):
        assert await connection.fetchval("select 1 from pg_sleep(0.01)") == 1
    await connection.close()
    finish(dev)


def test_a_pid_file_that_names_another_process_is_no_obstacle(make: Callable[..., DevPostgres]) -> None:
    server = make()
    server.start()
    server.kill()
    pid_file = server.cluster.data / "postmaster.pid"
    _, *rest = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(os.getppid()), *rest, ""]))
    assert server.pid is None
    server.start()
    assert server.pid is not None


async def test_a_path_too_long_for_a_socket_gets_one_elsewhere(root: Path, make: Callable[..., DevPostgres]) -> None:
    server = make(root / ("long" * 30))
    server.start()
    assert server.cluster.root not in server.cluster.socket_dir.parents
    assert await ask(server, "select 1") == 1


async def test_a_path_with_odd_characters_works(root: Path, make: Callable[..., DevPostgres]) -> None:
    server = make(root / 'a b, "c" & ü%?')
    server.start()
    assert await ask(server, "select 1") == 1
    engine = create_async_engine(server.dsn())
    async with engine.connect() as connection:
        assert await connection.scalar(text("select current_database()")) == "outlast"
    await engine.dispose()


async def test_a_folder_closed_to_the_servers_account_is_replaced_and_said(
    root: Path, make: Callable[..., DevPostgres]
) -> None:
    closed = root / "closed"
    closed.mkdir(parents=True, mode=0o700)
    lines: list[str] = []
    server = make(closed / "pg", say=lines.append)
    server.start()
    assert await ask(server, "select 1") == 1
    if os.geteuid() == 0:  # any other account is the server's own
        assert closed not in server.cluster.root.parents
        assert str(server.cluster.root) in lines[0]
    else:
        assert server.cluster.root == closed / "pg"
        assert lines == []


async def test_without_a_postgres_account_another_stands_in(
    make: Callable[..., DevPostgres], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devdb_account, "_STAND_INS", ("no-such-account", "nobody"))
    server = make()
    server.start()
    assert await ask(server, "select 1") == 1


def test_an_interrupted_first_start_leaves_nothing_half_done(make: Callable[..., DevPostgres]) -> None:
    server = make()
    server.cluster.lay_out()
    (server.cluster.root / "cluster.new").mkdir()
    (server.cluster.root / "cluster.new" / "PG_VERSION").write_text("9\n")
    server.start()
    assert server.pid is not None


def test_a_folder_of_somebody_elses_is_not_trusted(root: Path, make: Callable[..., DevPostgres]) -> None:
    root.parent.joinpath("target").mkdir()
    root.symlink_to(root.parent / "target")
    with pytest.raises(DriverUnavailable, match="not a folder of this user's"):
        make().start()
    root.unlink()


def test_wipe_deletes_the_data(make: Callable[..., DevPostgres]) -> None:
    server = make()
    server.start()
    server.wipe()
    assert not server.cluster.root.exists()
    server.start()
    assert server.pid is not None
