"""Dockerfile and docker-compose.yml say only what exists: settings, commands, files; the grace fits the drain."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from app.cli.main import app as command_line
from app.settings import Settings, environment_names
from tests.support.source import CHECKOUT

DOCKERFILE = (CHECKOUT / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((CHECKOUT / "docker-compose.yml").read_text())
OURS = sorted(name for name, service in COMPOSE["services"].items() if "build" in service)


def environment_of(service: str) -> dict[str, str]:
    """Give a service's variables with the defaults of its `${NAME:-default}` filled in."""
    given: dict[str, str] = COMPOSE["services"][service]["environment"]
    return {name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for name, value in given.items()}


def commands() -> set[str]:
    """Give every command of the command line, `migrate up` for one in a group."""
    root = typer.main.get_command(command_line)
    found: set[str] = set()
    for name, command in getattr(root, "commands", {}).items():
        inner = getattr(command, "commands", None)
        found |= {name} if inner is None else {f"{name} {each}" for each in inner}
    return found


def seconds(duration: str) -> int:
    return int(duration.removesuffix("s"))


def instructions(name: str) -> list[str]:
    joined = DOCKERFILE.replace("\\\n", " ")
    return [line.removeprefix(name).strip() for line in joined.splitlines() if line.startswith(f"{name} ")]


def test_the_services_are_those_that_exist() -> None:
    assert set(COMPOSE["services"]) == {"db", "migrate", "api", "worker", "relay", "scheduler"}
    assert OURS == ["api", "migrate", "relay", "scheduler", "worker"]


@pytest.mark.parametrize("service", OURS)
def test_every_variable_of_a_service_is_a_setting_it_accepts(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = environment_of(service)
    assert set(variables) <= set(environment_names().values())
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = Settings.read()
    assert seconds(COMPOSE["services"][service]["stop_grace_period"]) >= settings.drain_seconds + 10
    assert seconds(COMPOSE["services"][service]["stop_grace_period"]) == settings.grace_seconds


@pytest.mark.parametrize("service", OURS)
def test_every_command_of_a_service_exists(service: str) -> None:
    words = COMPOSE["services"][service]["command"]
    command = " ".join(word for word in words if re.fullmatch(r"[a-z]+", word))
    assert command in commands()


def test_nothing_is_published_beyond_this_machine() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_workers_can_be_scaled() -> None:
    worker = COMPOSE["services"]["worker"]
    assert "container_name" not in worker
    assert "ports" not in worker


def test_the_worker_of_the_example_has_jobs_to_run() -> None:
    for module in environment_of("worker")["OUTLAST_JOBS"].split(","):
        package, _, rest = module.partition(".")
        assert package == "outlast", "the image holds the installed package"
        assert importlib.util.find_spec(f"app.{rest}") is not None


def test_the_api_gets_its_key_from_a_file() -> None:
    assert COMPOSE["services"]["api"]["secrets"] == ["api_key"]
    assert environment_of("api")["OUTLAST_API_KEY_FILE"] == "/run/secrets/api_key"
    assert COMPOSE["secrets"]["api_key"]["file"].startswith("./secrets/"), "a folder git and the image leave out"
    assert "secrets/" in (CHECKOUT / ".gitignore").read_text().split()


def test_the_service_waits_for_database_and_schema() -> None:
    assert COMPOSE["services"]["migrate"]["depends_on"] == {"db": {"condition": "service_healthy"}}
    for service in ("api", "worker", "relay", "scheduler"):
        assert COMPOSE["services"][service]["depends_on"] == {
            "migrate": {"condition": "service_completed_successfully"}
        }


def test_the_variables_of_the_image_are_settings() -> None:
    names = set(re.findall(r"\bOUTLAST_\w+(?==)", DOCKERFILE))
    assert names
    assert names <= set(environment_names().values())


def test_the_image_copies_what_exists_and_the_build_context_holds_it() -> None:
    kept = {line.removeprefix("!") for line in (CHECKOUT / ".dockerignore").read_text().split() if line.startswith("!")}
    copied = {
        source for line in instructions("COPY") if not line.startswith("--from") for source in shlex.split(line)[:-1]
    }
    assert copied == kept
    assert [source for source in copied if not (CHECKOUT / source).exists()] == []


def test_the_process_gets_its_signals_and_no_rights() -> None:
    assert instructions("ENTRYPOINT") == ['["outlast"]']
    assert instructions("STOPSIGNAL") == ["SIGTERM"]
    assert instructions("USER") == ["10001:10001"]
    assert len(instructions("FROM")) == 2, "build tools stay in the first stage"


def test_the_image_is_checked_where_every_role_answers() -> None:
    (check,) = instructions("HEALTHCHECK")
    assert f"http://{Settings.model_fields['admin_bind'].default}/livez" in check


def test_the_image_has_the_version_of_the_package() -> None:
    version = re.search(r'^version = "(.+)"', Path(CHECKOUT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert instructions("ARG")[0] == f"VERSION={version[1]}"
    assert COMPOSE["services"]["api"]["image"] == f"outlast:{version[1]}"
