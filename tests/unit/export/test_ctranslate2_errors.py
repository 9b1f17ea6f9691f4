"""Damaged and hostile CTranslate2 models and Argos packages are refused in a line, before memory is asked for."""

from __future__ import annotations

import json
import random
import shutil
import stat
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from refused_checkpoints import refusal

from ctranslate2_models import write_ctranslate2
from dragoman.errors import CheckpointError
from dragoman.export.checkpoint import CompanionFiles, read_checkpoint


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_ctranslate2(tmp_path_factory.mktemp("ctranslate2") / "model", "Marian", "int8")


@pytest.fixture
def model(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "model"))


def replace(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


def change(path: Path, edit: Callable[[bytearray], None]) -> None:
    content = bytearray(path.read_bytes())
    edit(content)
    path.write_bytes(content)


def header_of(content: bytes, name: str) -> int:
    """Where the rank of a variable stands."""
    return content.index(name.encode() + b"\0") + len(name) + 1


@pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.3, 0.9, 0.9999])
def test_a_truncated_model_is_refused(model: Path, share: float) -> None:
    path = model / "model.bin"
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    message = refusal(model, format_name="ctranslate2")
    assert "model.bin" in message
    assert "\n" not in message


def test_the_error_for_a_wrong_format_says_what_the_source_is(model: Path) -> None:
    assert refusal(model, format_name="marian").endswith("(it looks like --format ctranslate2)")


def test_a_file_that_goes_on_after_its_end_is_refused(model: Path) -> None:
    change(model / "model.bin", lambda content: content.extend(b"more"))
    assert "4 bytes follow its end" in refusal(model)


@pytest.mark.parametrize(("version", "way_out"), [(5, "convert it again"), (7, "upgrade dragoman")])
def test_the_error_for_another_version_names_the_way_out(model: Path, version: int, way_out: str) -> None:
    change(model / "model.bin", lambda content: struct.pack_into("<I", content, 0, version))
    message = refusal(model)
    assert f"version {version}" in message
    assert way_out in message


def test_the_error_for_what_is_no_model_says_what_was_looked_for(model: Path) -> None:
    (model / "model.bin").write_bytes(b"PK\x03\x04 not a model at all")
    (model / "config.json").unlink()
    message = refusal(model)
    for name in ("ctranslate2", "argos", "hugging-face"):
        assert f"\n  {name}: " in message


def test_a_model_of_another_kind_is_named(model: Path) -> None:
    change(model / "model.bin", lambda content: content.__setitem__(slice(6, 21), b"WhisperABCDSpec"))
    assert "WhisperABCDSpec" in refusal(model)


@pytest.mark.parametrize("size", [0, 1, 2**31, 2**32 - 1])
def test_sizes_that_the_file_does_not_have_ask_for_no_memory(model: Path, size: int) -> None:
    def edit(content: bytearray) -> None:
        at = header_of(content, "decoder/embeddings/weight")
        struct.pack_into("<II", content, at + 1, size, size)

    change(model / "model.bin", edit)
    tracemalloc.start()
    message = refusal(model)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "decoder/embeddings/weight" in message
    assert peak < 20e6


def test_a_size_beyond_the_file_is_refused(model: Path) -> None:
    def edit(content: bytearray) -> None:
        at = header_of(content, "encoder/layer_0/ffn/linear_1/bias")
        struct.pack_into("<I", content, at + 1, 1 << 29)
        struct.pack_into("<I", content, at + 6, 1 << 31)

    change(model / "model.bin", edit)
    assert "longer than the file" in refusal(model)


def test_counts_that_the_file_does_not_have_end_at_once(model: Path) -> None:
    change(model / "model.bin", lambda content: struct.pack_into("<I", content, 4 + 2 + 16 + 4, 2**32 - 1))
    assert "truncated or corrupt" in refusal(model)


