from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.bundle.manifest import SCHEMA_VERSION, Manifest, read_manifest
from dragoman.errors import BundleError


def test_a_manifest_survives_writing_and_reading(manifest: Manifest) -> None:
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_a_newer_schema_is_refused_with_the_way_out(manifest: Manifest) -> None:
    text = manifest.to_json().replace(f'"schema_version": {SCHEMA_VERSION}', f'"schema_version": {SCHEMA_VERSION + 1}')
    with pytest.raises(BundleError, match=rf"schema version {SCHEMA_VERSION + 1}.*upgrade dragoman"):
        Manifest.from_json(text)


def test_a_bundle_of_schema_1_is_refused_with_the_way_out(manifest: Manifest) -> None:
    raw = json.loads(manifest.to_json())
    raw["schema_version"], raw["graphs"][0]["lowering"], raw["graphs"][0]["in_place_cache"] = 1, "cpu", True
    with pytest.raises(BundleError, match=r"schema version 1.*export the checkpoint again"):
        Manifest.from_json(json.dumps(raw))


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


def test_the_error_for_a_missing_graph_lists_those_present(manifest: Manifest) -> None:
    assert manifest.graph("decoder", "native").file == "decoder.native.onnx"
    with pytest.raises(BundleError, match=r"no portable decoder graph \(it has: native\)"):
        manifest.graph("decoder", "portable")
