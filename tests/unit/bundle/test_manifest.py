from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.bundle.manifest import Manifest, read_manifest
from dragoman.errors import BundleError


def test_a_manifest_survives_writing_and_reading(manifest: Manifest) -> None:
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_a_newer_schema_is_refused_with_the_way_out(manifest: Manifest) -> None:
    text = manifest.to_json().replace('"schema_version": 1', '"schema_version": 2')
    with pytest.raises(BundleError, match=r"schema version 2.*upgrade dragoman"):
        Manifest.from_json(text)


def _drop(raw: dict[str, Any]) -> None:
    del raw["dimensions"]["heads"]


def _retype(raw: dict[str, Any]) -> None:
    raw["tokens"]["eos"] = "zero"


def _add(raw: dict[str, Any]) -> None:
    raw["graphs"][0]["colour"] = "red"


def _misname(raw: dict[str, Any]) -> None:
    raw["precision"] = "fp8"


@pytest.mark.parametrize(
    ("damage", "named"),
    [(_drop, "dimensions lacks heads"), (_retype, r"tokens\.eos"), (_add, r"graphs\[0\].*colour"), (_misname, "precision")],
)
def test_a_damaged_manifest_names_the_field(
    manifest: Manifest, damage: Callable[[dict[str, Any]], None], named: str
) -> None:
    raw = json.loads(manifest.to_json())
    damage(raw)
    with pytest.raises(BundleError, match=named):
        Manifest.from_json(json.dumps(raw))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": "one"}', "\x00"])
def test_what_is_no_manifest_is_a_bundle_error(text: str) -> None:
    with pytest.raises(BundleError):
        Manifest.from_json(text)


def test_a_directory_without_manifest_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="dragoman export"):
        read_manifest(tmp_path)
    with pytest.raises(BundleError, match="no such directory"):
        read_manifest(tmp_path / "nowhere")


def test_a_missing_graph_says_which_are_there(manifest: Manifest) -> None:
    assert manifest.graph("decoder", "cpu").file == "decoder.cpu.onnx"
    with pytest.raises(BundleError, match=r"no portable decoder graph \(it has: cpu\)"):
        manifest.graph("decoder", "portable")
