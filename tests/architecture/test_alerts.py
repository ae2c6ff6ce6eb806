"""The rules for the Prometheus operator are those that the metrics page gives, and each says what to do."""

from __future__ import annotations

import re
from typing import Any

import typer
import yaml

from app.cli.main import app as command_line
from tests.support.source import CHECKOUT

_FOLDER = CHECKOUT / "deploy" / "k8s" / "monitoring"
_PAGE = (CHECKOUT / "docs" / "operations" / "metrics.md").read_text()


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((_FOLDER / "alerts.yaml").read_text())
    assert (document["apiVersion"], document["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    (group,) = document["spec"]["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_the_component_has_the_rules() -> None:
    component = yaml.safe_load((_FOLDER / "kustomization.yaml").read_text())
    assert (component["kind"], component["resources"]) == ("Component", ["alerts.yaml"])


def test_the_rules_are_those_of_the_page() -> None:
    section = _PAGE.partition("## What to alert on")[2].partition("\n## ")[0]
    told = {text for text in re.findall(r"`([^`]+)`", section) if re.search(r"outlast_\w+(\{.*\}.*|.*[>=)].*)$", text)}
    assert {rule["expr"] for rule in rules()} == told


def test_every_rule_has_a_name_of_its_own_a_weight_and_something_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    for rule in rules():
        assert re.fullmatch(r"Outlast[A-Z]\w+", rule["alert"])
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "action"}


def test_the_commands_that_rules_name_exist() -> None:
    known: set[str] = set()
    for name, command in getattr(typer.main.get_command(command_line), "commands", {}).items():
        inner = getattr(command, "commands", None)
        known |= {name} if inner is None else {f"{name} {each}" for each in inner}
    named = {text for rule in rules() for text in re.findall(r"`outlast ([^`]+)`", rule["annotations"]["action"])}
    assert named
    assert named <= known
