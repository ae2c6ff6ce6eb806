"""The page of figures: what was measured, on what, beside what."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from .bed import OPTIONS

_PACKAGES = ("asyncpg", "SQLAlchemy", "uvloop", "pydantic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure; `raw` is the same SQL without Outlast, `spread` the least and the most of the rounds."""

    name: str
    unit: str
    goal: str
    ours: float
    raw: float | None = None
    spread: tuple[float, float] | None = None


def write_page(figures: list[Figure], postgres: str) -> str:
    """Give the page as Markdown."""
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    options = ", ".join(f"{name}={value}" for name, value in OPTIONS.items())
    lines = [
        "# Performance",
        "",
        "Written by `make bench ARGS=--write`. Absolute figures move with the machine; the ratio to the bare",
        "statements of the same run does not. A no-op job with everything on; each enqueue, claim and settle",
        "commits to disk before it counts.",
        "",
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {os.cpu_count()} cores shared with the server,",
        f"PostgreSQL {postgres} ({options}), Python {platform.python_version()}, {packages}.",
        "",
        "| what | goal | Outlast (least – most) | bare statements | ratio |",
        "|---|---|---|---|---|",
    ]
    lines += [_line(figure) for figure in figures]
    return "\n".join(lines) + "\n"


def _line(figure: Figure) -> str:
    spread = "" if figure.spread is None else f" ({_number(figure.spread[0])} – {_number(figure.spread[1])})"
    raw = "" if figure.raw is None else f"{_number(figure.raw)} {figure.unit}"
    ratio = "" if not figure.raw else f"{figure.ours / figure.raw:.2f}"
    ours = f"{_number(figure.ours)} {figure.unit}".strip()
    return f"| {figure.name} | {figure.goal} | {ours}{spread} | {raw} | {ratio} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"