def test_damaged_headers_are_read_or_refused(model: Path) -> None:
    """Whatever single byte of the headers is wrong."""
    content = (model / "model.bin").read_bytes()
    names = [b"decoder/num_heads", b"encoder/layer_0/ffn/linear_0/weight", b"decoder/pre_norm", b"encoder/activation"]
    places = [content.index(name) + at for name in names for at in range(-3, len(name) + 14)]
    places += [*range(30), *range(len(content) - 60, len(content))]
    generator = random.Random(7)
    for place in generator.sample(places, 90):
        damaged = bytearray(content)
        damaged[place] = generator.choice([0, 1, 127, 255, damaged[place] ^ 0x10])
        (model / "model.bin").write_bytes(damaged)
        try:
            read_checkpoint(model, format_name="ctranslate2")
        except CheckpointError as error:
            assert len(str(error)) < 8000  # noqa: PT017 - both outcomes are right


def test_a_setting_that_is_not_computed_is_refused_by_name(model: Path) -> None:
    def edit(content: bytearray) -> None:
        content[header_of(content, "decoder/activation") + 6] = 4

    change(model / "model.bin", edit)
    assert "different activation" in refusal(model)


def test_a_weight_that_dragoman_does_not_have_is_refused_by_name(model: Path) -> None:
    replace(model / "model.bin", b"encoder/layer_0/ffn/layer_norm/beta", b"encoder/layer_0/ffn/layer_gain/beta")
    assert "encoder/layer_0/ffn/layer_gain/beta" in refusal(model)


def test_weights_that_are_missing_are_named(model: Path) -> None:
    name = b"decoder/layer_0/attention/linear_%d/weight\0"
    replace(model / "model.bin", name % 0, name % 9)
    assert "linear_9" in refusal(model)


def test_a_vocabulary_of_another_model_is_refused(model: Path) -> None:
    path = model / "shared_vocabulary.json"
    path.write_text(json.dumps(json.loads(path.read_text())[:-1]))
    assert "has 251 tokens, the embedding has 252 rows" in refusal(model)


@pytest.mark.parametrize("content", ["{}", "[1, 2]", "[", '["a"', "[" * 100_000])
def test_a_vocabulary_that_is_no_list_of_tokens_is_refused(model: Path, content: str) -> None:
    (model / "shared_vocabulary.json").write_text(content)
    assert "shared_vocabulary" in refusal(model)


@pytest.mark.parametrize("setting", ["eos_token", "decoder_start_token"])
def test_a_special_token_that_the_vocabulary_does_not_have_is_named(model: Path, setting: str) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, setting: "<nowhere>"}))
    if setting == "decoder_start_token":
        read_checkpoint(model)  # this decoder starts from a zero embedding: it needs none
    else:
        assert "'<nowhere>'" in refusal(model)


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (("source.spm", "target.spm"), "--spm"),
        (("config.json",), "config.json"),
        (("shared_vocabulary.json",), "shared_vocabulary.json"),
    ],
)
def test_a_file_that_is_missing_is_named(model: Path, missing: tuple[str, ...], said: str) -> None:
    for name in missing:
        (model / name).unlink()
    assert said in refusal(model)


def test_a_file_that_is_named_and_missing_is_named(model: Path, tmp_path: Path) -> None:
    assert "nowhere.spm" in refusal(model, CompanionFiles(sentencepiece=(tmp_path / "nowhere.spm",)))


def test_a_file_that_is_no_sentencepiece_model_is_refused_by_name(model: Path) -> None:
    (model / "source.spm").write_bytes(b"\x00" * 100)
    assert "source.spm" in refusal(model)


def test_a_sentencepiece_model_of_another_vocabulary_is_refused(model: Path) -> None:
    words = json.loads((model / "shared_vocabulary.json").read_text())
    others = [words[0], *(f"{word}-other" for word in words[1:])]
    (model / "shared_vocabulary.json").write_text(json.dumps(others))
    assert "none of its pieces" in refusal(model)


