"""`outlast purge` and `outlast dead`: delete or retry what has ended, counted and confirmed, with progress on stderr.

Ctrl-C ends it after the step in flight; the same command again goes on with what is left.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from ..domain.bulk import BulkAction, ErrorKind
from ..domain.errors import RequestInvalid
from ..domain.state import State
from .acting import Reason, acting
from .durations import duration
from .jobs_print import print_rows, safe, time_of
from .many import Many, act_on_many
from .report import say
from .store import with_purge

if TYPE_CHECKING:
    from ..control.purge import PurgeControl, PurgeStep
    from ..domain.retention import EndedRule
    from ..domain.snapshot import DeadGroup

dead = typer.Typer(no_args_is_help=True)

_INTERRUPTED = 130
_EVERY_SECONDS = 0.2
_MESSAGE = 80
_COLUMNS = ("count", "name", "reason", "error", "first", "last", "message")

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Name = Annotated[str | None, typer.Option(help="Only jobs of this type.")]
_Tenant = Annotated[str | None, typer.Option(help="Only this tenant's.")]
_Dry = Annotated[bool, typer.Option("--dry-run", help="Count, and delete nothing.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
_Older = Annotated[str, typer.Option("--older-than", help="Ended longer ago than this: `30d`, `12h`.")]

_Steps = Callable[["PurgeControl"], "AsyncIterator[PurgeStep]"]


def purge(
    *,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", help="Ended jobs older than this: `30d`, `12h`. Without it: all whose retention is over."
        ),
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option(help="Only jobs that are `done`, `dead` or `cancelled`; may be repeated.")
    ] = None,
    name: _Name = None,
    tenant: _Tenant = None,
    dry_run: _Dry = False,
    yes: _Yes = False,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Delete ended jobs older than an age, or everything whose retention is over; workers do the latter themselves."""
    if older_than is None and (state or name or tenant):
        raise RequestInvalid(
            "--state, --name and --tenant go with --older-than", fix="add --older-than 30d, or leave them out"
        )
    rule = None if older_than is None else _rule(older_than, state, name, tenant)
    _run(rule, dry_run=dry_run, yes=yes, reason=reason, as_json=as_json, db=db)


@dead.command("list")
def list_dead(*, tenant: _Tenant = None, as_json: _Json = False, db: _Db = None) -> None:
    """List dead letters by job type, reason and error, most first."""
    groups = with_purge(db, lambda control: control.dead_letters(tenant=tenant))
    if as_json:
        from ..control.render import render
        from ..control.represent_purge import dead_group_document

        for group in groups:
            sys.stdout.write(render(dead_group_document(group)).decode() + "\n")
    elif groups:
        print_rows((_COLUMNS, *(_row(group) for group in groups)))
    else:
        say("no dead letters")


