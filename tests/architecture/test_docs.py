"""The documentation tells the truth: generated parts, error codes, words, commands, settings, names and links."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from app.cli import report
from app.domain.errors import error_classes
from app.domain.outbox import OutboxView
from app.domain.repairs import REPAIRS
from app.domain.snapshot import OldestSnapshot, Stats
from app.handlers import demo
from app.jobs import JobHandle, Registry
from app.observability.metrics import Metrics
from app.settings import environment_names
from app.testing.stores import URL_VARIABLE
from docs import generate
from tests.support.source import CHECKOUT as ROOT
from tests.support.source import python_files, relative, tree_of

pytestmark = pytest.mark.timeout(100)  # each reads the whole tree

DOCS = ROOT / "docs"
PAGES = generate.pages()

# The published list. A code is never renamed or removed, so neither is a word of this one.
CODES = frozenset(
    """
    JOB_DUPLICATE IDEMPOTENCY_MISMATCH IDEMPOTENCY_KEY_REUSED IDEMPOTENCY_IN_FLIGHT JOB_NOT_FOUND NOT_FOUND
    JOB_NAME_TAKEN JOB_UNKNOWN JOB_TIMEOUT JOB_EXPIRED JOB_FAILED JOB_STATE_CONFLICT CRASHED_TOO_OFTEN QUEUE_FULL
    QUEUES_EMPTY STEP_DUPLICATE STEP_TIMEOUT STEP_TOO_LARGE CHILD_FAILED REPLAY_DIVERGED TRANSACTION_FOREIGN
    PAYLOAD_INVALID PAYLOAD_TOO_LARGE RESULT_INVALID REQUEST_INVALID JSON_INVALID MEDIA_UNSUPPORTED
    PRECONDITION_REQUIRED PRECONDITION_FAILED COUNT_CHANGED CURSOR_INVALID ABORTED DRAINING LEASE_LOST SLOT_LOST
    LIMIT_UNENFORCEABLE QUERY_TOO_SLOW OUTBOX_NO_TX DRIVER_UNAVAILABLE DRIVER_VOLATILE NOT_IMPLEMENTED SCHEDULE_INVALID
    UNAUTHENTICATED FORBIDDEN RATE_LIMITED CALLBACK_REFUSED SETTINGS_INVALID SCHEMA_OUTDATED INTERNAL
    PAYLOAD_UNREADABLE TENANT_FULL
    """.split()
)

WORDS = (
    "job type", "job", "run", "attempt", "claim", "worker", "lease", "settle", "slot", "step", "suspend", "outbox",
    "schedule", "event", "dead letter", "drain", "role",
    "enqueue", "heartbeat", "renew", "retry", "backoff", "cancel", "interrupt", "relay", "resume", "catch-up",
    "idempotency key", "queue",
)  # fmt: skip

# Words that other systems use for what has a name here: enqueue, claim, settle.
SYNONYMS = frozenset({"fetch", "dequeue", "pop", "ack", "nack", "acknowledge"})
# Reading rows is called so by every database library, and here it is one.
ROWS = {(ROOT / "app/drivers/postgres", name) for name in ("fetch", "_fetch")}


def _text(page: Path) -> str:
    return page.read_text()


def _fenced(text: str, *languages: str) -> list[str]:
    blocks = re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    return [body for language, body in blocks if language in languages]


def _shown(text: str) -> str:
    """Give what a page shows as code, in fences and in backticks."""
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))


def _sections(text: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


# --- generated parts --------------------------------------------------------------------------------------------------


def test_generated_parts_of_the_pages_say_what_the_code_says() -> None:
    stale = [relative(page) for page in generate.out_of_step()]
    assert not stale, f"out of step: {', '.join(stale)}; mend with: {generate.COMMAND}"


def test_every_generated_part_is_on_some_page() -> None:
    placed = [found["name"] for page in PAGES for found in generate.BLOCK.finditer(_text(page))]
    assert sorted(placed) == sorted(generate.renderers())


def test_rewriting_twice_changes_nothing_more() -> None:
    blocks = generate.renderers()
    for page in PAGES:
        once = generate.rewritten(_text(page), blocks)
        assert generate.rewritten(once, blocks) == once


# --- error codes ------------------------------------------------------------------------------------------------------


def test_error_classes_are_exactly_the_published_codes() -> None:
    assert set(error_classes()) == CODES


def test_each_error_code_has_one_section_with_a_repair() -> None:
    text = _text(DOCS / "reference/errors.md")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == sorted(error_classes())
    for code, section in _sections(text).items():
        _, found, repair = section.partition("**Repair.** ")
        assert found, code
        assert len(repair.strip()) > 20, code
    assert sorted(REPAIRS) == sorted(error_classes())


def test_pages_name_no_error_code_that_does_not_exist() -> None:
    looks_like_code = re.compile(r"`([A-Z]{2,}(?:_[A-Z]+)+)`")
    settings = {name.removeprefix("OUTLAST_") for name in (*environment_names().values(), URL_VARIABLE)}
    allowed = CODES | settings | {"OUTLAST_" + name for name in settings} | {"OUTCOME_RULES", "POSTGRES_PASSWORD"}
    for page in PAGES:
        unknown = {name for name in looks_like_code.findall(_text(page)) if not name.startswith("OTEL_")} - allowed
        assert not unknown, f"{relative(page)}: {sorted(unknown)}"


# --- words ------------------------------------------------------------------------------------------------------------


def test_the_glossary_explains_every_word() -> None:
    explained = re.findall(r"^\| (?!word \|)([a-z -]+) \| ", _text(DOCS / "concepts/glossary.md"), re.MULTILINE)
    assert set(WORDS) <= set(explained)
    assert len(explained) == len(set(explained)), "a word has two meanings"


def _identifiers(tree: ast.AST) -> Iterator[str]:
    """Name what a module defines; what it uses of a library is the library's to name."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case _:
                pass


