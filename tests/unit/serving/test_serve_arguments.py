"""What `dragoman serve` makes of its arguments, before anything is started."""

from __future__ import annotations

import argparse
import dataclasses
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_bundle import MANIFEST

from dragoman.bundle.manifest import FileRecord, Graph, ModelCard, TokenizerFiles
from dragoman.errors import BundleError, ServeError, UsageError
from dragoman.serving.command import configure, server_config
from dragoman.serving.config import ServerConfig
from dragoman.serving.engine import EngineLimits
from dragoman.serving.process.loaded_bundle import engine_limits
from dragoman.serving.process.settings import ProcessSettings
from dragoman.serving.triton.flags import Tls


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle as far as its manifest goes."""
    manifest = dataclasses.replace(
        MANIFEST,
        model=ModelCard(name="opus-mt en.de", architecture="MarianMTModel", parameters=1),
        graphs=(Graph("decoder", "native", "decoder.onnx", 18, (), ()),),
        tokenizer=TokenizerFiles("marian", {"source_model": "source.spm"}),
        files={"decoder.onnx": FileRecord("0" * 64, 3), "source.spm": FileRecord("1" * 64, 5)},
    )
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "manifest.json").write_text(manifest.to_json(), encoding="utf-8")
    return tmp_path / "bundle"


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def config(*arguments: str) -> ServerConfig:
    parser = argparse.ArgumentParser()
    configure(parser)
    anywhere = [] if "--grpc-address" in arguments else ["--grpc-address", "127.0.0.1:0"]
    metrics = [] if "--metrics-address" in arguments else ["--metrics-address", "127.0.0.1:0"]
    return server_config(parser.parse_args([*arguments, *anywhere, *metrics]))


class TestBundles:
    def test_are_named_by_the_operator(self, bundle: Path) -> None:
        assert config("--bundle", f"a={bundle}", "--bundle", f"b={bundle}").bundle_names == ("a", "b")

    def test_are_named_after_their_model_otherwise(self, bundle: Path) -> None:
        assert config("--bundle", str(bundle)).bundle_names == ("opus-mt-en-de",)

    def test_one_at_least_is_needed(self) -> None:
        with pytest.raises(UsageError, match="give --bundle PATH"):
            config()

    def test_two_of_one_name_are_refused(self, bundle: Path) -> None:
        with pytest.raises(UsageError, match="the same name"):
            config("--bundle", f"a={bundle}", "--bundle", f"a={bundle}")

    @pytest.mark.parametrize("name", ["a b", "../x", ".x", "x" * 41, ""])
    def test_a_name_that_could_be_a_path_is_refused(self, bundle: Path, name: str) -> None:
        with pytest.raises(UsageError, match="can't name a bundle"):
            config("--bundle", f"{name}={bundle}")

    def test_one_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(BundleError, match="is not a bundle"):
            config("--bundle", str(tmp_path / "none"))

    def test_one_of_a_newer_schema_is_refused(self, bundle: Path) -> None:
        path = bundle / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "schema_version": 99}), encoding="utf-8")
        with pytest.raises(BundleError, match=r"schema version 99.*upgrade dragoman"):
            config("--bundle", str(bundle))


class TestAddresses:
    def test_addresses_are_loopback_by_default(self) -> None:
        parser = argparse.ArgumentParser()
        configure(parser)
        defaults = parser.parse_args([])
        assert (defaults.grpc_address.host, defaults.metrics_address.host) == ("127.0.0.1", "127.0.0.1")
        assert defaults.http_address is None

    def test_port_0_becomes_a_real_one(self, bundle: Path) -> None:
        assert config("--bundle", str(bundle)).grpc.port > 0

    def test_metrics_can_be_off(self, bundle: Path) -> None:
        assert config("--bundle", str(bundle), "--metrics-address", "off").metrics is None

    def test_an_ipv6_address_keeps_its_colons(self, bundle: Path) -> None:
        http = config("--bundle", str(bundle), "--http-address", "[::1]:0").http
        assert http is not None
        assert http.host == "::1"

    @pytest.mark.parametrize("option", ["--grpc-address", "--metrics-address", "--http-address"])
    def test_a_port_in_use_is_refused(self, bundle: Path, taken: str, option: str) -> None:
        with pytest.raises(ServeError, match=f"can't listen at {taken}: Address already in use; .* {option}"):
            config("--bundle", str(bundle), option, taken)

    def test_an_address_of_another_machine_is_refused(self, bundle: Path) -> None:
        with pytest.raises(ServeError, match=r"can't listen at 192\.0\.2\.1:9"):
            config("--bundle", str(bundle), "--grpc-address", "192.0.2.1:9")


class TestGlossaries:
    def test_each_has_a_name_and_an_absolute_file(
        self, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "terms.tsv").write_text("station\tHaltestelle\n", encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        found = config("--bundle", str(bundle), "--glossary", "a=terms.tsv", "--glossary", "b=terms.tsv").glossaries
        assert found == (("a", tmp_path / "terms.tsv"), ("b", tmp_path / "terms.tsv"))

    @pytest.mark.parametrize(
        ("given", "complaint"),
        [
            (["terms.tsv"], "write NAME=FILE.tsv"),
            (["../x=terms.tsv"], "can't name a glossary"),
            (["a=terms.tsv", "a=terms.tsv"], "two glossaries have the name a"),
            (["a=none.tsv"], "can't read the glossary .*none.tsv"),
            (["a=broken.tsv"], "line 2: 1 columns"),
        ],
    )
    def test_what_can_not_be_used_is_refused_at_once(
        self, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], complaint: str
    ) -> None:
        (tmp_path / "terms.tsv").write_text("station\tHaltestelle\n", encoding="utf-8")
        (tmp_path / "broken.tsv").write_text("station\tHaltestelle\nfriend\n", encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        with pytest.raises((UsageError, ServeError), match=complaint):
            config("--bundle", str(bundle), *(part for each in given for part in ("--glossary", each)))


class TestSafety:
    def test_the_admin_token_is_a_secret_of_every_start(self, bundle: Path) -> None:
        first, second = config("--bundle", str(bundle)), config("--bundle", str(bundle))
        assert first.admin_token != second.admin_token
        assert len(first.admin_token) >= 32

    def test_the_operator_may_choose_the_admin_token(self, bundle: Path, tmp_path: Path) -> None:
        chosen = "0123456789abcdef"
        (tmp_path / "token").write_text(f"{chosen}\n", encoding="utf-8")
        assert config("--bundle", str(bundle), "--admin-token-file", str(tmp_path / "token")).admin_token == chosen

    def test_a_short_admin_token_is_refused(self, bundle: Path, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("short", encoding="utf-8")
        with pytest.raises(ServeError, match="16 or more"):
            config("--bundle", str(bundle), "--admin-token-file", str(tmp_path / "token"))

    def test_half_of_tls_is_refused(self, bundle: Path) -> None:
        with pytest.raises(UsageError, match="needs both"):
            config("--bundle", str(bundle), "--tls-certificate", "c.pem")

    def test_tls_files_that_are_not_there_are_refused(self, bundle: Path) -> None:
        with pytest.raises(ServeError, match=r"--tls-certificate none\.pem: there is no such file"):
            config("--bundle", str(bundle), "--tls-certificate", "none.pem", "--tls-key", "none.key")

    def test_tls_files_are_taken(self, bundle: Path, tmp_path: Path) -> None:
        for name in ("c.pem", "k.pem", "r.pem"):
            (tmp_path / name).touch()
        files = {
            option: str(tmp_path / name)
            for option, name in zip(("certificate", "key", "client-roots"), ("c.pem", "k.pem", "r.pem"), strict=True)
        }
        arguments = [part for option, path in files.items() for part in (f"--tls-{option}", path)]
        assert config("--bundle", str(bundle), *arguments).tls == Tls(
            tmp_path / "c.pem", tmp_path / "k.pem", tmp_path / "r.pem"
        )


class TestNumbers:
    @pytest.mark.parametrize(
        ("text", "size"), [("512M", 512 << 20), ("2g", 2 << 30), ("1.5K", 1536), ("100", 100), ("1GiB", 1 << 30)]
    )
    def test_sizes_are_read(self, bundle: Path, text: str, size: int) -> None:
        assert config("--bundle", str(bundle), "--max-memory", text).engine.max_memory_bytes == size

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--grpc-address", "here"),
            ("--grpc-address", "127.0.0.1:70000"),
            ("--threads", "0"),
            ("--max-memory", "lots"),
            ("--drain-timeout", "0"),
            ("--drain-timeout", "soon"),
            ("--response-cache", "-1"),
        ],
    )
    def test_nonsense_is_refused_by_name(self, arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            config(*arguments)
        assert arguments[0] in capsys.readouterr().err


def test_engine_settings_survive_the_way_to_its_process(bundle: Path) -> None:
    chosen = config("--bundle", f"x={bundle}", "--threads", "2", "--max-beam-size", "8", "--log-requests")
    settings = chosen.engine_settings(chosen.bundles[0])
    assert ProcessSettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings
    assert settings.limits.max_beam_size == 8


@pytest.mark.parametrize(
    ("option", "of"),
    [
        ("--max-texts", lambda settings: settings.limits.max_texts),
        ("--max-text-bytes", lambda settings: settings.limits.max_text_bytes),
        ("--max-beam-size", lambda settings: settings.limits.max_beam_size),
        ("--max-beam-size", lambda settings: limits_of(settings).max_beam_size),
        ("--max-batch", lambda settings: limits_of(settings).max_rows),
        ("--max-queue", lambda settings: limits_of(settings).max_queue_requests),
        ("--max-sessions", lambda settings: limits_of(settings).max_sessions),
        ("--max-memory", lambda settings: settings.engine.max_memory_bytes),
        ("--response-cache", lambda settings: settings.engine.response_cache_bytes),
        ("--threads", lambda settings: settings.engine.threads),
    ],
)
def test_a_limit_that_the_operator_sets_is_the_one_that_holds(
    bundle: Path, option: str, of: Callable[[ProcessSettings], int | None]
) -> None:
    chosen = config("--bundle", f"x={bundle}", option, "7")
    assert of(chosen.engine_settings(chosen.bundles[0])) == 7


def limits_of(settings: ProcessSettings) -> EngineLimits:
    return engine_limits(settings.engine, settings.limits.max_beam_size)