@dead.command("retry")
def retry_dead(
    name: Annotated[str, typer.Argument(help="The job type.")],
    *,
    error: Annotated[str | None, typer.Option(help="Only those whose last error has this type or code.")] = None,
    tenant: _Tenant = None,
    dry_run: _Dry = False,
    yes: _Yes = False,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Retry the dead letters of a job type, group by group as they are listed, however old they are."""
    groups = [
        group
        for group in with_purge(db, lambda control: control.dead_letters(tenant=tenant))
        if group.name == name and error in {None, group.error_type, group.error_code}
    ]
    if not groups:
        say("no dead letters like that")
    for group in groups:
        say(f"{group.reason}, {safe(group.error_code or group.error_type or 'no error')}:")
        kind = ErrorKind(reason=group.reason, type=group.error_type, code=group.error_code)
        many = Many(
            states=[State.DEAD],
            name=name,
            queue=None,
            tenant=tenant,
            since=None,
            until=None,
            dry_run=dry_run,
            yes=yes,
            reason=reason,
            as_json=as_json,
            db=db,
            error=kind,
        )
        act_on_many(BulkAction.RETRY, many)


@dead.command("purge")
def purge_dead(
    older_than: _Older,
    *,
    name: _Name = None,
    tenant: _Tenant = None,
    dry_run: _Dry = False,
    yes: _Yes = False,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Delete dead letters older than an age; they cannot be retried any more."""
    _run(_rule(older_than, ["dead"], name, tenant), dry_run=dry_run, yes=yes, reason=reason, as_json=as_json, db=db)


def _run(
    rule: EndedRule | None, *, dry_run: bool, yes: bool, reason: str | None, as_json: bool, db: str | None
) -> None:
    def steps(*, dry: bool) -> _Steps:
        return lambda control: control.over(dry=dry) if rule is None else control.ended(rule, dry=dry)

    async def work(control: PurgeControl) -> tuple[Counter[str], bool]:
        counted, is_cut = await _followed(steps(dry=True)(control), "counted")
        total = counted.total()
        if dry_run or is_cut or not total:
            return counted, is_cut
        _confirm(total, yes=yes)
        await control.asked(acting(reason), rule)
        return await _followed(steps(dry=False)(control), "deleted", total=total)

    counts, is_cut = with_purge(db, work)
    _print(counts, dry_run=dry_run, is_cut=is_cut, as_json=as_json)
    if is_cut:
        say("stopped; the same command again goes on with what is left")
        raise typer.Exit(_INTERRUPTED)


async def _followed(
    steps: AsyncIterator[PurgeStep], word: str, *, total: int | None = None
) -> tuple[Counter[str], bool]:
    """Go through steps with progress on a terminal, until the end or Ctrl-C; the second Ctrl-C cuts the step itself."""
    counts: Counter[str] = Counter()
    stop, loop, began, shown = asyncio.Event(), asyncio.get_running_loop(), time.monotonic(), 0.0

    def heard() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)
        say("\nending after this step; Ctrl-C again ends it at once")

    loop.add_signal_handler(signal.SIGINT, heard)
    try:
        async for step in steps:
            counts[step.kind] += step.rows
            now = time.monotonic()
            if sys.stderr.isatty() and now - shown >= _EVERY_SECONDS:
                shown = now
                sys.stderr.write(f"\r{_progress(counts.total(), now - began, word, total)}\x1b[K")
                sys.stderr.flush()
            if stop.is_set():
                break
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        if shown:
            sys.stderr.write("\r\x1b[K")
    return counts, stop.is_set()


def _progress(count: int, seconds: float, word: str, total: int | None) -> str:
    rate = count / seconds if seconds else 0.0
    of = "" if total is None else f" of {total:,}"
    left = "" if total is None or not rate else f", {max(total - count, 0) / rate:,.0f} s left"
    return f"{word} {count:,}{of}, {rate:,.0f}/s{left}"


def _confirm(total: int, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise RequestInvalid(
            f"{total:,} rows would be deleted, and nobody can be asked here",
            fix="add --yes, or --dry-run to count only",
        )
    typer.confirm(f"Delete {total:,} rows for good?", abort=True, err=True)


def _print(counts: Counter[str], *, dry_run: bool, is_cut: bool, as_json: bool) -> None:
    if as_json:
        from ..control.render import render

        document = {"dry_run": dry_run, "is_complete": not is_cut, "rows": dict(counts)}
        sys.stdout.write(render(document).decode() + "\n")
        return
    for kind, count in counts.items():
        print(f"{kind:<12} {count}")
    if not counts.total():
        say("nothing is old enough")
    elif dry_run:
        say("nothing was deleted: this was a dry run")


def _rule(older_than: str, states: list[str] | None, name: str | None, tenant: str | None) -> EndedRule:
    from ..domain.retention import EndedRule
    from ..domain.state import TERMINAL

    known = {state.value for state in TERMINAL}
    wrong = [state for state in states or () if state not in known]
    if wrong:
        raise RequestInvalid(f"jobs that are {wrong[0]!r} are not purged", fix=f"--state is {', '.join(sorted(known))}")
    asked = frozenset(State(state) for state in states) if states else TERMINAL
    return EndedRule.older_than(duration(older_than), states=asked, name=name, tenant=tenant)


def _row(group: DeadGroup) -> tuple[str, ...]:
    error = group.error_code or group.error_type or "-"
    times = (time_of(group.first_at), time_of(group.last_at))
    return (str(group.count), group.name, group.reason, safe(error), *times, safe((group.message or "-")[:_MESSAGE]))
