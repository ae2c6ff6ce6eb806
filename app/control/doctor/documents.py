"""How a report looks from outside: the field names of the HTTP API and of `--json`. A pure projection."""

from __future__ import annotations

from ..render import Document
from .finding import Report, Result


def report_document(report: Report) -> Document:
    """Give what the doctor found, in the order of the checks."""
    return {
        "status": report.level,
        "at": report.at,
        "checks": [_check_document(result) for result in report.results],
    }


def _check_document(result: Result) -> Document:
    check, finding = result.check, result.finding
    return {
        "code": check.code,
        "title": check.title,
        "level": finding.level,
        "text": finding.text,
        "facts": dict(finding.facts),
        "fix": finding.fix,
        "commands": list(finding.commands),
    }
