"""Settings: what is read from where, and what is refused at once."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from app.bootstrap import unserved_queues
from app.domain.errors import NotImplementedYet, SettingsInvalid
from app.drivers.opening import open_driver
from app.process import Process
from app.settings import Settings, address_of, environment_names, shown, unknown_variables, without_secrets
from app.stores import build_driver


def test_flags_win_over_variables_and_absent_flags_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_CONCURRENCY", "7")
    monkeypatch.setenv("OUTLAST_JOBS", "shop.jobs, shop.reports")
    assert Settings.read().concurrency == 7
    assert Settings.read(concurrency=3).concurrency == 3
    assert Settings.read(concurrency=None).concurrency == 7
    assert Settings.read().jobs == ("shop.jobs", "shop.reports")


def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_DATABASE_URL", "")
    monkeypatch.setenv("OUTLAST_LEASE_SECONDS", "")
    assert Settings.read().database_url is None
    assert Settings.read().lease_seconds == 30


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OUTLAST_CONCURRENCY", "0"),
        ("OUTLAST_CONCURRENCY", "many"),
        ("OUTLAST_LEASE_SECONDS", "-1"),
        ("OUTLAST_DRAIN_SECONDS", "0"),
        ("OUTLAST_DRAIN_SECONDS", "nan"),
        ("OUTLAST_LOG_LEVEL", "loud"),
        ("OUTLAST_SCHEMA", "outlast; drop table job"),
        ("OUTLAST_POOL_SIZE", "0"),
    ],
)
def test_a_value_that_cannot_work_is_refused_naming_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsInvalid, match=variable):
        Settings.read()


def test_a_heartbeat_longer_than_a_third_of_the_lease_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(SettingsInvalid, match=r"HEARTBEAT_SECONDS=11.*LEASE_SECONDS=30.*at most 10"):
        Settings.read(heartbeat_seconds=11)
    assert Settings.read(heartbeat_seconds=10).heartbeat_seconds == 10


def test_a_password_does_not_show_in_the_representation() -> None:
    settings = Settings.read(database_url="postgresql://u:hunter2@h/d", listen_url="postgresql://u:hunter2@h/d")
    assert "hunter2" not in repr(settings)


def test_variables_that_no_setting_reads_are_named() -> None:
    given = {"OUTLAST_CONCURENCY": "3", "OUTLAST_CONCURRENCY": "3", "PATH": "/bin"}
    assert unknown_variables(given) == ("OUTLAST_CONCURENCY",)


def test_every_field_has_a_variable_and_a_description() -> None:
    names = environment_names()
    assert names["db_schema"] == "OUTLAST_SCHEMA"
    assert all(re.fullmatch(r"OUTLAST_[A-Z_]+", name) for name in names.values())
    assert all(field.description for field in Settings.model_fields.values())


@pytest.mark.parametrize("bind", ["8080", "localhost", "127.0.0.1:http", "127.0.0.1:70000", ""])
def test_an_address_that_is_not_host_and_port_is_refused(bind: str) -> None:
    with pytest.raises(SettingsInvalid, match="OUTLAST_BIND"):
        address_of(bind, "OUTLAST_BIND")


def test_a_port_alone_means_every_interface() -> None:
    assert address_of(":8080", "OUTLAST_BIND") == ("0.0.0.0", 8080)  # noqa: S104 - the point
    assert address_of("[::1]:8080", "OUTLAST_BIND") == ("[::1]", 8080)


def test_without_a_database_address_there_is_no_driver() -> None:
    with pytest.raises(SettingsInvalid, match="OUTLAST_DATABASE_URL"):
        build_driver(Settings.read())


@pytest.mark.parametrize("url", ["redis://localhost/0", "nats://localhost:4222"])
async def test_stores_that_are_not_built_refuse_with_a_repair(url: str) -> None:
    driver = build_driver(Settings.read(database_url=url))
    with pytest.raises(NotImplementedYet) as refused:
        await open_driver(driver, within=timedelta(seconds=1))
    assert "postgresql://" in refused.value.fix


def test_a_pool_too_small_for_the_roles_is_refused_with_the_sum() -> None:
    settings = Settings.read(database_url="memory://", pool_size=5)
    with pytest.raises(SettingsInvalid, match=r"4 for the worker \+ 2 for the api") as refused:
        Process(settings, ("worker", "api"), is_dev=True, announce=lambda _places: None)
    assert "6" in refused.value.fix


def test_the_api_refuses_to_serve_strangers(tmp_path: Path) -> None:
    settings = Settings.read(database_url="memory://", bind="0.0.0.0:0")
    with pytest.raises(SettingsInvalid, match="no key"):
        Process(settings, ("api",), announce=lambda _places: None)
    key = tmp_path / "key"
    key.write_text("k" * 40)
    Process(settings.model_copy(update={"api_key_file": key}), ("api",), announce=lambda _places: None)


def test_a_job_type_whose_queue_is_not_served_is_named() -> None:
    declared = Settings.read(jobs=("tests.support.jobs_queues",), queues="default,mail")
    assert unserved_queues(declared) == {"queues.report": "reports"}
    assert unserved_queues(declared.model_copy(update={"queues": "default,mail,reports:2"})) == {}


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("postgresql://me:hush@db.example:5433/jobs", "postgresql://me@db.example:5433/jobs"),
        ("postgresql://db/jobs?password=hush&host=/run", "postgresql://db/jobs?…"),
        ("postgresql+asyncpg://me:hu@sh@db/jobs", "postgresql+asyncpg://me@db/jobs"),
        ("postgresql://me:hu/sh@db/jobs", "postgresql://…"),
        ("postgresql://me:hu?sh@db/jobs", "postgresql://…"),
        ("postgresql://me:hu#sh@db/jobs", "postgresql://…"),
        ("postgresql:///jobs", "postgresql:///jobs"),
        ("memory://", "memory://"),
        ("hush", "…"),
    ],
)
def test_an_address_is_shown_without_what_opens_it(url: str, seen: str) -> None:
    assert without_secrets(url) == seen
    assert "hush" not in seen


def test_every_setting_is_shown_and_whether_somebody_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_DATABASE_URL", "postgresql://me:hush@db/jobs")
    monkeypatch.setenv("OUTLAST_JOBS", "a.b,c")
    found = {variable: (value, is_set) for variable, value, is_set in shown(Settings.read())}
    assert found.keys() == set(environment_names().values())
    assert found["OUTLAST_DATABASE_URL"] == ("postgresql://me@db/jobs", True)
    assert found["OUTLAST_JOBS"] == ("a.b,c", True)
    assert found["OUTLAST_LEASE_SECONDS"] == ("30", False)
    assert found["OUTLAST_LISTEN_URL"] == ("", False)
