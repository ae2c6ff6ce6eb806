"""`outlast jobs traces` and `outlast jobs check`: what they print, write, and exit with."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from app.domain.event import EventId, NewEvent
from tests.process.conftest import Outlast
from tests.roles.test_worker_postgres import at
from tests.support import jobs_ship

pytestmark = [pytest.mark.postgres]

OLD, CHANGED = "tests.support.jobs_ship", "tests.support.jobs_ship_changed"
EXACT = "the code asks for run step 'weigh' as number 0, where run step 'pack', number 0, is recorded by code 1.0.0"


@pytest.fixture
def runs(database_url: str) -> str:
    """A database with two runs that wait for their approval, and a job of a type that only others know."""

    async def work() -> None:
        async with at(database_url, jobs_ship.ship) as bench:
            for order in (7, 8):
                job_id = await bench.enqueue(jobs_ship.NAME, {"order": order})
                await bench.until("attempt.suspended", job_id)
            await bench.enqueue("other.job")

    asyncio.run(work())
    return database_url


def test_traces_are_written_one_a_line_and_only_for_their_owner(outlast: Outlast, runs: str, tmp_path: Path) -> None:
    file = tmp_path / "runs.ndjson"
    ran = outlast.on(runs)("jobs", "traces", "--out", str(file))
    assert (ran.out, ran.err) == ("", f"3 traces written to {file}\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["runs.ndjson"]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["trace"], line["name"]) for line in lines] == [(1, "other.job"), (1, "ship.job"), (1, "ship.job")]
    assert [step["name"] for step in lines[1]["steps"]] == ["pack"]
    assert outlast("jobs", "traces", "--name", "ship.job", "--state", "suspended").out == "".join(
        f"{line}\n" for line in file.read_text().splitlines()[1:]
    )


@pytest.mark.parametrize("kind", ["database", "file"])
def test_code_that_fits_passes(outlast: Outlast, runs: str, tmp_path: Path, kind: str) -> None:
    ran = outlast("jobs", "check", "--against", _against(outlast, runs, tmp_path, kind), "--jobs", OLD)
    assert ran.out == ""
    assert ran.err == "3 runs: 2 fit, 1 are of job types this code lacks\nnot in this code: other.job\n"


@pytest.mark.parametrize("kind", ["database", "file"])
def test_code_that_does_not_fit_names_every_run(outlast: Outlast, runs: str, tmp_path: Path, kind: str) -> None:
    against = _against(outlast, runs, tmp_path, kind)
    ran = outlast("jobs", "check", "--against", against, "--jobs", CHANGED, code=1)
    lines = ran.out.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("held  ")
    assert lines[0].endswith("  ship.job (suspended)")
    assert lines[1] == f"  {EXACT}"
    assert "2 would be handed back or held" in ran.err


def test_findings_are_printed_as_json(outlast: Outlast, runs: str) -> None:
    ran = outlast("jobs", "check", "--against", runs, "--jobs", CHANGED, "--json", code=1)
    document = ran.document()
    findings = document.pop("findings")
    assert document == {
        "checked": 3, "fits": 0, "held": 2, "refused": 0, "unchecked": 0, "unknown": 1, "partly": 0,
    }  # fmt: skip
    (_, first) = findings
    assert (first["verdict"], first["step"], first["asked"]) == ("held", "pack", "weigh")
    assert (first["code_version"], first["message"], first["recorded"]) == ("1.0.0", EXACT, 2)


def test_runs_of_types_that_the_code_lacks_fail_a_strict_check(outlast: Outlast, runs: str) -> None:
    ran = outlast("jobs", "check", "--against", runs, "--jobs", OLD, "--strict", code=1)
    assert "other.job (ready)\n  this code has no such job type" in ran.out


def test_runs_that_cannot_be_checked_fail_unless_that_is_allowed(
    outlast: Outlast, runs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connects(_ctx: object) -> None:
        raise ConnectionError("no shop")

    monkeypatch.setattr(jobs_ship, "pack", connects)
    monkeypatch.setattr("app.steps.values.Values.returned_by", lambda *_: connects(None))
    ran = outlast("jobs", "check", "--against", runs, "--jobs", OLD, code=1)
    assert ran.out.count("the body raised ConnectionError: no shop") == 2
    again = outlast("jobs", "check", "--against", runs, "--jobs", OLD, "--allow-unchecked")
    assert again.out == ran.out


def test_a_filter_leaves_runs_out(outlast: Outlast, runs: str, tmp_path: Path) -> None:
    for kind in ("database", "file"):
        against = _against(outlast, runs, tmp_path, kind)
        ran = outlast("jobs", "check", "--against", against, "--jobs", CHANGED, "--state", "ready")
        assert ran.err.startswith("1 run: 1 are of job types this code lacks")


def test_the_store_is_not_changed_by_a_check(outlast: Outlast, runs: str) -> None:
    outlast("jobs", "check", "--against", runs, "--jobs", CHANGED, code=1)

    async def work() -> str | None:
        async with at(runs, jobs_ship.ship) as bench:
            job_id = await bench.enqueue(jobs_ship.NAME, {"order": 9})
            await bench.until("attempt.suspended", job_id)
            event = NewEvent(id=EventId(job_id), tenant="default", name=jobs_ship.EVENT, key="7", payload='{"by":"a"}')
            assert (await bench.driver.emit(event)).matched == 1
            return (await bench.view(job_id)).state.value

    assert asyncio.run(work()) == "suspended"


Wrong = Callable[[Path], tuple[str, ...]]
WRONG: dict[str, tuple[Wrong, str]] = {
    "no file": (lambda folder: (str(folder / "none"), OLD), "cannot be read: No such file"),
    "a folder": (lambda folder: (str(folder), OLD), "cannot be read: Is a directory"),
    "no trace": (lambda folder: (_file(folder, "{}\n"), OLD), "line 1 is no trace of a run: Field required at trace"),
    "a later format": (lambda folder: (_file(folder, '\n{"trace": 2}\n'), OLD), "line 2 is a trace of format 2"),
    "no job types": (lambda folder: (_file(folder, ""), "json"), "there are no job types to check"),
}


@pytest.mark.parametrize(("given", "said"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_checked_is_an_error_of_use(outlast: Outlast, tmp_path: Path, given: Wrong, said: str) -> None:
    against, jobs = given(tmp_path)
    ran = outlast("jobs", "check", "--against", against, "--jobs", jobs, code=2)
    assert said in ran.err
    assert "fix: " in ran.err


def test_an_empty_file_has_no_runs(outlast: Outlast, tmp_path: Path) -> None:
    assert outlast("jobs", "check", "--against", _file(tmp_path, ""), "--jobs", OLD).err == "no runs\n"


def _file(folder: Path, text: str) -> str:
    file = folder / "given.ndjson"
    file.write_text(text)
    return str(file)


def _against(outlast: Outlast, url: str, folder: Path, kind: str) -> str:
    if kind == "database":
        return url
    file = folder / "runs.ndjson"
    outlast("jobs", "traces", "--db", url, "--out", str(file))
    return str(file)
