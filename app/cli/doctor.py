"""`outlast doctor` and `outlast health`: is everything well, and what to do where it is not.

`health` is one line for probes and people in a hurry; `doctor` looks at everything and takes seconds. Both straight on
the store.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from .jobs_print import safe
from .report import FAILURE, UNAVAILABLE, say

if TYPE_CHECKING:
    from ..control.doctor.finding import Report
    from ..drivers.protocol import JobDriver

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_SIGNS = {"ok": "✓", "warn": "!", "fail": "✗", "skip": "-"}


def doctor(*, as_json: _Json = False, db: _Db = None) -> None:
    """Look everything over, from the database to the modules of jobs, and say how to mend what is wrong."""
    from ..bootstrap import build_doctor
    from ..control.doctor.documents import report_document
    from ..control.doctor.finding import Level
    from ..control.render import render
    from ..drivers.opening import close_driver
    from ..settings import Settings
    from ..stores import build_driver, build_outbox

    settings = Settings.read(database_url=db)

    async def examine() -> Report:
        # Never opened: a store that refuses to be is what one comes to the doctor for.
        driver = build_driver(settings)
        outbox = build_outbox(settings, driver)
        try:
            return await build_doctor(settings, driver, outbox, is_here=True).examine()
        finally:
            if outbox is not None:
                await outbox.close()
            await close_driver(driver)

    report = asyncio.run(examine())
    if as_json:
        sys.stdout.write(render(report_document(report)).decode() + "\n")
    else:
        _print(report)
    if report.results[0].finding.level is Level.FAIL:
        raise typer.Exit(UNAVAILABLE)
    if report.level is Level.FAIL:
        raise typer.Exit(FAILURE)


def health(*, as_json: _Json = False, db: _Db = None) -> None:
    """Say in one line whether jobs can be stored and run: the store answers, its schema fits, workers live."""
    from ..control.render import Document, render
    from ..drivers.opening import close_driver, open_driver
    from ..settings import Settings
    from ..stores import build_driver
    from .store import OPEN

    settings = Settings.read(database_url=db)

    async def look(driver: JobDriver) -> Document:
        try:
            await open_driver(driver, within=OPEN)
            began = time.monotonic()
            await driver.ping()
            took = round((time.monotonic() - began) * 1000, 1)
            live = [each for each in await driver.workers() if not (each.has_left or each.is_lost)]
            draining = sum(each.drain_phase is not None for each in live)
            store = driver.capabilities.name
            return {"status": "ok", "store": store, "took_ms": took, "workers": len(live), "draining": draining}
        finally:
            await close_driver(driver)

    found = asyncio.run(look(build_driver(settings)))
    if as_json:
        sys.stdout.write(render(found).decode() + "\n")
        return
    leaving = f", {found['draining']} of them leaving" if found["draining"] else ""
    print(f"ok: {found['store']} answers in {found['took_ms']} ms, {found['workers']} live workers{leaving}")


def _print(report: Report) -> None:
    for result in report.results:
        finding = result.finding
        print(safe(f"{_SIGNS[finding.level]} {result.check.code:<18}{finding.text}"))
        if finding.fix is not None:
            print(safe(f"  {'':<18}fix: {finding.fix}"))
        for command in finding.commands:
            print(safe(f"  {'':<18}     {command}"))
    counts = Counter(result.finding.level.value for result in report.results)
    sys.stdout.flush()
    say(f"{counts['ok']} well, {counts['warn']} to look at, {counts['fail']} wrong, {counts['skip']} not looked at")
