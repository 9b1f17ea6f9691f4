"""The Helm chart, rendered as Helm renders it and checked against Kubernetes' own schemas.

There is no `helm` on the package indexes, so a Go-template engine with Helm's functions renders the chart and
`kubernetes-validate` (strict: unknown fields are errors) takes kubeconform's part.
"""

from __future__ import annotations

import argparse
import copy
import json
from typing import Any

import pytest
import yaml
from compose_files import ROOT

from dragoman.client import probe_command
from dragoman.serving import command as serve_command
from dragoman.serving.argument_types import size

kubernetes_validate = pytest.importorskip("kubernetes_validate")
helm = pytest.importorskip("gotpl.exts.helm", reason="gotpl needs Python 3.11")
jsonschema = pytest.importorskip("jsonschema")

CHART = ROOT / "deploy/helm/dragoman"
KUBERNETES = ("1.33", "1.37")
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "mutual TLS": {"tls": {"enabled": True}},
    "plain TLS": {"tls": {"enabled": True, "mutual": False, "serverName": "translate.example"}},
    "autoscaled": {"autoscaling": {"enabled": True}},
    "gpu from an image": {
        "serve": {
            "device": "tensorrt",
            "startSeconds": 300,
            "extraArgs": ["--response-cache=0"],
        },
        "bundles": {"en-de": {"image": "registry.example/bundles/en-de:1", "claim": None, "subPath": None}},
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "runtimeClassName": "nvidia",
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "nodeSelector": {"accelerator": "l4"},
    },
    "two bundles": {"bundles": {"de-en": {"claim": "other"}}},
    "glossaries": {"glossaries": {name: {"configMap": "terms", "key": f"{name}.tsv"} for name in ("Legal", "travel")}},
    "closed": {
        "networkPolicy": {
            "clients": [{"namespaceSelector": {"matchLabels": {"team": "web"}}}],
            "monitoring": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        },
        "image": {"digest": "sha256:" + "0" * 64},
        "imagePullSecrets": [{"name": "pull"}],
    },
}


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """As Helm merges values: maps deeply, everything else replaced, null removes."""
    result = copy.deepcopy(base)
    for name, value in over.items():
        if isinstance(value, dict) and isinstance(result.get(name), dict):
            result[name] = merged(result[name], value)
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = value
    return result


