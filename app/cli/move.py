"""`outlast jobs move`: ready and delayed jobs go to another database, counted first, with progress on stderr.

Ctrl-C ends it after the batch in flight. However it ended, the same command goes on with what is left, and with what
was on its way.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import parse_qs, urlsplit

import typer

from .acting import Reason, acting
from .progress import Progress
from .report import FAILURE, say
from .store import OPEN

if TYPE_CHECKING:
    from ..control.moving import MoveControl
    from ..domain.moving import MoveCount
    from ..settings import Settings

T = TypeVar("T")

_INTERRUPTED = 130
_JOBS = "jobs"


def move(
    *,
    to: Annotated[str, typer.Option("--to", help="Address of the database that the jobs are to go to.")],
    queue: Annotated[str | None, typer.Option(help="Only jobs of this queue.")] = None,
    batch: Annotated[int, typer.Option(help="So many jobs in each commit.", min=1, max=5_000)] = 500,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and move nothing.")] = False,
    reason: Reason = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    db: Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")] = None,
) -> None:
    """Move ready and delayed jobs to another database, each exactly once; running, suspended and held ones stay."""
    from ..domain.moving import REFUSED

    async def work(control: MoveControl) -> tuple[MoveCount, Counter[str], bool]:
        counted = await control.count(queue)
        if dry_run:
            return counted, Counter(), False
        total = sum(counted.going.values()) + counted.on_the_way
        came, is_cut = await _followed(control, total, queue=queue, batch=batch, reason=reason)
        return counted, came, is_cut

    counted, came, is_cut = _with_both(db, to, work)
    _print(counted, came, dry_run=dry_run, is_cut=is_cut, as_json=as_json)
    if is_cut:
        say("stopped; the same command again goes on with what is left")
        raise typer.Exit(_INTERRUPTED)
    if any(came[verdict.value] for verdict in REFUSED):
        raise typer.Exit(FAILURE)


async def _followed(
    control: MoveControl, total: int, *, queue: str | None, batch: int, reason: str | None
) -> tuple[Counter[str], bool]:
    """Go through the steps with progress, until the end or Ctrl-C; the second Ctrl-C cuts the step itself."""
    came: Counter[str] = Counter()
    stop, loop, progress = asyncio.Event(), asyncio.get_running_loop(), Progress(total, _JOBS)

    def heard() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)
        say("\nending after this batch; Ctrl-C again ends it at once")

    loop.add_signal_handler(signal.SIGINT, heard)
    try:
        async for step in control.move(queue=queue, batch=batch, by=acting(reason)):
            came.update({verdict.value: count for verdict, count in step.verdicts.items()})
            came.update(step.stayed)
            progress.show(sum(came.values()))
            if stop.is_set():
                break
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        progress.end()
    return came, stop.is_set()


def _with_both(db: str | None, to: str, verb: Callable[[MoveControl], Awaitable[T]]) -> T:
    from ..settings import Settings

    return asyncio.run(_open(Settings.read(database_url=db), Settings.read(database_url=to), verb))


async def _open(source: Settings, target: Settings, verb: Callable[[MoveControl], Awaitable[T]]) -> T:
    from ..control.moving import MoveControl, volatile
    from ..drivers.moving import moves_of
    from ..drivers.opening import close_driver, open_driver
    from ..stores import build_driver

    first, second = build_driver(source), build_driver(target)
    try:
        if second.capabilities.is_durable or moves_of(second) is None:
            await open_driver(second, within=OPEN)  # says of what is not built yet that it is not
        if not second.capabilities.is_durable:
            raise volatile(second)
        await open_driver(first, within=OPEN)
        where = (without_user(source.database_url or ""), without_user(target.database_url or ""))
        return await verb(MoveControl(first, second, where=where))
    finally:
        await close_driver(second)
        await close_driver(first)


def without_user(address: str) -> str:
    """Give where an address leads, without who goes there and with what."""
    parts = urlsplit(address)
    asked = parse_qs(parts.query)
    host = parts.hostname or next(iter(asked.get("host", ())), "")
    port = parts.port or next(iter(asked.get("port", ())), "")
    return f"{f'[{host}]' if ':' in host else host}{f':{port}' if port else ''}{parts.path}"


def _print(counted: MoveCount, came: Counter[str], *, dry_run: bool, is_cut: bool, as_json: bool) -> None:
    from ..domain.moving import WHY, WHY_REFUSED, Stays

    whys = {word.value: why for word, why in (*WHY.items(), *WHY_REFUSED.items())}
    counts: dict[str, dict[str, int]] = {
        "found": {state.value: count for state, count in counted.going.items()} | {"on_the_way": counted.on_the_way},
        "moved": {word: came[word] for word in ("moved", "there")},
        "stayed": {state.value: count for state, count in counted.staying.items()}
        | {why.value: came[why.value] for why in Stays}
        | {verdict.value: came[verdict.value] for verdict in WHY_REFUSED},
    }
    if as_json:
        from ..control.render import render

        sys.stdout.write(render({"dry_run": dry_run, "is_complete": not is_cut, **counts}).decode() + "\n")
        return
    for part in ("found",) if dry_run else ("moved",):
        for word, count in counts[part].items():
            print(f"{part} {word:<12} {count}")
    for word, count in counts["stayed"].items():
        if count:
            print(f"stays {word:<12} {count}" + (f"  each {whys[word]}" if word in whys else ""))
    if dry_run:
        say("nothing was moved: this was a dry run")
