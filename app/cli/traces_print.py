"""How the findings of `outlast jobs check` look in a terminal or as JSON, and how far it is meanwhile."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from .jobs_print import safe
from .report import say

if TYPE_CHECKING:
    from ..control.render import Document
    from ..replay.check import Check, Finding

_EVERY_SECONDS = 2.0


class Progress:
    """Counts, and says so every two seconds: a check of many runs must not look as if it hung."""

    def __init__(self, word: str) -> None:
        self.done = 0
        self._word = word
        self._said_at = time.monotonic()

    def count(self) -> None:
        """Count one."""
        self.done += 1
        if time.monotonic() - self._said_at >= _EVERY_SECONDS:
            self._said_at = time.monotonic()
            say(f"{self.done:,} {self._word} so far")


def print_finding(finding: Finding) -> None:
    """Print one finding: which run, and what the code would make of it."""
    job = finding.trace.job
    print(safe(f"{finding.verdict.value}  {job.id}  {job.name} ({job.state.value})\n  {finding.message}"))


def document_of(finding: Finding) -> Document:
    """Give one finding as JSON."""
    job = finding.trace.job
    return {
        "verdict": finding.verdict,
        "job_id": job.id,
        "run_id": job.run_id,
        "name": job.name,
        "state": job.state,
        "message": finding.message,
        "step": finding.step,
        "asked": finding.asked,
        "code_version": finding.code_version,
        "matched": finding.matched,
        "recorded": finding.recorded,
    }


def print_sum(check: Check) -> None:
    """Say, at the end, how many runs fit and how many do not."""
    from ..replay.check import Verdict

    said = {
        Verdict.FITS: "fit",
        Verdict.HELD: "would be handed back or held",
        Verdict.REFUSED: "have a payload that its model refuses",
        Verdict.UNCHECKED: "could not be checked",
        Verdict.UNKNOWN: "are of job types this code lacks",
    }
    counts = check.counts
    counted = ", ".join(f"{counts[verdict]:,} {words}" for verdict, words in said.items() if counts[verdict])
    sys.stdout.flush()
    runs = "run" if counts.total() == 1 else "runs"
    say(f"{counts.total():,} {runs}: {counted}" if counted else "no runs")
    if check.unknown:
        say(f"not in this code: {', '.join(sorted(check.unknown))}")
    if check.partly:
        say(f"{check.partly:,} of those that fit have more on record, behind a step that is not: that was not compared")
