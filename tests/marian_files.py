"""Small random models of Marian in its own files, and Marian's mathematics in numpy to compare with."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def random_arrays(settings: dict[str, Any], *, shared: bool, tied: bool, transposed: bool = False) -> Arrays:
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
        output = normal(WIDTH, len(TARGET))
        made[f"decoder_ff_logit_out_W{'t' if transposed else ''}"] = output.T.copy() if transposed else output
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
        transposed = self.arrays.get("decoder_ff_logit_out_Wt", self.table("decoder"))
        output = self.arrays.get("decoder_ff_logit_out_W", transposed.T)
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
    directory: Path,
    *,
    kind: str = "npz",
    shared: bool = False,
    tied: bool = True,
    transposed: bool = False,
    decoder: str = "",
    **changes: Any,
) -> tuple[Path, Marian]:
    directory.mkdir()
    settings = {**SETTINGS, **{name.replace("_", "-"): value for name, value in changes.items()}}
    arrays = random_arrays(settings, shared=shared, tied=tied, transposed=transposed)
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
