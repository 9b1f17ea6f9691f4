"""docker-compose.yml and its additions, checked as far as they can be without a Docker engine."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_files import ROOT, compose, option, versions

from dragoman.client import probe_command
from dragoman.export import command as export_command
from dragoman.loadtest import command as loadtest_command
from dragoman.serving import command as serve_command
from dragoman.serving.argument_types import size

TRITONS = ("triton", "triton-gpu")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return dict(compose("docker-compose.yml")["services"])


def parsed(command_module: Any, arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command_module.configure(parser)
    return parser.parse_args(arguments)


def test_everything_the_deployment_consists_of_is_a_service(services: dict[str, Any]) -> None:
    assert set(services) == {"triton", "triton-gpu", "export", "loadtest", "prometheus", "grafana"}


def test_there_are_no_obsolete_keys() -> None:
    for file in ("docker-compose.yml", *(f"deploy/compose/{name}.yml" for name in ("tls", "glossary", "replicas"))):
        text = re.sub(r"!reset", "", (ROOT / file).read_text(encoding="utf-8"))
        assert "version" not in yaml.safe_load(text)
        assert not re.search(r"^\s*(links|container_name|scale|runtime):", text, re.MULTILINE)


def test_every_bind_mount_but_what_the_export_makes_exists(services: dict[str, Any]) -> None:
    sources = [mount["source"] for service in services.values() for mount in service["volumes"] if mount["type"] == "bind"]
    missing = {Path(source).relative_to(ROOT).as_posix() for source in sources if not Path(source).exists()}
    assert missing <= {"bundles", "bundles/en-de", "reports"}


def test_every_service_is_confined() -> None:
    services = compose("docker-compose.yml", "deploy/compose/replicas.yml")["services"]
    for name, service in services.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert int(service["mem_limit"]) > 0, name
        assert "nginx-unprivileged" in service["image"] or not service["user"].startswith(("0", "root")), name


def test_only_what_the_one_shot_services_make_is_written_to_the_host(services: dict[str, Any]) -> None:
    writable = {
        (name, Path(mount["source"]).relative_to(ROOT).as_posix())
        for name, service in services.items()
        for mount in service["volumes"]
        if mount["type"] == "bind" and not mount.get("read_only")
    }
    assert writable == {("export", "bundles"), ("loadtest", "reports")}


@pytest.mark.parametrize("name", TRITONS)
def test_connections_have_descriptors(services: dict[str, Any], name: str) -> None:
    assert services[name]["ulimits"]["nofile"]["soft"] >= 65536
    assert services[name]["ulimits"]["memlock"] == -1


def test_every_port_is_open_to_this_machine_only(services: dict[str, Any]) -> None:
    balanced = compose("docker-compose.yml", "deploy/compose/replicas.yml")["services"]
    ports = [port for service in (*services.values(), balanced["balancer"]) for port in service.get("ports", [])]
    assert len(ports) == 7
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


@pytest.mark.parametrize("name", TRITONS)
def test_the_health_check_is_a_real_inference(services: dict[str, Any], name: str) -> None:
    kind, program, command, *arguments = services[name]["healthcheck"]["test"]
    assert (kind, program, command) == ("CMD", "dragoman", "probe")
    assert parsed(probe_command, arguments).server == "127.0.0.1:8001"


@pytest.mark.parametrize("name", TRITONS)
def test_the_command_is_one_that_serve_takes(services: dict[str, Any], name: str) -> None:
    first, *arguments = services[name]["command"]
    assert first == "serve"
    asked = parsed(serve_command, arguments)
    ports = {port["target"] for port in services[name]["ports"]}
    assert {asked.grpc_address.port, asked.metrics_address.port} == ports
    assert asked.bundle == [f"en-de={services[name]['volumes'][0]['target']}"]


@pytest.mark.parametrize("name", TRITONS)
def test_the_memory_limit_leaves_a_gibibyte_beside_the_engines_contract(services: dict[str, Any], name: str) -> None:
    allowed = size(option(services[name]["command"], "--max-memory"))
    assert int(services[name]["mem_limit"]) >= allowed + (1 << 30)


@pytest.mark.parametrize("name", TRITONS)
def test_the_container_is_given_longer_than_the_drain_and_tritons_end(services: dict[str, Any], name: str) -> None:
    drain_s = float(option(services[name]["command"], "--drain-timeout"))
    grace = services[name]["stop_grace_period"]
    assert grace == "1m0s"
    assert drain_s + 10 + 15 <= 60


def test_only_the_gpu_profile_reserves_a_device(services: dict[str, Any]) -> None:
    devices = services["triton-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert [(device["driver"], device["capabilities"]) for device in devices] == [("nvidia", ["gpu"])]
    assert "deploy" not in services["triton"]


def test_the_load_test_takes_its_command_and_measures_the_servers_alias(services: dict[str, Any]) -> None:
    asked = parsed(loadtest_command, services["loadtest"]["command"][1:])
    assert asked.server == "triton:8001"
    assert all("triton" in services[name]["networks"]["default"]["aliases"] for name in TRITONS)
    assert services["loadtest"]["restart"] == services["export"]["restart"] == "no"


def test_the_export_takes_its_command_and_writes_what_is_served(services: dict[str, Any]) -> None:
    first, *arguments = services["export"]["command"]
    assert first == "export"
    asked = parsed(export_command, arguments)
    places = {mount["target"]: Path(mount["source"]) for mount in services["export"]["volumes"]}
    assert (places[str(asked.checkpoint)] / "config.json").is_file()
    written = places[str(asked.output.parent)] / asked.output.name
    assert all(written == Path(services[name]["volumes"][0]["source"]) for name in TRITONS)


def test_prometheus_finds_its_files_and_the_servers(services: dict[str, Any]) -> None:
    mounted = {mount["target"] for mount in services["prometheus"]["volumes"]}
    config_path = Path(option(services["prometheus"]["command"], "--config.file"))
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))
    assert {str(config_path), *(str(config_path.parent / rules) for rules in config["rule_files"])} <= mounted
    assert option(services["prometheus"]["command"], "--storage.tsdb.path") in mounted
    (names,) = [found for job in config["scrape_configs"] for found in job["dns_sd_configs"]]
    for name in TRITONS:
        assert set(names["names"]) <= set(services[name]["networks"]["default"]["aliases"])
        assert parsed(serve_command, services[name]["command"][1:]).metrics_address.port == names["port"]


def test_grafana_opens_with_the_dashboard_and_knows_its_prometheus(services: dict[str, Any]) -> None:
    places = {mount["target"]: Path(mount["source"]) for mount in services["grafana"]["volumes"]}
    provisioned = places["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioned / "dashboards/dragoman.yml").read_text(encoding="utf-8"))["providers"]
    home = Path(services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == provider["options"]["path"]
    dashboard = json.loads((places[str(home.parent)] / home.name).read_text(encoding="utf-8"))
    (source,) = yaml.safe_load((provisioned / "datasources/prometheus.yml").read_text(encoding="utf-8"))["datasources"]
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"] if panel["type"] != "row"} == {source["uid"]}
    assert source["url"] == f"http://prometheus:{services['prometheus']['ports'][0]['target']}"


def test_images_are_those_of_the_version_file(services: dict[str, Any]) -> None:
    around = versions()["around"]
    assert services["prometheus"]["image"] == around["prometheus_image"]
    assert services["grafana"]["image"] == around["grafana_image"]
    arguments = services["triton"]["build"]["args"]
    assert arguments["TRITON_TAG"] == versions()["triton"]["tag"]
    assert arguments["TRITON_IMAGE"] == versions()["triton"]["image"]


def test_tls_needs_client_certificates_and_reads_every_file_as_a_secret() -> None:
    project = compose("docker-compose.yml", "deploy/compose/tls.yml")
    service = project["services"]["triton"]
    secrets = {f"/run/secrets/{name}" for name in project["secrets"]}
    assert {secret["source"] for secret in service["secrets"]} == set(project["secrets"])
    asked = parsed(serve_command, service["command"][1:])
    assert {str(asked.tls_certificate), str(asked.tls_key), str(asked.tls_client_roots)} == secrets
    probe = parsed(probe_command, service["healthcheck"]["test"][3:])
    assert probe.server.startswith("grpcs://")
    assert {probe.tls_ca, probe.tls_cert, probe.tls_key} <= secrets


@pytest.mark.parametrize("name", TRITONS)
def test_the_glossary_is_added_to_the_command_and_mounted(services: dict[str, Any], name: str) -> None:
    service = compose("docker-compose.yml", "deploy/compose/glossary.yml")["services"][name]
    without = [part for part in service["command"] if not part.startswith("--glossary=")]
    assert without == services[name]["command"]
    asked = parsed(serve_command, service["command"][1:])
    mounts = {mount["target"]: mount for mount in service["volumes"]}
    assert asked.glossary == ["terms=/glossaries/terms.tsv"]
    assert mounts["/glossaries/terms.tsv"]["read_only"]
    assert set(mounts) == {"/bundles/en-de", "/glossaries/terms.tsv"}


def test_replicas_are_reached_through_the_balancer_only() -> None:
    services = compose("docker-compose.yml", "deploy/compose/replicas.yml")["services"]
    assert services["triton"]["deploy"]["replicas"] == 3
    assert not services["triton"].get("ports")
    assert [port["target"] for port in services["balancer"]["ports"]] == [8001]
    assert services["balancer"]["image"] == versions()["around"]["nginx_image"]
    assert all(Path(mount["source"]).is_file() for mount in services["balancer"]["volumes"])
