"""deploy/k8s: what kustomize builds is valid, runs without rights, is probed, and has the time its drain needs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml

from app.cli.durations import seconds
from app.cli.main import app as command_line
from app.settings import Settings, environment_names
from tests.support.source import CHECKOUT

FOLDER = CHECKOUT / "deploy" / "k8s"
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
Document = dict[str, Any]

# `lifecycle.preStop.sleep` came with 1.30.
VERSIONS = ("1.30.0", "1.37.0")
CLOSING_SECONDS = 10


def documents() -> list[Document]:
    """Give every document of the files the kustomization lists."""
    return [
        document
        for resource in KUSTOMIZATION["resources"]
        for document in yaml.safe_load_all((FOLDER / resource).read_text())
    ]


def of_kind(*kinds: str) -> list[Document]:
    return [document for document in documents() if document["kind"] in kinds]


def named(document: Document) -> str:
    return f"{document['kind']}/{document['metadata']['name']}"


def pod_of(document: Document) -> Document:
    pod: Document = document["spec"]["template"]["spec"]
    return pod


def containers_of(document: Document) -> list[Document]:
    pod = pod_of(document)
    return [*pod.get("initContainers", []), *pod["containers"]]


def literals() -> dict[str, str]:
    (generator,) = KUSTOMIZATION["configMapGenerator"]
    return dict(literal.split("=", 1) for literal in generator["literals"])


def commands() -> dict[str, typer.core.TyperCommand]:
    """Give every command of the command line, `migrate up` for one in a group."""
    found: dict[str, Any] = {}
    for name, command in getattr(typer.main.get_command(command_line), "commands", {}).items():
        inner = getattr(command, "commands", None)
        found |= {name: command} if inner is None else {f"{name} {each}": inner[each] for each in inner}
    return found


WORKLOADS = of_kind("Deployment", "Job")
DEPLOYMENTS = of_kind("Deployment")
workloads = pytest.mark.parametrize("workload", WORKLOADS, ids=named)
deployments = pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=named)


def test_every_file_of_the_folder_is_built() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.yaml")) == sorted(
        [*KUSTOMIZATION["resources"], "kustomization.yaml"]
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", documents(), ids=named)
def test_every_manifest_fits_the_strict_schema(document: Document, version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_builds_what_the_files_say() -> None:
    done = subprocess.run(["kubectl", "kustomize", FOLDER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = list(yaml.safe_load_all(done.stdout))
    version = version_of_the_package()
    for document in built:
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)
        if document["kind"] in {"Deployment", "Job"}:
            assert {container["image"] for container in containers_of(document)} == {f"outlast:{version}"}
    kinds = [document["kind"] for document in built]
    assert sorted(kinds) == sorted([*(document["kind"] for document in documents()), "ConfigMap"])


@workloads
def test_nothing_runs_with_rights(workload: Document) -> None:
    pod = pod_of(workload)
    assert pod["automountServiceAccountToken"] is False
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers_of(workload):
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}


@workloads
def test_memory_is_bounded_and_processor_time_is_not(workload: Document) -> None:
    for container in containers_of(workload):
        resources = container["resources"]
        assert set(resources["limits"]) == {"memory"}, "a throttled event loop misses heartbeats"
        assert set(resources["requests"]) == {"cpu", "memory"}


@workloads
def test_the_image_has_no_tag_of_its_own(workload: Document) -> None:
    assert {container["image"] for container in containers_of(workload)} == {"outlast"}
    assert KUSTOMIZATION["images"] == [{"name": "outlast", "newTag": version_of_the_package()}]


@workloads
def test_every_command_and_flag_exists(workload: Document) -> None:
    for container in containers_of(workload):
        words = container["args"]
        flags = [word for word in words if word.startswith("--")]
        command = " ".join(word for word in words if re.fullmatch(r"[a-z]+", word))
        known = {option for parameter in commands()[command].params for option in parameter.opts}
        assert set(flags) <= known
        assert "command" not in container, "the image's entry point gets the signals"


@workloads
def test_every_variable_is_a_setting_that_is_accepted(workload: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    for container in containers_of(workload):
        given = {each["name"]: each.get("value") for each in container.get("env", [])} | literals()
        assert set(given) <= set(environment_names().values())
        for name, value in given.items():
            if value is not None:
                monkeypatch.setenv(name, value)
        Settings.read()


@deployments
def test_the_grace_is_what_the_drain_needs(deployment: Document) -> None:
    pod = pod_of(deployment)
    (main,) = pod["containers"]
    pre_stop = main.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    drain = float(literals()["OUTLAST_DRAIN_SECONDS"])
    assert pod["terminationGracePeriodSeconds"] == pre_stop + drain + CLOSING_SECONDS
    assert drain == Settings.model_fields["drain_seconds"].default
    assert pod["terminationGracePeriodSeconds"] - pre_stop == float(literals()["OUTLAST_GRACE_SECONDS"])
    assert bool(pre_stop) == bool(services_of(deployment)), "only what a Service sends traffic to has to linger"


def test_the_docs_do_the_same_sum() -> None:
    page = (CHECKOUT / "docs" / "how-to" / "deploy-on-kubernetes.md").read_text()
    said = {
        role: (int(pre_stop), int(drain), int(closing), int(grace))
        for role, pre_stop, drain, closing, grace in re.findall(
            r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE
        )
    }
    built = {}
    for deployment in DEPLOYMENTS:
        grace = pod_of(deployment)["terminationGracePeriodSeconds"]
        drain = int(literals()["OUTLAST_DRAIN_SECONDS"])
        role = deployment["metadata"]["labels"]["app.kubernetes.io/component"]
        built[role] = (grace - drain - CLOSING_SECONDS, drain, CLOSING_SECONDS, grace)
    assert said == built


@deployments
def test_every_pod_is_probed_on_the_admin_port(deployment: Document) -> None:
    (main,) = pod_of(deployment)["containers"]
    paths = {name: main[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {
        "startupProbe": {"path": "/startupz", "port": "admin"},
        "livenessProbe": {"path": "/livez", "port": "admin"},
        "readinessProbe": {"path": "/readyz", "port": "admin"},
    }
    ports = {port["name"]: port["containerPort"] for port in main["ports"]}
    assert ports["admin"] == int(literals()["OUTLAST_ADMIN_BIND"].rpartition(":")[2])
    startup = main["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] > Settings.model_fields["start_seconds"].default


@deployments
def test_a_pod_waits_for_its_schema(deployment: Document) -> None:
    (init,) = pod_of(deployment)["initContainers"]
    assert init["args"][:2] == ["migrate", "status"]
    assert seconds(init["args"][init["args"].index("--wait") + 1]) > 0


@deployments
def test_a_node_that_is_emptied_never_takes_them_all(deployment: Document) -> None:
    assert deployment["spec"]["replicas"] >= 2
    selector = deployment["spec"]["selector"]
    (budget,) = [each for each in of_kind("PodDisruptionBudget") if each["spec"]["selector"] == selector]
    spec = budget["spec"]
    assert spec.get("maxUnavailable", deployment["spec"]["replicas"] - spec.get("minAvailable", 0)) == 1


@workloads
def test_selectors_find_their_own_pods_and_nobody_elses(workload: Document) -> None:
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert labels == workload["metadata"]["labels"]
    assert workload["spec"].get("selector", {"matchLabels": labels}) == {"matchLabels": labels}


def test_the_service_sends_traffic_to_the_api_alone() -> None:
    (service,) = of_kind("Service")
    (api,) = [each for each in DEPLOYMENTS if each["metadata"]["name"] == "outlast-api"]
    assert services_of(api) == [service]
    assert [port["targetPort"] for port in service["spec"]["ports"]] == ["http"]


def test_the_migration_carries_the_version_and_nothing_a_setting_changes() -> None:
    (job,) = of_kind("Job")
    assert job["metadata"]["name"] == f"outlast-migrate-{version_of_the_package().replace('.', '-')}"
    assert [each for container in containers_of(job) for each in container.get("envFrom", [])] == []


def test_secrets_are_named_and_never_given() -> None:
    assert of_kind("Secret") == []
    used = {
        each["valueFrom"]["secretKeyRef"]["name"]
        for workload in WORKLOADS
        for container in containers_of(workload)
        for each in container.get("env", [])
        if "valueFrom" in each
    } | {
        volume["secret"]["secretName"]
        for workload in WORKLOADS
        for volume in pod_of(workload).get("volumes", [])
        if "secret" in volume
    }
    page = (CHECKOUT / "docs" / "how-to" / "deploy-on-kubernetes.md").read_text()
    assert used == set(re.findall(r"create secret generic ([\w-]+)", page))


def services_of(deployment: Document) -> list[Document]:
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    return [each for each in of_kind("Service") if each["spec"]["selector"].items() <= labels.items()]


def version_of_the_package() -> str:
    found = re.search(r'^version = "(.+)"', Path(CHECKOUT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]
