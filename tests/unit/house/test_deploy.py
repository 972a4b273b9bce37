"""The manifest of Kubernetes and the Dockerfile fit the schemas, the commands and the servers that they name."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from falkirk import cli
from falkirk.declare.address import as_metrics_address
from falkirk.runtime.supervision.metrics import Metrics
from falkirk.runtime.supervision.metrics_server import MetricsSite
from falkirk.runtime.supervision.pulse import Pulse
from falkirk.user_tools.commands.group import Command

ROOT = Path(__file__).parents[3]
DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/shop.yaml").read_text()))


def found(kind: str) -> dict[str, Any]:
    (document,) = [each for each in DOCUMENTS if each["kind"] == kind]
    return document


def container() -> dict[str, Any]:
    (only,) = found("Deployment")["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


@pytest.mark.parametrize("version", ["1.30", "1.34"])
@pytest.mark.parametrize("document", DOCUMENTS, ids=[each["kind"] for each in DOCUMENTS])
def test_each_part_fits_the_schema_of_kubernetes(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_a_part_that_does_not_fit_is_found() -> None:
    wrong = {**found("Deployment"), "spec": {**found("Deployment")["spec"], "replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.34", strict=True)


def test_its_command_is_one_of_falkirk() -> None:
    name, *arguments = container()["args"]
    command = cli.main.commands[name]
    assert isinstance(command, Command)
    parsed = command.make_context(name, arguments).params
    assert parsed["wait"]
    assert Path(parsed["home"]).is_relative_to(container()["volumeMounts"][0]["mountPath"])
    host, port = as_metrics_address(parsed["metrics"])
    assert (host, [{"name": "metrics", "containerPort": port}]) == ("0.0.0.0", container()["ports"])
    scraped = found("Deployment")["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"]
    assert int(scraped) == port


def test_its_probes_are_answered_while_a_pod_waits() -> None:
    pulse = Pulse(180.0)
    site = MetricsSite(metrics := Metrics("shop", pulse))
    probes = [container()[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert all(probe["path"] in site.paths() and probe["port"] == "metrics" for probe in probes)
    pulse.rest_as_other()
    assert metrics.health()[0]
    assert {probe["path"] for probe in probes} == {"/health"}, "another one is not answered while a pod waits"
    assert not metrics.ready()[0]


def test_all_parts_choose_the_same_pods() -> None:
    labels = found("Deployment")["spec"]["template"]["metadata"]["labels"]
    chosen = [found("Deployment")["spec"]["selector"], found("PodDisruptionBudget")["spec"]["selector"]]
    assert [each["matchLabels"] for each in (*chosen, found("NetworkPolicy")["spec"]["podSelector"])] == [labels] * 3


def test_the_image_runs_as_the_user_of_the_manifest_with_a_java_that_is_supported() -> None:
    lines = (ROOT / "deploy/docker/Dockerfile").read_text()
    security = found("Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert re.findall(r"^USER (.*)$", lines, re.M) == [f"{security['runAsUser']}:{security['runAsGroup']}"]
    assert f"--uid {security['runAsUser']} " in lines
    assert re.findall(r"openjdk-(\d+)-jre-headless", lines) == ["17"]
    left_in = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.M)
    assert {"falkirk", "java", "tools", "pyproject.toml", "README.md"} <= set(left_in)
