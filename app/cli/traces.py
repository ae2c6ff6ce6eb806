"""`outlast jobs traces` and `outlast jobs check`: what is recorded of runs, and whether the code at hand fits it.

Traces go to stdout or a file, findings to stdout, progress and sums to stderr.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from ..domain.errors import RequestInvalid
from ..domain.state import State
from .report import FAILURE, say
from .traces_print import Progress, document_of, print_finding, print_sum

if TYPE_CHECKING:
    from ..drivers.reading import ListQuery
    from ..replay.trace import Trace
    from ..settings import Settings

_State = Annotated[
    list[State] | None, typer.Option(help="Only jobs in this state; may be repeated. All that have not ended without.")
]
_Name = Annotated[str | None, typer.Option(help="Only this job type.")]
_Queue = Annotated[str | None, typer.Option(help="Only this queue.")]
_Tenant = Annotated[str | None, typer.Option(help="Only this tenant.")]


def traces(
    *,
    out: Annotated[Path | None, typer.Option(help="Write to this file; to stdout without.")] = None,
    state: _State = None,
    name: _Name = None,
    queue: _Queue = None,
    tenant: _Tenant = None,
    db: Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")] = None,
) -> None:
    """Write what is recorded of runs that have not ended, one JSON document a line, payloads and values included."""
    from ..replay.line import line_of
    from ..settings import Settings

    with ExitStack() as stack:
        found = stack.enter_context(_stored(Settings.read(database_url=db), _query(state, name, queue, tenant)))
        target = sys.stdout.buffer if out is None else stack.enter_context(_replaced(out))
        progress = Progress("written")
        for trace in found:
            target.write(line_of(trace))
            progress.count()
    say(f"{progress.done:,} traces written{'' if out is None else f' to {out}'}")


def check(
    *,
    against: Annotated[str, typer.Option(help="Address of a database, or a file that `outlast jobs traces` wrote.")],
    jobs: Annotated[
        str | None, typer.Option(help="Modules that declare job types, separated by commas; OUTLAST_JOBS without it.")
    ] = None,
    state: _State = None,
    name: _Name = None,
    queue: _Queue = None,
    tenant: _Tenant = None,
    limit: Annotated[float, typer.Option(help="Seconds that the replay of one run may take.", min=0.1)] = 5.0,
    strict: Annotated[bool, typer.Option("--strict", help="Also fail for runs of job types this code lacks.")] = False,
    allow_unchecked: Annotated[
        bool, typer.Option("--allow-unchecked", help="Name runs that could not be checked, and do not fail for them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Replay what is recorded of runs against the code at hand; exit code 1 if it would not go on with one of them."""
    from ..control.render import render
    from ..jobs.registry import load_registry
    from ..replay.attempt import ReplayOptions
    from ..replay.check import FAILED, Check, Verdict
    from ..settings import Settings

    settings = Settings.read(database_url=against if "://" in against else None, jobs=jobs)
    registry = load_registry(settings.jobs)
    if not len(registry):
        raise RequestInvalid(
            "there are no job types to check", fix="name their modules: --jobs app.mail,app.billing, or OUTLAST_JOBS"
        )
    named = FAILED | {Verdict.UNKNOWN} if strict else FAILED
    failed = named - {Verdict.UNCHECKED} if allow_unchecked else named
    checks = Check(registry, ReplayOptions(seconds=limit, result_max_bytes=settings.result_max_bytes))
    query, progress, findings = _query(state, name, queue, tenant), Progress("checked"), []
    with _stored(settings, query) if "://" in against else _filed(against, query) as found:
        for trace in found:
            finding = checks.check(trace)
            progress.count()
            if finding.verdict not in named:
                continue
            if as_json:
                findings.append(document_of(finding))
            else:
                print_finding(finding)
    if as_json:
        counts = {verdict.value: checks.counts[verdict] for verdict in Verdict}
        document = {"checked": progress.done, **counts, "partly": checks.partly, "findings": findings}
        sys.stdout.write(render(document).decode() + "\n")
    print_sum(checks)
    if any(checks.counts[verdict] for verdict in failed):
        raise typer.Exit(FAILURE)


# --- where traces come from and go to ---------------------------------------------------------------------------------


def _query(state: list[State] | None, name: str | None, queue: str | None, tenant: str | None) -> ListQuery:
    from ..drivers.reading import ListQuery

    return ListQuery(states=frozenset(state or ()), name=name, queue=queue, tenant=tenant)


@contextmanager
def _stored(settings: Settings, query: ListQuery) -> Iterator[Iterator[Trace]]:
    """Give the traces of a store. Its loop rests between pages: what is checked has loops of its own."""
    from ..drivers.opening import close_driver, open_driver
    from ..replay.export import Exporter
    from ..stores import build_driver
    from .store import OPEN

    driver = build_driver(settings)
    with asyncio.Runner() as runner:
        try:
            runner.run(open_driver(driver, within=OPEN))
            exporter = Exporter(driver, query)

            def pages() -> Iterator[Trace]:
                while (page := runner.run(exporter.page())) is not None:
                    yield from page

            yield pages()
        finally:
            runner.run(close_driver(driver))


@contextmanager
def _filed(name: str, query: ListQuery) -> Iterator[Iterator[Trace]]:
    """Give the traces of a file that a query finds; `-` is stdin."""
    if name == "-":
        yield _read(sys.stdin.buffer, query)
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(Path(name).open("rb"))
        except OSError as exc:
            raise RequestInvalid(
                f"{name} cannot be read: {exc.strerror}",
                fix="give the address of a database, postgresql://…, or a file that `outlast jobs traces --out` wrote",
            ) from exc
        yield _read(file, query)


def _read(file: IO[bytes], query: ListQuery) -> Iterator[Trace]:
    from ..replay.line import trace_of

    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        trace = trace_of(line, number=number)
        job = trace.job
        wanted = ((query.name, job.name), (query.queue, job.queue), (query.tenant, job.tenant))
        if (not query.states or job.state in query.states) and all(want in (None, has) for want, has in wanted):
            yield trace


@contextmanager
def _replaced(path: Path) -> Iterator[IO[bytes]]:
    """Write a file that is there once it is whole; for its owner alone, since payloads are in it."""
    part = path.with_name(f"{path.name}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as exc:
        raise RequestInvalid(
            f"{part} cannot be written: {exc.strerror}", fix="name a file in a folder of yours"
        ) from exc
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
