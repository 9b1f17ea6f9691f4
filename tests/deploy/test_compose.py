"""docker-compose.yml and its additions, checked as far as they can be without a Docker engine."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_files import ROOT, compose, option, versions

from dragoman.client import probe_command
from dragoman.loadtest import command as loadtest_command
from dragoman.serving import command as serve_command

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
    for file in ("docker-compose.yml", "deploy/compose/tls.yml", "deploy/compose/replicas.yml"):
        text = re.sub(r"!reset", "", (ROOT / file).read_text(encoding="utf-8"))
        assert "version" not in yaml.safe_load(text)
        assert not re.search(r"^\s*(links|container_name|scale|runtime):", text, re.MULTILINE)


def test_every_bind_mount_but_what_the_export_makes_exists(services: dict[str, Any]) -> None:
    sources = [mount["source"] for service in services.values() for mount in service["volumes"] if mount["type"] == "bind"]
    missing = {Path(source).relative_to(ROOT).as_posix() for source in sources if not Path(source).exists()}
    assert missing <= {"bundles", "bundles/en-de", "reports"}


@pytest.mark.parametrize("name", TRITONS)
def test_the_server_is_confined(services: dict[str, Any], name: str) -> None:
    service = services[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service["user"].startswith(("0", "root"))
    assert all(mount["read_only"] for mount in service["volumes"] if mount["type"] == "bind")


def test_every_port_is_open_to_this_machine_only(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert len(ports) == 6
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


@pytest.mark.parametrize("name", TRITONS)
def test_the_health_check_is_a_real_inference(services: dict[str, Any], name: str) -> None:
    kind, program, command, *arguments = services[name]["healthcheck"]["test"]
    assert (kind, program, command) == ("CMD", "dragoman", "probe")
    assert parsed(probe_command, arguments).to == "127.0.0.1:8001"


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
    allowed = serve_command.size(option(services[name]["command"], "--max-memory"))
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
    assert asked.to == "triton:8001"
    assert all("triton" in services[name]["networks"]["default"]["aliases"] for name in TRITONS)
    assert services["loadtest"]["restart"] == services["export"]["restart"] == "no"


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
    assert probe.to.startswith("grpcs://")
    assert {probe.tls_ca, probe.tls_cert, probe.tls_key} <= secrets


def test_replicas_are_reached_through_the_balancer_only() -> None:
    services = compose("docker-compose.yml", "deploy/compose/replicas.yml")["services"]
    assert services["triton"]["deploy"]["replicas"] == 3
    assert not services["triton"].get("ports")
    assert [port["target"] for port in services["balancer"]["ports"]] == [8001]
    assert services["balancer"]["image"] == versions()["around"]["nginx_image"]
    assert all(Path(mount["source"]).is_file() for mount in services["balancer"]["volumes"])
