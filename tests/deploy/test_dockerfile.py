"""The Dockerfile's steps replayed in a clean virtual environment, and its command run with the embedded Triton."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from clean_environment import CleanEnvironment, install
from compose_files import ROOT, compose, versions
from native import build
from native.glibc import oldest_glibc

from dragoman.serving.triton.flags import CLOSED_BY_DEFAULT, Address, Tls, TritonFlags
from dragoman.serving.triton.installation import Installation, find_installation, official
from served import Caller, Server, eventually

pytestmark = pytest.mark.timeout(3600)  # a compilation: a minute on two cores that do nothing else
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def instructions(name: str, stage: str) -> list[str]:
    """What an instruction says each time it stands in a stage, continuation lines joined."""
    joined = re.sub(r"\\\n\s*", " ", DOCKERFILE)
    stages = re.split(r"^FROM .* AS ", joined, flags=re.MULTILINE)
    text = next(text for text in stages if text.startswith(f"{stage}\n"))
    return re.findall(rf"^{name} (.*)$", text, re.MULTILINE)


def defaults() -> dict[str, str]:
    return dict(re.findall(r"^ARG (\w+)=(.*)$", DOCKERFILE, re.MULTILINE))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the command of the `wheel` stage from a copy of exactly what that stage copies."""
    source, wheels = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for copy in instructions("COPY", "wheel"):
        *names, target = copy.split()
        destination = source / target
        for name in names:
            subprocess.run(["cp", "-r", str(ROOT / name), str(destination)], check=True)
    (source / "core" / "dragoman" / "native" / build.OPS_NAME).write_bytes(b"from another time")
    command = shlex.split(instructions("RUN", "wheel")[-1].replace("/wheels", str(wheels)))
    assert command[0] == "python"
    variables = dict(setting.split("=", 1) for setting in instructions("ENV", "wheel"))
    if shutil.which(variables["CXX"]) is None:
        variables["CXX"] = shlex.join(build.compiler())
    subprocess.run(
        [sys.executable, *command[1:]],
        cwd=source,
        env={**os.environ, **variables},
        check=True,
        capture_output=True,
    )
    (built,) = wheels.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> CleanEnvironment:
    return install(wheel, tmp_path_factory.mktemp("clean") / "venv")


@pytest.fixture(scope="module")
def deployed(clean: CleanEnvironment, reference_bundle: Path) -> Iterator[Server]:
    """The command of the compose file, from the wheel; only paths and ports are this machine's."""
    command = compose("docker-compose.yml")["services"]["triton"]["command"]
    here = [
        re.sub(r"address=0\.0\.0\.0:\d+", "address=127.0.0.1:0", part).replace("/bundles/en-de", str(reference_bundle))
        for part in command
    ]
    assert here[0] == "serve"
    with Server.of(here[1:], program=str(clean.dragoman)) as server:
        yield server


def test_defaults_are_those_of_the_version_file() -> None:
    known = versions()
    assert defaults()["TRITON_IMAGE"] == known["triton"]["image"]
    assert defaults()["TRITON_TAG"] == known["triton"]["tag"]
    assert defaults()["PYTHON_IMAGE"] == known["around"]["python_image"]


def test_the_image_is_not_older_than_the_security_bulletins_ask_for() -> None:
    triton = versions()["triton"]
    assert tuple(map(int, triton["tag"].partition("-")[0].split("."))) >= tuple(map(int, triton["floor"].split(".")))


def test_the_locked_versions_are_those_of_the_images_python() -> None:
    lock = f"constraints/python{versions()['triton']['python']}.txt"
    for stage in ("client", "export", "serving"):
        assert instructions("COPY", stage) == [f"{lock} /constraints.txt"]
    locked = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    onnxruntime = versions()["runtime"]["onnxruntime"]
    assert {f"onnxruntime=={onnxruntime}", f"onnxruntime-gpu=={onnxruntime}"} <= set(locked)


