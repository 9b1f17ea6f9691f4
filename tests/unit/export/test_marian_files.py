"""Marian's own files, .npz and .bin, give the logits that its mathematics, written down in numpy, gives."""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dragoman.bundle.tokenizer import open_tokenizer
from dragoman.errors import CheckpointError
from dragoman.export.checkpoint import read_checkpoint
from dragoman.export.verification.eager import EagerModel

Array = NDArray[np.float32]
Arrays = dict[str, Array]
WIDTH, INNER, HEADS = 16, 24, 2
SOURCE = ["</s>", "<unk>", "ein", "zwei", "drei", 'vier"s']
TARGET = ["</s>", "<unk>", "one", "two", "three", "four", "five"]
SETTINGS: dict[str, Any] = {
    "type": "transformer",
    "dim-emb": WIDTH,
    "dim-vocabs": [len(SOURCE), len(TARGET)],
    "enc-depth": 2,
    "dec-depth": 1,
    "transformer-heads": HEADS,
    "transformer-dim-ffn": INNER,
    "transformer-ffn-depth": 2,
    "transformer-ffn-activation": "swish",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-preprocess": '""',
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": '""',
    "tied-embeddings": "true",
    "tied-embeddings-all": "false",
    "version": "v1.9.0; commit of some day: 2020",
}
PRE_NORM = {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n"}
IDS, ANSWER = [2, 5, 3, 4, 0], [4, 2, 6, 0]


def random_arrays(settings: dict[str, Any], *, shared: bool, tied: bool) -> Arrays:
    random = np.random.default_rng(3)
    made: Arrays = {}

    def normal(*shape: int, spread: float = 0.3) -> Array:
        return random.normal(0, spread, shape).astype(np.float32)

    def norm(name: str, suffix: str) -> None:
        made[f"{name}_ln_scale{suffix}"], made[f"{name}_ln_bias{suffix}"] = (
            1 + normal(1, WIDTH, spread=0.1),
            normal(1, WIDTH),
        )

    pre = "_pre" if settings["transformer-preprocess"] == "n" else ""
    for side, depth in (("encoder", 2), ("decoder", 1)):
        for layer in range(1, depth + 1):
            for attention in ("self", "context")[: 1 if side == "encoder" else 2]:
                for part in "qkvo":
                    made[f"{side}_l{layer}_{attention}_W{part}"] = normal(WIDTH, WIDTH)
                    made[f"{side}_l{layer}_{attention}_b{part}"] = normal(1, WIDTH)
                norm(f"{side}_l{layer}_{attention}_Wo", pre)
            for number, shape in (("1", (WIDTH, INNER)), ("2", (INNER, WIDTH))):
                made[f"{side}_l{layer}_ffn_W{number}"], made[f"{side}_l{layer}_ffn_b{number}"] = (
                    normal(*shape),
                    normal(1, shape[1]),
                )
            norm(f"{side}_l{layer}_ffn_ffn", pre)
        if pre:
            norm(f"{side}_top", "")
    if shared:
        made["Wemb"] = normal(len(TARGET), WIDTH)
    else:
        made["encoder_Wemb"], made["decoder_Wemb"] = normal(len(SOURCE), WIDTH), normal(len(TARGET), WIDTH)
    if not tied:
        made["decoder_ff_logit_out_W"] = normal(WIDTH, len(TARGET))
    made["decoder_ff_logit_out_b"] = normal(1, len(TARGET))
    return made


class Marian:
    """Marian's decoder over a whole target, from its arrays alone: post-norm or pre-norm."""

    def __init__(self, arrays: Arrays, settings: dict[str, Any]) -> None:
        self.arrays, self.pre = arrays, settings["transformer-preprocess"] == "n"
        self.act = {
            "relu": lambda x: np.maximum(x, 0),
            "swish": lambda x: x / (1 + np.exp(-x)),
            "gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
        }.get(settings["transformer-ffn-activation"])

    def log_probs(self, source: list[int], target: list[int]) -> Array:
        encoded = self.stack("encoder", self.embedded("encoder", source), None)
        previous = self.table("decoder")[target[:-1]]
        hidden = self.stack("decoder", self.placed(np.concatenate([np.zeros((1, WIDTH)), previous])), encoded)
        output = self.arrays.get("decoder_ff_logit_out_W", self.table("decoder").T)
        logits = hidden @ output + self.arrays["decoder_ff_logit_out_b"]
        return (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float32)

    def table(self, side: str) -> Any:
        return self.arrays["Wemb"] if "Wemb" in self.arrays else self.arrays[f"{side}_Wemb"]

    def embedded(self, side: str, ids: list[int]) -> Any:
        return self.placed(self.table(side)[ids])

    @staticmethod
    def placed(x: Any) -> Any:
        half = WIDTH // 2
        angles = np.arange(len(x))[:, None] * np.exp(np.arange(half) * -np.log(10000) / (half - 1))
        return x * WIDTH**0.5 + np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

    def stack(self, side: str, x: Any, encoded: Any) -> Any:
        layer = 1
        while f"{side}_l{layer}_ffn_W1" in self.arrays:
            name, causal = f"{side}_l{layer}", side == "decoder"
            x = self.sublayer(x, f"{name}_self_Wo", lambda y: self.attention(f"{name}_self", y, y, causal))  # noqa: B023
            if encoded is not None:
                x = self.sublayer(x, f"{name}_context_Wo", lambda y: self.attention(f"{name}_context", y, encoded, False))  # noqa: B023
            x = self.sublayer(x, f"{name}_ffn_ffn", lambda y: self.feed_forward(f"{name}_ffn", y))  # noqa: B023
            layer += 1
        return self.norm(x, f"{side}_top", "") if self.pre else x

    def sublayer(self, x: Any, norm: str, compute: Callable[[Any], Any]) -> Any:
        return x + compute(self.norm(x, norm, "_pre")) if self.pre else self.norm(x + compute(x), norm, "")

    def norm(self, x: Any, name: str, suffix: str) -> Any:
        scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return scaled * self.arrays[f"{name}_ln_scale{suffix}"] + self.arrays[f"{name}_ln_bias{suffix}"]

    def feed_forward(self, name: str, x: Any) -> Any:
        inner = self.act(x @ self.arrays[f"{name}_W1"] + self.arrays[f"{name}_b1"])
        return inner @ self.arrays[f"{name}_W2"] + self.arrays[f"{name}_b2"]

    def attention(self, name: str, x: Any, y: Any, causal: bool) -> Any:
        query, key, value = (
            (z @ self.arrays[f"{name}_W{part}"] + self.arrays[f"{name}_b{part}"])
            .reshape(len(z), HEADS, -1)
            .transpose(1, 0, 2)
            for part, z in zip("qkv", (x, y, y), strict=True)
        )
        scores = query @ key.transpose(0, 2, 1) / (WIDTH // HEADS) ** 0.5
        if causal:
            scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        seen = (weights / weights.sum(-1, keepdims=True)) @ value
        return seen.transpose(1, 0, 2).reshape(len(x), WIDTH) @ self.arrays[f"{name}_Wo"] + self.arrays[f"{name}_bo"]


def yaml_of(settings: dict[str, Any]) -> bytes:
    lines = []
    for name, value in settings.items():
        lines += [f"{name}:", *(f"  - {item}" for item in value)] if isinstance(value, list) else [f"{name}: {value}"]
    return "\n".join(lines).encode() + b"\0"


def in_bin(arrays: Arrays, settings: dict[str, Any], *, quantised: bool) -> tuple[bytes, Arrays]:
    """Marian's binary format, and what the numbers in it stand for."""
    text = yaml_of(settings)
    items: list[tuple[str, int, tuple[int, ...], bytes]] = [("special:model.yml", 0x101, (len(text),), text)]
    meant: Arrays = {}
    for name, array in arrays.items():
        if not quantised or "_W" not in name or "_ln_" in name:
            items.append((name, 0x404, array.shape, array.tobytes()))
            meant[name] = array
            continue
        scale = np.float32(127 / np.abs(array).max())
        numbers = np.round(array * scale).astype(np.int8)
        stored = numbers if name.endswith("Wemb") else numbers.T
        content = np.ascontiguousarray(stored).tobytes() + scale.tobytes()
        items.append((name, 0x4101, array.shape, content + bytes(-len(content) % 256)))
        meant[name] = numbers.astype(np.float32) / scale
    head = struct.pack("<QQ", 1, len(items))
    head += b"".join(struct.pack("<QQQQ", len(name) + 1, kind, len(shape), len(data)) for name, kind, shape, data in items)
    head += b"".join(name.encode() + b"\0" for name, *_ in items)
    head += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    padding = -(len(head) + 8) % 256
    return head + struct.pack("<Q", padding) + bytes(padding) + b"".join(data for *_, data in items), meant


def write(
    directory: Path, *, kind: str = "npz", shared: bool = False, tied: bool = True, decoder: str = "", **changes: Any
) -> tuple[Path, Marian]:
    directory.mkdir()
    settings = {**SETTINGS, **{name.replace("_", "-"): value for name, value in changes.items()}}
    arrays = random_arrays(settings, shared=shared, tied=tied)
    if kind == "npz":
        text = np.frombuffer(yaml_of(settings), np.int8)
        np.savez(directory / "model.npz", **arrays, **{"special:model.yml": text})
    else:
        content, arrays = in_bin(arrays, settings, quantised=kind == "int8")
        (directory / "model.bin").write_bytes(content)
    source = TARGET if shared else SOURCE
    for name, pieces in (("vocab.src.yml", source), ("vocab.trg.yml", TARGET)):
        lines = ["{}: {}".format('"' + piece.replace('"', '\\"') + '"', at) for at, piece in enumerate(pieces)]
        (directory / name).write_text("\n".join(lines) + "\n")
    named = "relative-paths: true\nvocabs:\n  - vocab.src.yml\n  - vocab.trg.yml\nbeam-size: 6\nnormalize: 0.6\n"
    (directory / "decoder.yml").write_text(decoder or f"{named}word-penalty: 0\n")
    return directory, Marian(arrays, settings)


VARIANTS: list[dict[str, Any]] = [
    {},
    {"shared": True, "transformer_ffn_activation": "relu"},
    {"tied": False, "transformer_ffn_activation": "gelu"},
    PRE_NORM,
    {"kind": "bin", **PRE_NORM},
    {"kind": "int8", "shared": True},
    {"kind": "int8", "tied": False},
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_those_of_marians_mathematics(tmp_path: Path, variant: dict[str, Any]) -> None:
    directory, marian = write(tmp_path / "model", **variant)
    checkpoint = read_checkpoint(directory)
    ours = EagerModel(checkpoint.model, checkpoint.tokens).log_probs(IDS, ANSWER)
    np.testing.assert_allclose(ours[:, : len(TARGET)], marian.log_probs(IDS, ANSWER), atol=5e-5)
    assert np.isneginf(ours[:, len(TARGET)]).all()  # the row that the decoder starts from is no token


def test_decoder_yml_is_what_a_bundle_decodes_with(tmp_path: Path) -> None:
    generation = read_checkpoint(write(tmp_path / "model")[0]).generation
    assert (generation.beam_size, generation.length_penalty, generation.bad_words) == (6, 0.6, ((1,),))


def test_vocabularies_make_the_tokenizer(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write(tmp_path / "model")[0] / "model.npz")
    (tmp_path / "bundle").mkdir()
    checkpoint.tokenizer_plan.write(tmp_path / "bundle")
    tokenizer = open_tokenizer(tmp_path / "bundle", checkpoint.tokenizer, checkpoint.tokens)
    assert tokenizer.encode('drei vier"s </s> sechs') == [4, 5, 1, 1, 0]
    assert tokenizer.decode([2, 6, 0, 7]) == "one five"


NAMED = "vocabs: [vocab.src.yml, vocab.trg.yml]\n"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"transformer_decoder_autoreg": "rnn"}, "SSRU.*use the model that it was trained from"),
    ({"type": "s2s"}, "type 's2s'"),
    ({"transformer_ffn_depth": 3}, "transformer-ffn-depth: 3"),
    ({"transformer_ffn_activation": "tanh"}, "'tanh'"),
    ({"transformer_postprocess": "dah"}, "norms"),
    ({"transformer_no_projection": "true"}, "transformer-no-projection"),
    ({"transformer_train_position_embeddings": "true"}, "transformer-train-position-embeddings"),
    ({"transformer_tied_layers": [1, 1]}, "transformer-tied-layers"),
    ({"transformer_heads": 3}, "3 heads"),
    ({"dim_emb": "wide"}, "dim-emb"),
    ({"dim_emb": 8}, "misshaped"),
    ({"enc_depth": 3}, "missing: encoder_l3"),
    ({"dec_depth": 999999999}, "decoder_layers"),
    ({"decoder": f"{NAMED}word-penalty: 0.5\n"}, "word-penalty"),
    ({"decoder": f"{NAMED}beam-size: many\n"}, "beam-size"),
    ({"decoder": "vocabs: [missing.yml, vocab.trg.yml]\n"}, r"missing\.yml .*source vocabulary"),
    ({"decoder": "vocabs: [vocab.trg.yml, vocab.src.yml]\n"}, r"vocab\.trg\.yml has ids up to 6"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_what_is_not_supported_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    directory, _ = write(tmp_path / "model", **changes)
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(directory, format_name="marian")


def test_missing_vocabularies_are_named(tmp_path: Path) -> None:
    directory, _ = write(tmp_path / "model")
    for name in ("decoder.yml", "vocab.src.yml", "vocab.trg.yml"):
        (directory / name).unlink()
    with pytest.raises(CheckpointError, match=r"vocabularies of model\.npz are missing"):
        read_checkpoint(directory)


def test_a_vocabulary_that_is_none_is_told_by_its_line(tmp_path: Path) -> None:
    directory, _ = write(tmp_path / "model")
    (directory / "vocab.src.yml").write_text('"</s>": 0\nnonsense\n')
    with pytest.raises(CheckpointError, match="line 2"):
        read_checkpoint(directory)


def replaced(content: bytes, offset: int, form: str, value: int) -> bytes:
    new = struct.pack(form, value)
    return content[:offset] + new + content[offset + len(new) :]


DAMAGES: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda content: content[:-100], "truncated"),
    (lambda content: content[:40], "truncated"),
    (lambda content: replaced(content, 0, "<Q", 2), "version"),
    (lambda content: b"GIF89a" + content[6:], "not a model of Marian"),
    (lambda content: replaced(content, 8, "<Q", 1 << 60), "promises"),
    (lambda content: replaced(content, 16, "<Q", 1 << 60), "too long"),
    (lambda content: replaced(content, 24, "<Q", 0x7777), "0x7777"),
    (lambda content: replaced(content, 32, "<Q", 1 << 50), "too long"),
    (lambda content: replaced(content, 40, "<Q", 1 << 50), "ends after the file"),
    (lambda content: replaced(content, 16 + 32 + 24, "<Q", 4), "needs more than its 4 bytes"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_damaged_binary_file_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    path = write(tmp_path / "model", kind="bin")[0] / "model.bin"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(path, format_name="marian")


def test_a_damaged_npz_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "model")[0] / "model.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez_compressed(path, **arrays)
    with pytest.raises(CheckpointError, match="compressed"):
        read_checkpoint(path)
    np.savez(path, **{**arrays, "decoder_Wemb": np.array([{}], dtype=object)})
    with pytest.raises(CheckpointError, match="not an ordinary array"):
        read_checkpoint(path)
    with zipfile.ZipFile(path, "w") as archive:  # a header that promises a terabyte
        archive.writestr(
            "special:model.yml.npy",
            b"\x93NUMPY\x01\x00v\x00"
            + b"{'descr': '|i1', 'fortran_order': False, 'shape': (1000000000000,)}".ljust(117)
            + b"\n",
        )
    with pytest.raises(CheckpointError, match="not an ordinary array"):
        read_checkpoint(path)
    os.truncate(path, 60)
    with pytest.raises(CheckpointError, match=r"Marian|truncated"):
        read_checkpoint(path, format_name="marian")