def render(changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every object of the chart by its kind."""
    values = merged(DEFAULTS, changes)
    jsonschema.validate(values, json.loads((CHART / "values.schema.json").read_text(encoding="utf-8")))
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    context = {
        "Values": values,
        "Chart": {name[0].upper() + name[1:]: value for name, value in chart.items()},
        "Release": {"Name": "prod", "Namespace": "translation", "Service": "Helm"},
    }
    sources = {path.name: path.read_text(encoding="utf-8") for path in (CHART / "templates").iterdir()}
    engine = helm.HelmTemplateEngine.from_sources(sources, strict=True)
    rendered = engine.render({name: context for name in sources if name.endswith(".yaml")})
    objects = [each for text in rendered.values() for each in yaml.safe_load_all(text) if each]
    return {each["kind"]: each for each in objects}


@pytest.fixture(params=VARIANTS)
def objects(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    return render(VARIANTS[request.param])


def container(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    (only,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    return dict(only)


def parsed(module: Any, arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    module.configure(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_one_that_kubernetes_knows(objects: dict[str, dict[str, Any]], version: str) -> None:
    assert set(objects) >= {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"}
    for each in objects.values():
        kubernetes_validate.validate(each, version, strict=True)


def test_the_check_finds_a_misspelt_field() -> None:
    deployment = render({})["Deployment"]
    deployment["spec"]["template"]["spec"]["terminationGraceSeconds"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, KUBERNETES[-1], strict=True)


def test_the_command_is_one_that_serve_takes(objects: dict[str, dict[str, Any]]) -> None:
    first, *arguments = container(objects)["args"]
    assert first == "serve"
    mounts = {mount["mountPath"] for mount in container(objects)["volumeMounts"]}
    asked = parsed(serve_command, arguments)
    for bundle in asked.bundle:
        assert bundle.partition("=")[2] in mounts
    for glossary in asked.glossary or []:
        assert glossary.partition("=")[2].rpartition("/")[0] in mounts


def test_a_glossary_is_read_from_its_config_map() -> None:
    objects = render(VARIANTS["glossaries"])
    assert parsed(serve_command, container(objects)["args"][1:]).glossary == [
        "Legal=/glossaries/Legal/Legal.tsv",
        "travel=/glossaries/travel/travel.tsv",
    ]
    volumes = {each["name"]: each for each in objects["Deployment"]["spec"]["template"]["spec"]["volumes"]}
    assert volumes["glossary-legal"]["configMap"] == volumes["glossary-travel"]["configMap"] == {"name": "terms"}


def test_every_probe_is_a_real_inference_and_only_liveness_forgives_a_refusal(objects: dict[str, dict[str, Any]]) -> None:
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        program, command, *arguments = container(objects)[name]["exec"]["command"]
        assert (program, command) == ("dragoman", "probe")
        assert parsed(probe_command, arguments).live == (name == "livenessProbe")


def test_a_pod_is_given_longer_than_its_drain(objects: dict[str, dict[str, Any]]) -> None:
    grace_s = objects["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    waits_s = int(container(objects)["lifecycle"]["preStop"]["exec"]["command"][1])
    drain_s = parsed(serve_command, container(objects)["args"][1:]).drain_timeout
    assert grace_s >= waits_s + drain_s + 15


def test_selectors_select_the_pods(objects: dict[str, dict[str, Any]]) -> None:
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    selectors = [
        objects["Deployment"]["spec"]["selector"]["matchLabels"],
        objects["Service"]["spec"]["selector"],
        objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels for selector in selectors)


def test_the_pod_is_confined(objects: dict[str, dict[str, Any]]) -> None:
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    assert container(objects)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert objects["NetworkPolicy"]["spec"]["egress"] == []


def test_mutual_tls_reads_the_three_files_of_the_secret() -> None:
    asked = parsed(serve_command, container(render(VARIANTS["mutual TLS"]))["args"][1:])
    files = (asked.tls_certificate, asked.tls_key, asked.tls_client_roots)
    assert [str(path) for path in files] == ["/tls/tls.crt", "/tls/tls.key", "/tls/ca.crt"]


def test_the_memory_limit_leaves_a_gibibyte_beside_the_engines_contract() -> None:
    limit = DEFAULTS["resources"]["limits"]["memory"].removesuffix("i")
    assert size(limit) >= size(DEFAULTS["serve"]["maxMemory"]) + (1 << 30)


def test_an_autoscaled_deployment_leaves_the_number_to_the_autoscaler() -> None:
    objects = render(VARIANTS["autoscaled"])
    assert "replicas" not in objects["Deployment"]["spec"]
    assert objects["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == objects["Deployment"]["metadata"]["name"]


def test_the_autoscalers_metrics_are_those_the_adapter_serves() -> None:
    asked = {
        each["pods"]["metric"]["name"]
        for each in render(VARIANTS["autoscaled"])["HorizontalPodAutoscaler"]["spec"]["metrics"]
    }
    adapter = yaml.safe_load((ROOT / "deploy/prometheus/adapter.yml").read_text(encoding="utf-8"))
    assert asked == {rule["name"]["as"] for rule in adapter["rules"]["custom"]}


def test_a_bundle_from_an_image_is_an_image_volume() -> None:
    volumes = render(VARIANTS["gpu from an image"])["Deployment"]["spec"]["template"]["spec"]["volumes"]
    assert [volume["image"]["reference"] for volume in volumes if "image" in volume] == ["registry.example/bundles/en-de:1"]


@pytest.mark.parametrize(
    "changes", [{"bundles": {"en-de": {"image": "x"}}}, {"serve": {"device": "abacus"}}, {"replicas": 0}]
)
def test_impossible_values_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        render(changes)


def test_the_chart_has_the_packages_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert f'version = "{chart["appVersion"]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