def package(tmp_path: Path, model: Path, extra: Callable[[zipfile.ZipFile], None] | None = None) -> Path:
    path = tmp_path / "translate-xx_yy.argosmodel"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("translate-xx_yy/metadata.json", json.dumps({"from_code": "xx", "to_code": "yy"}))
        archive.write(model / "source.spm", "translate-xx_yy/sentencepiece.model")
        for name in ("model.bin", "config.json", "shared_vocabulary.json"):
            archive.write(model / name, f"translate-xx_yy/model/{name}")
        if extra is not None:
            extra(archive)
    return path


def test_an_argos_package_is_read_as_a_file_and_as_a_directory(model: Path, tmp_path: Path) -> None:
    path = package(tmp_path, model)
    packed = read_checkpoint(path)
    assert (packed.card.source_language, packed.card.target_language) == ("xx", "yy")
    assert packed.tokenizer.source_suffix == ()  # its settings add none, and Argos Translate neither
    assert (packed.generation.beam_size, packed.generation.length_penalty) == (4, 0.2)
    zipfile.ZipFile(path).extractall(tmp_path / "unpacked")
    unpacked = read_checkpoint(tmp_path / "unpacked" / "translate-xx_yy")
    assert (unpacked.tokens, unpacked.generation, unpacked.card) == (packed.tokens, packed.generation, packed.card)


def test_an_unpacked_archive_goes_with_its_checkpoint(model: Path, tmp_path: Path) -> None:
    packed = read_checkpoint(package(tmp_path, model))
    assert packed.reference is not None
    directory = packed.reference.path
    assert (directory / "model.bin").is_file()
    del packed
    assert not directory.exists()


@pytest.mark.parametrize("name", ["../outside", "translate-xx_yy/../../outside", "/outside", "a\\..\\outside"])
def test_an_archive_with_a_path_that_escapes_is_refused(model: Path, tmp_path: Path, name: str) -> None:
    path = package(tmp_path, model, lambda archive: archive.writestr(name, "x"))
    assert "outside" in refusal(path)
    assert not (tmp_path / "outside").exists()
    assert not Path("/outside").exists()


def test_an_archive_with_a_link_is_refused(model: Path, tmp_path: Path) -> None:
    def link(archive: zipfile.ZipFile) -> None:
        info = zipfile.ZipInfo("translate-xx_yy/link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc")

    assert "link" in refusal(package(tmp_path, model, link))


def test_an_archive_that_unpacks_to_far_more_than_it_has_is_refused(model: Path, tmp_path: Path) -> None:
    path = package(tmp_path, model, lambda archive: archive.writestr("translate-xx_yy/zeros", bytes(300 << 20)))
    assert "unpacks to" in refusal(path)


def test_an_archive_that_says_less_than_it_has_is_refused(model: Path, tmp_path: Path) -> None:
    path = package(tmp_path, model, lambda archive: archive.writestr("translate-xx_yy/zeros", bytes(1 << 20)))
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"translate-xx_yy/zeros") - 46
    assert content[entry : entry + 4] == b"PK\x01\x02"
    struct.pack_into("<I", content, entry + 24, 10)
    path.write_bytes(content)
    assert "zip archive" in refusal(path)


def test_a_damaged_archive_is_refused(model: Path, tmp_path: Path) -> None:
    path = package(tmp_path, model)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 1000] = bytes(1000)
    path.write_bytes(content)
    assert "zip archive" in refusal(path)
    path.write_bytes(path.read_bytes()[:5000])
    assert "zip archive" in refusal(path, format_name="argos")


def test_a_package_that_lacks_its_tokenizer_names_it(model: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(package(tmp_path, model)).extractall(tmp_path)
    directory = tmp_path / "translate-xx_yy"
    (directory / "sentencepiece.model").rename(directory / "bpe.model")
    assert "subword-nmt" in refusal(directory)
    (directory / "bpe.model").unlink()
    assert "sentencepiece.model" in refusal(directory)