def _parts(identifier: str) -> set[str]:
    return set(re.sub(r"([a-z])([A-Z])", r"\1_\2", identifier).lower().split("_"))


def test_code_has_no_second_word_for_enqueue_claim_and_settle() -> None:
    found = [
        f"{relative(file)}: {name}"
        for file in python_files("app")
        for name in _identifiers(tree_of(file))
        if SYNONYMS & _parts(name) and (file.parent, name) not in ROWS
    ]
    assert not found, f"use the words of docs/concepts/glossary.md: {found}"


# --- commands, settings, names ----------------------------------------------------------------------------------------


def test_make_targets_in_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"(?:^|`|&& )make ([a-z-]+)", _shown(_text(page)), re.MULTILINE))
        assert named <= targets, f"{relative(page)}: {sorted(named - targets)}"


def test_settings_in_the_pages_exist() -> None:
    known = {*environment_names().values(), URL_VARIABLE}
    for page in PAGES:
        named = set(re.findall(r"\bOUTLAST_[A-Z_]+\b", _text(page)))
        assert named <= known, f"{relative(page)}: {sorted(named - known)}"


def test_commands_in_the_pages_exist() -> None:
    known = re.findall(r"^\| `outlast ([a-z -]+)` \|", _text(DOCS / "reference/cli.md"), re.MULTILINE)
    assert "dev" in known
    first = {name.split()[0] for name in known}
    for page in PAGES:
        for line in _shown(_text(page)).splitlines():
            for group, command in re.findall(r"(?:^|[`/ ])outlast ([a-z]+)(?: ([a-z-]+))?", line):
                named = f"{group} {command}" if group in {"migrate", "jobs", "outbox"} else group
                assert named in known or (named.strip() in first), f"{relative(page)}: {line}"


