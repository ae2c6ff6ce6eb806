"""Fills the parts of the documentation that repeat what the code says: states, outcomes, errors, settings.

Rewrites only what stands between `<!-- generated: NAME -->` and `<!-- end of generated -->`; the prose around it is
written by hand. Run it as `python -m docs.generate` from the checkout; `--check` changes nothing and fails when a page
is out of step. `tests/architecture/test_docs.py` calls it.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import typer
from pydantic.fields import FieldInfo

from app.cli.main import app as command_line
from app.control.doctor.checks import CHECKS
from app.domain.errors import OutlastError, error_classes
from app.domain.outcome import OUTCOME_RULES
from app.domain.reason import REASON_RULES
from app.domain.repairs import REPAIRS
from app.domain.state import LIVE, MOVES, TERMINAL, DeadReason, State
from app.http.app import openapi_document
from app.http.problems import STATUS
from app.settings import Settings, environment_names
from docs import locks

from . import indexes

ROOT = Path(__file__).resolve().parent.parent
COMMAND = ".venv/bin/python -m docs.generate"
BLOCK = re.compile(
    r"(?P<begin><!-- generated: (?P<name>[a-zA-Z_ -]+?) -->\n)(?P<body>.*?)(?P<end><!-- end of generated -->)",
    re.DOTALL,
)

Renderer = Callable[[], str]


def pages() -> tuple[Path, ...]:
    """Give every page of the documentation, the files at the top of the repository included."""
    return (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))


def rewritten(text: str, renderers: Mapping[str, Renderer]) -> str:
    """Fill every generated block of one page; an unknown block name is a KeyError."""
    return BLOCK.sub(lambda found: found["begin"] + renderers[found["name"]]() + found["end"], text)


def renderers() -> dict[str, Renderer]:
    """Give what fills each block, by its name."""
    blocks: dict[str, Renderer] = {
        "moves": _moves,
        "diagram": _diagram,
        "state-groups": _state_groups,
        "dead-reasons": _dead_reasons,
        "outcomes": _outcomes,
        "reasons": _reasons,
        "checks": _checks,
        "error-index": _error_index,
        "settings": _settings,
        "commands": _commands,
        "operations": _operations,
        "locks": _locks,
        "indexes": indexes.table,
    }
    raised = _names_in_use()
    blocks.update({f"error {cls.code}": partial(_error, cls, raised) for cls in error_classes().values()})
    return blocks


def out_of_step() -> tuple[Path, ...]:
    """Name the pages that do not say what the code says."""
    blocks = renderers()
    return tuple(page for page in pages() if rewritten(page.read_text(), blocks) != page.read_text())


def main(arguments: Sequence[str]) -> int:
    """Rewrite the pages, or with `--check` only name those that would change; 1 if there are any."""
    stale = out_of_step()
    if "--check" in arguments:
        for page in stale:
            sys.stderr.write(f"{page.relative_to(ROOT)} is out of step with the code\n")
        if stale:
            sys.stderr.write(f"fix: run `{COMMAND}` and commit the result\n")
        return 1 if stale else 0
    blocks = renderers()
    for page in stale:
        page.write_text(rewritten(page.read_text(), blocks))
        sys.stderr.write(f"wrote {page.relative_to(ROOT)}\n")
    return 0


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _moves() -> str:
    rows = ((f"`{move.source}`" if move.source else "(new)", f"`{move.target}`", move.cause) for move in MOVES)
    return _table(("from", "to", "by"), rows)


def _diagram() -> str:
    arrows = "".join(f"    {move.source or '[*]'} --> {move.target}\n" for move in MOVES)
    return f"```mermaid\nstateDiagram-v2\n{arrows}```\n"


def _state_groups() -> str:
    groups = ((title, [f"`{state}`" for state in State if state in group]) for title, group in _GROUPS)
    return "".join(f"{title}: {', '.join(states)}.\n" for title, states in groups)


_GROUPS = (("Live", LIVE), ("Terminal", TERMINAL))


def _dead_reasons() -> str:
    return _table(("reason", "meaning"), ((f"`{reason}`", _DEAD_MEANINGS[reason]) for reason in DeadReason))


_DEAD_MEANINGS = {
    DeadReason.TERMINAL: "the error was one that no retry mends",
    DeadReason.ATTEMPTS_EXHAUSTED: "`max_attempts` counted failures",
    DeadReason.CRASHED_TOO_OFTEN: "`max_crashes` workers vanished while running it",
    DeadReason.EXPIRED: "not started within `max_queue_time`",
    DeadReason.DEADLINE: "its `deadline` passed",
}


def _outcomes() -> str:
    rows = (
        (
            f"`{rule.kind}`",
            rule.when,
            "yes" if rule.counted else "no",
            "yes" if rule.ledger else "no",
            f"`{rule.label}`" if rule.label else "none",
        )
        for rule in OUTCOME_RULES
    )
    return _table(("outcome", "when", "counted", "ledger", "metric label"), rows)


def _reasons() -> str:
    rows = (
        (
            f"`{rule.code}`",
            rule.when,
            "yes" if rule.kind.blocks else "no",
            ", ".join(f"`{fact}`" for fact in rule.facts),
        )
        for rule in REASON_RULES
    )
    return _table(("reason", "when", "blocks", "facts"), rows)


def _checks() -> str:
    return _table(("check", "holds when", "says so when"), ((f"`{one.code}`", one.title, one.when) for one in CHECKS))


def _locks() -> str:
    """Give the locks of every verb, as its statements have them."""
    return _table(("verb", "waits for, in this order", "passes over what is locked of"), locks.page())


def _error_index() -> str:
    rows = (
        (f"[`{code}`](#{code.lower()})", str(STATUS[code]), cls.title) for code, cls in sorted(error_classes().items())
    )
    return _table(("code", "HTTP", "title"), rows)


def _error(cls: type[OutlastError], raised: frozenset[str]) -> str:
    meaning = re.sub(r"\s+", " ", cls.__doc__ or "").strip()
    facts = [
        f"HTTP {STATUS[cls.code]}",
        "retryable" if cls.retryable else "not retryable",
        *(["terminal"] if cls.terminal else []),
        *([] if cls.__name__ in raised else ["not raised in this release"]),
    ]
    repair = textwrap.fill(f"**Repair.** {REPAIRS[cls.code]}", 120, break_long_words=False, break_on_hyphens=False)
    return f"{cls.title}. {meaning}\n\n*{' · '.join(facts)}*\n\n{repair}\n"


def _names_in_use() -> frozenset[str]:
    """Give the error classes the code mentions anywhere but where they are declared or only mapped to a number."""
    mapping_only = {"domain/errors.py", "domain/refusals.py", "http/problems.py", "cli/report.py"}
    used: set[str] = set()
    for file in (ROOT / "app").rglob("*.py"):
        if file.relative_to(ROOT / "app").as_posix() not in mapping_only:
            tree = ast.parse(file.read_text())
            used.update(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
            used.update(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return frozenset(used)


def _settings() -> str:
    names = environment_names()
    rows = (
        (f"`{names[name]}`", _default(field), _bounds(field), field.description or "")
        for name, field in Settings.model_fields.items()
    )
    return _table(("variable", "default", "bounds", "meaning"), rows)


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value in ("", ()):
        return "unset"
    if isinstance(value, tuple):
        return "`" + ",".join(name if room is None else f"{name}:{room}" for name, room in value) + "`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _bounds(field: FieldInfo) -> str:
    signs = (("gt", "> "), ("ge", "≥ "), ("lt", "< "), ("le", "≤ "))
    found = [f"{sign}{getattr(each, name):,}" for each in field.metadata for name, sign in signs if hasattr(each, name)]
    return ", ".join(found)


def _commands() -> str:
    return _table(
        ("command", "does", "arguments and options"), _leaves("outlast", typer.main.get_command(command_line))
    )


def _leaves(path: str, command: object) -> Iterator[tuple[str, str, str]]:
    """Give every command below a group, by its full name; the classes are typer's own and private."""
    inner: Mapping[str, object] = getattr(command, "commands", {})
    for name, each in inner.items():
        yield from _leaves(f"{path} {name}", each)
    if not inner or getattr(command, "invoke_without_command", False):
        summary = (getattr(command, "help", None) or "").strip().split("\n")[0]
        yield f"`{path}`", summary, ", ".join(_parameters(command))


def _parameters(command: object) -> Iterator[str]:
    for each in getattr(command, "params", ()):
        if each.param_type_name == "argument":
            yield each.name.upper()
        elif not each.hidden:
            yield f"`{each.opts[0]}`"


def operations() -> tuple[tuple[str, str, str], ...]:
    """Give method, path and summary of every operation of the API."""
    document = json.loads(openapi_document())
    return tuple(
        (method.upper(), path, operation.get("summary", ""))
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method in {"get", "post", "put", "patch", "delete"}
    )


def _operations() -> str:
    rows = ((f"`{method} {path}`", summary) for method, path, summary in operations())
    return _table(("operation", "does"), rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