def test_the_gpu_image_brings_exactly_the_tensorrt_that_builds_the_engines() -> None:
    """An engine runs in the release that built it and in no other."""
    known = versions()
    release, cuda = known["runtime"]["tensorrt_rtx"], known["runtime"]["tensorrt_rtx_cuda"]
    assert known["triton"]["cuda"].split(".")[0] == cuda
    wanted = {f"tensorrt_rtx_cu{cuda}_{part}=={release}" for part in ("bindings", "libs")}
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = {name: re.search(rf"^{name} = \[(.*?)^\]", project, re.M | re.S) for name in ("tensorrt", "container-gpu")}
    assert all(extra is not None for extra in extras.values())
    assert all(f'"{line};' in extras["tensorrt"][1] for line in wanted)
    assert '"dragoman[tensorrt]"' in extras["container-gpu"][1]
    for lock in ROOT.glob("constraints/python3.*.txt"):
        assert wanted <= set(lock.read_text(encoding="utf-8").splitlines()), lock


def test_the_standard_package_is_pinned_to_the_release_whose_bindings_are_tested() -> None:
    release, cuda = (versions()["runtime"][name] for name in ("tensorrt_standard", "tensorrt_rtx_cuda"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    standard, dev = (re.search(rf"^{name} = \[(.*?)^\]", project, re.M | re.S) for name in ("tensorrt-standard", "dev"))
    assert standard is not None
    assert dev is not None
    assert f'"tensorrt_cu{cuda}=={release};' in standard[1]
    assert f'"tensorrt_cu{cuda}_bindings=={release};' in dev[1]


def test_a_digest_pins_the_image() -> None:
    (serving,) = [line for line in DOCKERFILE.splitlines() if line.startswith("FROM") and line.endswith("AS serving")]
    assert serving == "FROM ${TRITON_IMAGE}:${TRITON_TAG}${TRITON_DIGEST:+@${TRITON_DIGEST}} AS serving"


def test_no_image_runs_as_root() -> None:
    for stage in ("client", "export", "serving"):
        assert instructions("USER", stage) == ["10001:10001"]


def test_the_build_context_has_what_is_copied_and_nothing_else() -> None:
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line.startswith("!")
    }
    copied = {
        name.split("/")[0]
        for stage in ("wheel", "client", "export", "serving")
        for copy in instructions("COPY", stage)
        for name in copy.split()[:-1]
    }
    assert allowed == copied


def test_a_library_of_this_machine_stays_out_of_the_build_context() -> None:
    assert "**/*.so" in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()


def test_a_compiler_is_where_the_wheel_is_made_and_nowhere_else() -> None:
    """The python image has none, and the images that run need none."""

    def installs_one(stage: str) -> bool:
        return any(re.search(r"apt-get install\b.* g\+\+( |$)", step) for step in instructions("RUN", stage))

    assert installs_one("wheel")
    assert not any(map(installs_one, ("client", "export", "serving")))


def test_the_wheel_names_the_glibc_that_its_libraries_need_and_has_no_sources(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        needed = max(oldest_glibc(Path(content.extract(f"dragoman/native/{name}", tmp_path))) for name in build.NAMES)
        assert not any(name.endswith((".cpp", ".hpp")) for name in content.namelist())
    assert wheel.name.endswith(f"-py3-none-manylinux_2_{max(28, needed[1])}_x86_64.whl")


def test_the_wheel_brings_the_operators(clean: CleanEnvironment) -> None:
    code = "import onnxruntime; from dragoman import native; path = str(native.ops_library()); print(path); "
    code += "onnxruntime.SessionOptions().register_custom_ops_library(path)"
    assert Path(clean.output("-c", code)).is_relative_to(clean.home)


def test_the_wheel_imports_all_three_parts_and_brings_the_triton_models(clean: CleanEnvironment) -> None:
    code = (
        "import dragoman.client, dragoman.serving.command, dragoman.export.command; "
        "from dragoman.serving.triton.installation import model_repository as m; "
        "import json; print(json.dumps([str(m()), sorted(p.name for p in m().iterdir())]))"
    )
    repository, models = json.loads(clean.output("-c", code))
    assert Path(repository).is_relative_to(clean.home)
    assert {"translate", "translate_stream", "encoder", "decoder"} <= set(models)


def test_the_entry_point_serves_with_the_embedded_triton(deployed: Server) -> None:
    caller = Caller(deployed.grpc)
    try:
        assert caller.translate(["Where is the station?"]).best[0]
    finally:
        caller.close()


def test_the_health_check_is_green_while_it_serves_and_red_when_it_is_gone(
    clean: CleanEnvironment, deployed: Server, reference_bundle: Path
) -> None:
    _, program, *arguments = compose("docker-compose.yml")["services"]["triton"]["healthcheck"]["test"]
    check = [str(clean.python.with_name(program)), *arguments]
    for address, code in ((deployed.grpc, 0), ("127.0.0.1:1", 1)):
        here = [part.replace("127.0.0.1:8001", address) for part in check]
        assert subprocess.run(here, capture_output=True, check=False, timeout=600).returncode == code


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
def test_with_tls_the_command_serves_and_its_health_check_is_green(reference_bundle: Path, tmp_path: Path) -> None:
    """The files of deploy/compose/tls.yml as an operator would make them: one authority, a certificate signed by it."""
    make_certificates(tmp_path)
    secrets = {"tls_certificate": "server.pem", "tls_key": "server.key", "tls_client_roots": "authority.pem"}
    service = compose("docker-compose.yml", "deploy/compose/tls.yml")["services"]["triton"]

    def here(part: str, address: str) -> str:
        for name, file in secrets.items():
            part = part.replace(f"/run/secrets/{name}", str(tmp_path / file))
        part = part.replace("/bundles/en-de", str(reference_bundle))
        return re.sub(r"(0\.0\.0\.0|127\.0\.0\.1):\d+", address, part)

    with Server.of([here(part, "127.0.0.1:0") for part in service["command"][1:]]) as server:
        _, program, *arguments = service["healthcheck"]["test"]
        check = [str(Path(sys.executable).with_name(program)), *(here(part, server.grpc) for part in arguments)]
        checked = subprocess.run(check, capture_output=True, text=True, check=False, timeout=600)
        assert checked.returncode == 0, checked.stderr
        stranger = [part for part in check if not part.startswith(("--tls-cert", "--tls-key"))]
        assert subprocess.run(stranger, capture_output=True, check=False, timeout=600).returncode == 1


def make_certificates(directory: Path) -> None:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(
        "req", "-x509", *new_key, "-keyout", "authority.key", "-out", "authority.pem", "-days", "2", "-subj", "/CN=authority"
    )
    openssl("req", *new_key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server")
    (directory / "names").write_text("subjectAltName=DNS:localhost,DNS:triton", encoding="utf-8")
    signing = ("-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl("x509", "-req", "-in", "server.csr", *signing, "-out", "server.pem")


def test_the_admin_endpoints_and_http_are_closed_in_the_running_server(deployed: Server) -> None:
    import psutil

    (triton,) = eventually(lambda: deployed.children()["triton"])
    flags = psutil.Process(triton).cmdline()[1:]
    assert "--allow-http=false" in flags
    assert any(flag.startswith(f"--grpc-restricted-protocol={','.join(CLOSED_BY_DEFAULT)}:") for flag in flags)


def test_the_containers_flags_are_those_of_the_embedded_server(tmp_path: Path) -> None:
    """Both load our backend from the directory that the installation made."""

    def argv(installation: Installation) -> list[str]:
        tls = Tls(Path("/c.pem"), Path("/k.pem"), Path("/roots.pem"))
        grpc, metrics = Address("127.0.0.1", 8001), Address("127.0.0.1", 8002)
        return TritonFlags(Path("/models"), installation.backend_directory, grpc, metrics, "token", tls=tls).argv()

    embedded = find_installation(tmp_path / "triton")
    container = official(Path("/opt/tritonserver"), embedded.backend_directory)
    assert container.binary == Path("/opt/tritonserver/bin/tritonserver")
    assert argv(container) == argv(embedded)
