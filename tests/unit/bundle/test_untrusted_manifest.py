"""A manifest from anywhere: it is read as it was written, or refused with one BundleError."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.bundle.manifest import MAX_MANIFEST_BYTES, Manifest, read_manifest
from dragoman.bundle.records import StoredTensor
from dragoman.bundle.tokenizer import open_tokenizer
from dragoman.errors import BundleError

Path_ = tuple[str | int, ...]


def refusal(raw: object) -> str:
    with pytest.raises(BundleError) as caught:
        Manifest.from_json(raw if isinstance(raw, str) else json.dumps(raw))
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000
    return message


def changed(manifest: Manifest, value: object, *path: str | int) -> dict[str, Any]:
    raw = json.loads(manifest.to_json())
    holder = raw
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return dict(raw)


SIZES = [("dimensions", name) for name in ("d_model", "heads", "head_dim", "encoder_layers", "decoder_layers")]
SIZES += [("dimensions", name) for name in ("source_vocabulary", "target_vocabulary")]
SIZES += [("dimensions", name) for name in ("max_source_tokens", "max_target_tokens", "shortlist")]
SIZES += [("graphs", 0, "opset"), ("graphs", 0, "max_candidates"), ("generation", "beam_size"), ("generation", "max_length")]


@pytest.mark.parametrize("value", [-1, 0, 2**62, 10**60, 1.5, True, "8"])
@pytest.mark.parametrize("path", SIZES, ids=lambda path: ".".join(map(str, path)))
def test_a_size_outside_its_range_is_refused(manifest: Manifest, path: Path_, value: object) -> None:
    assert str(path[-1]) in refusal(changed(manifest, value, *path))


@pytest.mark.parametrize("value", [-1, 32, 2**62])
@pytest.mark.parametrize(
    "path", [("tokens", "pad"), ("tokens", "eos"), ("tokens", "decoder_start"), ("generation", "forced_bos")], ids=str
)
def test_a_token_outside_the_vocabulary_is_refused(manifest: Manifest, path: Path_, value: int) -> None:
    assert str(path[-1]) in refusal(changed(manifest, value, *path))


OUTSIDE = [
    "../../../../etc/passwd",
    "/etc/passwd",
    "..",
    ".",
    "",
    "a/../../b",
    "a//b",
    "a\x00b",
    "a\\b",
    "x" * 300,
    "\ud800",
]


@pytest.mark.parametrize("name", OUTSIDE, ids=ascii)
def test_every_path_stays_inside_the_bundle(manifest: Manifest, name: str) -> None:
    record = {"sha256": "0" * 64, "bytes": 1}
    for path in (("tokenizer", "files", "source_model"), ("graphs", 0, "file")):
        raw = changed(manifest, name, *path)
        raw["files"][name] = record
        refusal(raw)


def test_a_tokenizer_never_opens_a_file_outside_its_bundle(manifest: Manifest, tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "bundle" / "source.spm").symlink_to(tmp_path / "vocab.json")
    with pytest.raises(BundleError, match="outside the bundle"):
        open_tokenizer(tmp_path / "bundle", manifest.tokenizer, manifest.tokens)


def test_every_file_that_is_opened_is_listed(manifest: Manifest) -> None:
    for name in ("source.spm", "decoder.native.onnx"):
        raw = json.loads(manifest.to_json())
        del raw["files"][name]
        assert name in refusal(raw)
    assert "no files" in refusal(changed(manifest, {}, "files"))
    assert "no graphs" in refusal(changed(manifest, [], "graphs"))


@pytest.mark.parametrize(("offset", "shape"), [(0, [4, 4]), (2**40, [1]), (4, [0, 2**40, 2**40])])
def test_a_weight_lies_within_its_file(manifest: Manifest, offset: int, shape: list[int]) -> None:
    tensor = {"name": "w", "dtype": "float32", "shape": shape, "file": "decoder.native.onnx", "offset": offset}
    assert "the weight w ends after" in refusal(changed(manifest, [tensor], "graphs", 0, "large_weights"))


@pytest.mark.parametrize("digest", ["", "0" * 63, "G" * 64, "0" * 65])
def test_a_hash_is_a_sha256(manifest: Manifest, digest: str) -> None:
    assert "SHA-256" in refusal(changed(manifest, digest, "files", "source.spm", "sha256"))


LANGUAGES = {"tokens": {"en": 3, "de": 4}, "source_place": "before", "target_place": "forced_bos", "default_target": "de"}


def test_languages_survive_writing_and_reading(manifest: Manifest) -> None:
    read = Manifest.from_json(json.dumps(changed(manifest, LANGUAGES, "languages")))
    assert read.languages is not None
    assert (read.languages.tokens, read.languages.default_target) == ({"en": 3, "de": 4}, "de")
    assert Manifest.from_json(read.to_json()) == read


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tokens": {"en": 32}}, "language is not in the target vocabulary"),
        ({"tokens": {"en": -1}}, "languages.tokens"),
        ({"tokens": {"../en": 1}}, "languages.tokens"),
        ({"default_source": "fr"}, "default language fr"),
        ({"source_place": "beside"}, "source_place"),
    ],
    ids=str,
)
def test_languages_that_can_not_be_are_refused(manifest: Manifest, change: dict[str, object], named: str) -> None:
    assert named in refusal(changed(manifest, {**LANGUAGES, **change}, "languages"))


@pytest.mark.parametrize(
    ("shortlists", "named"),
    [
        ({"de": 33}, "a shortlist has 33 tokens of a vocabulary of 32"),
        ({"de": 1}, "shortlists.'de'"),
        ({"de": "all"}, "shortlists.'de'"),
        ({"../de": 8}, "shortlists"),
        ([8], "shortlists"),
        ({"fr": 8}, "a language that is not among its languages"),
        ({"de": 8}, "can't choose between the shortlists of languages"),
    ],
    ids=str,
)
def test_shortlists_that_can_not_be_are_refused(manifest: Manifest, shortlists: object, named: str) -> None:
    assert named in refusal({**changed(manifest, LANGUAGES, "languages"), "shortlists": shortlists})


def test_shortlists_survive_writing_and_reading_in_their_order(manifest: Manifest) -> None:
    raw = {**changed(manifest, LANGUAGES, "languages"), "shortlists": {"en": 9, "de": 8}}
    for graph in raw["graphs"]:
        graph["inputs"].append({"name": "shortlists", "dtype": "int32", "shape": ["groups"]})
    read = Manifest.from_json(json.dumps(raw))
    assert list(read.shortlists.items()) == [("en", 9), ("de", 8)]
    assert Manifest.from_json(read.to_json()) == read
    raw["dimensions"]["shortlist"] = 7
    assert "a shortlist for all languages and shortlists of single ones" in refusal(raw)


def test_tokens_around_a_source_are_in_its_vocabulary(manifest: Manifest) -> None:
    assert "around the sources" in refusal(changed(manifest, [32], "tokenizer", "source_suffix"))


def test_deep_nesting_and_long_numbers_are_refused_in_a_line(manifest: Manifest) -> None:
    text = manifest.to_json()
    for nested in ("[" * 100_000, "[" * 500 + "]" * 500, '{"a":' * 100_000):
        assert "nested" in refusal(text.replace('"en"', nested)) or "JSON" in refusal(text.replace('"en"', nested))
    assert "5000 digits" in refusal(text.replace("1234", "1" * 5000))
    assert "too large" in refusal(text.replace("1234", "1e999"))
    assert "NaN" in refusal(text.replace("1234", "NaN"))


def test_a_huge_manifest_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "manifest.json").open("wb") as stream:
        stream.truncate(MAX_MANIFEST_BYTES + 1)
    with pytest.raises(BundleError, match="bytes"):
        read_manifest(tmp_path)


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, 1, -1, 2**31, 2**62, 10**30]),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from([[], {}, [[]], [{}], {"a": 1}, "../x", "/etc/passwd"]),
    st.recursive(st.integers(), lambda inner: st.lists(inner, max_size=3), max_leaves=6),
)


def places(value: object, prefix: Path_ = ()) -> list[Path_]:
    """The path of every value inside `value`."""
    inner: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path for key, item in inner for path in ((*prefix, key), *places(item, (*prefix, key)))]


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_a_mutated_manifest_is_refused_or_read_as_written(manifest: Manifest, data: st.DataObject) -> None:
    raw = json.loads(manifest.to_json())
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(raw)))
        holder: Any = raw
        for step in path[:-1]:
            holder = holder[step]
        if data.draw(st.booleans()) and isinstance(holder, dict):
            holder[data.draw(st.text(max_size=8))] = copy.deepcopy(holder.pop(path[-1]))
        else:
            holder[path[-1]] = copy.deepcopy(data.draw(JUNK))  # a junk list is changed by the next round
        if not places(raw):
            break
    try:
        read = Manifest.from_json(json.dumps(raw))
    except BundleError:
        return
    assert Manifest.from_json(read.to_json()) == read


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(at=st.floats(0, 1, exclude_max=True), junk=st.text(max_size=5), cut=st.integers(0, 40))
def test_a_manifest_with_other_characters_is_refused_or_read_as_written(
    manifest: Manifest, at: float, junk: str, cut: int
) -> None:
    text = manifest.to_json()
    place = int(at * len(text))
    try:
        read = Manifest.from_json(text[:place] + junk + text[place + cut :])
    except BundleError:
        return
    assert Manifest.from_json(read.to_json()) == read


def test_a_stored_tensor_with_any_dtype_has_a_known_size() -> None:
    from typing import get_args, get_type_hints

    from dragoman.bundle.consistency import ITEM_BYTES

    assert set(get_args(get_type_hints(StoredTensor)["dtype"])) == set(ITEM_BYTES)