def test_requests_in_the_pages_exist() -> None:
    known = {(method, re.sub(r"{[^}]+}", "*", path)) for method, path, _ in generate.operations()}
    for page in PAGES:
        for method, path in re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`\s?]*)", _text(page)):
            assert (method, re.sub(r"{[^}]+}", "*", path)) in known, f"{relative(page)}: {method} {path}"


def _declared(values: Iterable[object]) -> frozenset[str]:
    """Give the names of the job types among some values; making the registry refuses what could not work."""
    return Registry(value for value in values if isinstance(value, JobHandle)).names


def test_examples_in_the_pages_can_be_imported_and_their_jobs_are_known(tmp_path: Path) -> None:
    known = set(_declared(vars(demo).values()))
    example = tmp_path / "example.py"
    for page in PAGES:
        for block in _fenced(_text(page), "python"):
            example.write_text(block)
            known |= _declared(runpy.run_path(str(example)).values())
    for page in PAGES:
        named = set(re.findall(r'"name": "([^"]+)"(?!, "key")', _text(page)))  # an event has a key
        assert named <= known, f"{relative(page)}: {sorted(named - known)}"


def test_metrics_page_names_exactly_the_metrics_there_are() -> None:
    metrics = Metrics()
    metrics.show(Stats(by_state={}, queues=(), oldest_snapshot=OldestSnapshot(seconds=0, xids=0)))
    metrics.show_outbox(OutboxView(staged=0, claimed=0, quarantined=0, lag=timedelta(), oldest_at=None))
    metrics.show_schedule_lag(0.0)
    suffix = {"counter": "_total"}
    there = {family.name + suffix.get(family.type, "") for family in metrics.registry.collect()}
    page = _text(DOCS / "operations/metrics.md")
    told = set(re.findall(r"^\| `(\w+)` \| ", page, re.MULTILINE))
    assert told == {name for name in there if name.startswith("outlast_")}
    assert set(re.findall(r"\boutlast_[a-z_]+\b", page)) == told


def test_logs_page_names_exactly_the_events_there_are() -> None:
    files = sorted((ROOT / "app/observability").glob("telemetry*.py"))
    nodes = [node for file in files for node in ast.walk(tree_of(file)) if isinstance(node, ast.Constant)]
    texts = {node.value for node in nodes if isinstance(node.value, str)}
    there = {text for text in texts if re.fullmatch(r"[a-z]+\.[a-z_]+", text)}
    rows = re.findall(r"^\| (`[^|]+`) \| ", _text(DOCS / "operations/logs.md"), re.MULTILINE)
    told = set(re.findall(r"`([a-z]+\.[a-z_]+)`", "".join(rows)))
    assert told == there


def test_exit_codes_of_commands_are_on_their_page() -> None:
    told = {int(code) for code in re.findall(r"\b(\d{1,3})\b(?=[^|]* \|)", _text(DOCS / "operations/exit-codes.md"))}
    there = {value for name, value in vars(report).items() if name.isupper() and isinstance(value, int)}
    assert there <= told


# --- links and decisions ----------------------------------------------------------------------------------------------


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", _text(page)):
            if target.startswith(("http://", "https://")):
                continue
            path, _, anchor = target.partition("#")
            goal = (page.parent / path).resolve() if path else page
            if not goal.exists() or (anchor and anchor not in _anchors(_text(goal))):
                broken.append(f"{relative(page)} -> {target}")
    assert not broken


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    front = [ROOT / "README.md"]
    while front:
        page = front.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", _text(page))
        front.extend((page.parent / link).resolve() for link in links if "://" not in link)
    assert not {relative(page) for page in PAGES} - {relative(page) for page in reached}


@pytest.mark.parametrize("page", sorted((DOCS / "decisions").glob("0*.md")), ids=lambda page: page.stem)
def test_a_decision_has_its_four_parts_and_a_line_in_the_index(page: Path) -> None:
    text = _text(page)
    assert re.match(rf"# {page.stem[:4]} \S", text)
    assert list(_sections(text)) == ["Context", "Decision", "Consequences", "Alternatives"]
    assert f"({page.name})" in _text(DOCS / "decisions/README.md")
