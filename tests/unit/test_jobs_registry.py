"""Registries: where handles are found, which names clash, and how a broken module is named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import JobNameTaken, OutlastError, SettingsInvalid
from app.jobs import JobHandle, Registry, job
from app.jobs import registry as registry_module
from app.jobs.registry import load_registry


@job("b.job")
def first() -> None: ...


@job("a.job")
def second() -> None: ...


@job("b.job")
def namesake() -> None: ...


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_job_types_come_in_code_point_order() -> None:
    registry = Registry([first, second])
    assert [handle.name for handle in registry] == ["a.job", "b.job"]
    assert registry.names == {"a.job", "b.job"}
    assert registry.get("a.job") is second
    assert registry.get("c.job") is None
    assert "b.job" in registry
    assert len(registry) == 2


def test_one_handle_twice_is_one() -> None:
    assert len(Registry([first, second, first])) == 2


def test_two_handles_on_one_name_are_refused_by_both_names() -> None:
    with pytest.raises(JobNameTaken) as caught:
        Registry([first, namesake])
    assert "first" in caught.value.cause
    assert "namesake" in caught.value.cause


def test_one_body_under_two_names_is_refused_by_both_names() -> None:
    other: JobHandle[Any, Any] = job("c.job")(first.body)
    with pytest.raises(JobNameTaken, match=r"b\.job.*c\.job"):
        Registry([first, other])


def test_a_mistake_in_a_declaration_stops_the_start() -> None:
    def body(order_id: int) -> None: ...

    with pytest.raises(SettingsInvalid):
        Registry([job("a.job", tenant="{shop}")(body)])


def test_handles_among_a_modules_attributes_are_taken_and_nothing_else(modules: Path) -> None:
    modules.joinpath("found_jobs.py").write_text(
        "from app.jobs import job\nimport os\nnumber = 3\n"
        "@job('found.one')\ndef one() -> None: ...\nalias = one\n"
        "def helper() -> None: ...\n"
    )
    modules.joinpath("more_jobs.py").write_text(
        "from found_jobs import one\nfrom app.jobs import job\n@job('found.two')\nasync def two() -> None: ...\n"
    )
    assert Registry.from_modules(["found_jobs", "more_jobs", "found_jobs"]).names == {"found.one", "found.two"}


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("x = 1\nimport nowhere_to_be_found\n", 2),
        ("\n\nraise RuntimeError('boom')\n", 3),
        ("def f():\n    return 1 / 0\n\nf()\n", 2),
        ("x = (\n", 1),
        ("import sys\nsys.exit(3)\n", 2),
    ],
)
def test_a_module_that_fails_to_import_is_named_with_file_and_line(modules: Path, source: str, line: int) -> None:
    path = modules / "broken_jobs.py"
    path.write_text(source)
    with pytest.raises(SettingsInvalid) as caught:
        Registry.from_modules(["broken_jobs"])
    assert "broken_jobs" in caught.value.cause
    assert f"{path}:{line}" in caught.value.cause
    assert caught.value.fix


@pytest.mark.parametrize("name", ["no_such_module_here", "no.such.module", "", "not a name", ".relative"])
def test_a_module_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(SettingsInvalid, match="OUTLAST_JOBS"):
        Registry.from_modules([name])


@pytest.mark.parametrize(
    ("declaration", "error", "says"),
    [
        ("job('a.job', priority=11)", SettingsInvalid, "priority"),
        ("job('A JOB')", SettingsInvalid, "A JOB"),
        ("job('a.job', retry=RetryPolicy(backoff=1))", SettingsInvalid, "backoff"),
        ("job('a.job', limits=[Limit(0)])", SettingsInvalid, "Limit"),
        ("job('a.job', retention=0)", SettingsInvalid, "retention"),
        ("job('b.job')(job('a.job')(print))", JobNameTaken, "b.job"),
    ],
)
def test_a_declaration_that_cannot_work_is_named_with_module_file_and_line(
    modules: Path, declaration: str, error: type[OutlastError], says: str
) -> None:
    path = modules / "wrong_jobs.py"
    path.write_text(f"from app.jobs import Limit, RetryPolicy, job\n\n{declaration}\n")
    with pytest.raises(error) as caught:
        Registry.from_modules(["wrong_jobs"])
    assert says in caught.value.cause
    assert "wrong_jobs" in caught.value.cause
    assert f"{path}:3" in caught.value.cause
    assert caught.value.fix


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ("@job('a.job', tenant='{shop}')\ndef body(order_id: int) -> None: ...\n", "shop"),
        ("@job('a.job')\ndef body(order: Order) -> None: ...\n", "lines.callback"),
        ("@job('a.job')\ndef body(call: Callable[[int], int]) -> None: ...\n", "call"),
        ("@job('a.job')\ndef body() -> Ratio: ...\n", "return annotation"),
        ("@job('a.job')\ndef body(n: Annotated[int, Field(multiple_of=0.5)]) -> None: ...\n", "multiple_of"),
        ("@job('a.job')\ndef body(ratio: float = float('nan')) -> None: ...\n", "ratio"),
        ("@job('a.job')\ndef body(code: Annotated[str, WithJsonSchema({'pattern': '('})]) -> None: ...\n", "/code"),
    ],
)
def test_a_payload_nobody_else_could_judge_stops_the_start_with_job_field_and_place(
    modules: Path, declared: str, says: str
) -> None:
    path = modules / "opaque_jobs.py"
    path.write_text(
        "from typing import Annotated, Callable\n"
        "from pydantic import BaseModel, Field, WithJsonSchema\n"
        "from app.jobs import job\n"
        "class Line(BaseModel):\n    callback: Callable[[int], int]\n"
        "class Order(BaseModel):\n    lines: list[Line]\n"
        "class Ratio(BaseModel):\n    ratio: float = float('nan')\n" + declared
    )
    with pytest.raises(SettingsInvalid) as caught:
        Registry.from_modules(["opaque_jobs"])
    assert says in caught.value.cause
    assert "a.job" in caught.value.cause
    assert f"{path}:10" in caught.value.cause


def test_entry_points_name_handles_or_modules(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules.joinpath("plugin_jobs.py").write_text(
        "from app.jobs import job\n@job('plugin.one')\ndef one() -> None: ...\nnumber = 3\n"
    )
    points = [
        EntryPoint(name="whole", value="plugin_jobs", group="outlast.jobs"),
        EntryPoint(name="single", value="plugin_jobs:one", group="outlast.jobs"),
        EntryPoint(name="other", value="plugin_jobs:number", group="outlast.jobs"),
    ]
    monkeypatch.setattr(registry_module, "entry_points", lambda group: EntryPoints(points).select(group=group))
    assert Registry.from_entry_points().names == {"plugin.one"}
    assert load_registry(["plugin_jobs"]).names == {"plugin.one"}


def test_an_entry_point_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint(name="mine", value="no_such_plugin:jobs", group="outlast.jobs")
    monkeypatch.setattr(registry_module, "entry_points", lambda group: EntryPoints([broken]))
    with pytest.raises(SettingsInvalid, match="mine = no_such_plugin"):
        Registry.from_entry_points()
