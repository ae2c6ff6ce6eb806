"""What every test may ask for: a clean environment, and databases that start nothing until asked for."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from app.cli.devdb import DevPostgres
from tests.support import pooler, postgres
from tests.support.order import long_ones_first

pytest_plugins = ["app.testing.plugin"]  # as pytest loads it by itself where the distribution is installed

# How long examples take to make says how busy the machine is, and nothing about what is tested. They are the same ones
# each time, so that a run is decided by what was changed; `make soak` looks for new ones.
hypothesis.settings.register_profile(
    "outlast",
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=True,
)
hypothesis.settings.load_profile("outlast")
hypothesis.settings.register_profile("soak", derandomize=False)

IN_CI = os.environ.get("CI") == "true"


def pytest_configure(config: pytest.Config) -> None:
    """Choose the examples before tests that have any are read."""
    hypothesis.settings.load_profile("soak" if config.option.markexpr == "soak" else "outlast")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OUTLAST_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def postgres_server(worker_id: str) -> Iterator[postgres.Server]:
    """The run's server, as an administrator."""
    url = os.environ.get("TEST_DATABASE_URL")
    shared = None
    if not url:
        cluster = postgres.run_cluster()
        postgres.start_once(cluster)
        url = cluster.dsn(postgres.SUPERUSER_DATABASE)
        shared = postgres.lock_of(cluster)
    server = postgres.Server(url, worker=worker_id, shared=shared)
    yield server
    server.close()


@pytest.fixture
def make_database(postgres_server: postgres.Server) -> Iterator[Callable[..., str]]:
    """Makes databases, migrated or with `migrated=False` empty, and gives their URLs; they go with the test.

    What a migrated one was used for before cannot be told (`tests.support.handover`).
    """
    taken: list[str] = []
    made: list[str] = []

    def make(*, migrated: bool = True) -> str:
        names = taken if migrated else made
        names.append(postgres_server.take() if migrated else postgres_server.create(migrated=False))
        return postgres_server.url(names[-1])

    yield make
    for name in taken:
        postgres_server.give_back(name)
    for name in made:
        postgres_server.drop(name)


@pytest.fixture
def database_url(make_database: Callable[..., str]) -> str:
    """The URL of a fresh database with the newest schema."""
    return make_database()


@pytest.fixture(scope="session")
def transaction_pooler(postgres_server: postgres.Server) -> Iterator[pooler.Pooler]:
    """A pgbouncer as it comes, in transaction mode, before the run's server."""
    with (
        pooler.folder() as folder,
        pooler.running_pooler(postgres_server.url(postgres.SUPERUSER_DATABASE), folder) as running,
    ):
        yield running


@pytest.fixture
def pooled_url(transaction_pooler: pooler.Pooler, database_url: str) -> str:
    """The URL of `database_url`'s database behind the transaction pooler."""
    return transaction_pooler.url(database_url)


@pytest.fixture
def empty_database_url(make_database: Callable[..., str]) -> str:
    """The URL of a fresh database without any schema."""
    return make_database(migrated=False)


@pytest.fixture
def own_postgres() -> Iterator[DevPostgres]:
    """A started server of the test's own, to be stopped and killed at will; its database `outlast` is empty."""
    with tempfile.TemporaryDirectory(prefix="outlast-own-", dir=postgres.scratch()) as folder:
        Path(folder).chmod(0o711)  # the server may run under another account
        cluster = postgres.new_cluster(Path(folder) / "pg")
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop("immediate")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect with no look for garbage: the tests are none, and would be looked through again at every turn."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)  # behind the shuffle
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On several workers, have what takes long begin before the end."""
    workers = int(getattr(config, "workerinput", {}).get("workercount", 1))
    if workers > 1:
        items[:] = long_ones_first(items, _time_limit, workers=workers)


def _time_limit(item: pytest.Item) -> float:
    """Give the seconds of a test's own time limit, 0 without one."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker is not None and marker.args else 0.0


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped test is a failed run: what is not run there is run nowhere."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if IN_CI and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if IN_CI and terminalreporter.stats.get("skipped"):
        terminalreporter.write_line("CI: skipped tests fail the run", red=True)
    _tell_of_cuts(terminalreporter)


def _tell_of_cuts(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the matrix of cuts held: counts, and with `-v` every cell."""
    told = [
        value
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == "cuts" and isinstance(value, dict)
    ]
    if not told:
        return
    terminalreporter.section("statements cut")
    for group in told:
        terminalreporter.write_line(group["counts"])
        for line in group["cells"] if terminalreporter.verbosity > 0 else ():
            terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """The process that outlives the workers ends what the first of them started."""
    if hasattr(config, "workerinput"):
        return
    session = config.pluginmanager.get_plugin("dsession")
    manager = getattr(session, "nodemanager", None)
    postgres.end_run(getattr(manager, "testrunuid", None) or str(os.getpid()))
