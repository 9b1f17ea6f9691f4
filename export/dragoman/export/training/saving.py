"""A trained Transformer to a directory that `dragoman export` reads. docs/train.md describes the format."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import safetensors.torch
from torch import Tensor

from dragoman.drafts import draft_of
from dragoman.export.checkpoint.formats.description import DESCRIPTION
from dragoman.export.checkpoint.formats.own import FORMAT, VERSION, WEIGHTS
from dragoman.export.checkpoint.weights import JOINED
from dragoman.export.transformer import Transformer
from dragoman.export.transformer.linear import Linear

__all__ = ["save_model"]


def save_model(
    directory: Path,
    model: Transformer,
    *,
    tokenizer: Mapping[str, object],
    tokens: Mapping[str, object],
    files: Mapping[str, Path] | None = None,
    generation: Mapping[str, object] | None = None,
    languages: tuple[str | None, str | None] = (None, None),
) -> None:
    """Write `model` with what describes it. The description comes last: a directory that has one is complete.

    `tokenizer` and `tokens` are those of dragoman.json; `files` are copied under the names that `tokenizer` uses.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name, path in (files or {}).items():
        if path.resolve() != (directory / name).resolve():
            shutil.copyfile(path, directory / name)
    with draft_of(directory / WEIGHTS) as draft:
        safetensors.torch.save_file(dict(_named(model)), draft)
    described: dict[str, object] = {
        "format": FORMAT,
        "version": VERSION,
        "config": dataclasses.asdict(model.config),
        "tokenizer": dict(tokenizer),
        "tokens": dict(tokens),
        "generation": dict(generation or {}),
        "source_language": languages[0],
        "target_language": languages[1],
    }
    with draft_of(directory / DESCRIPTION) as draft:
        draft.write_text(json.dumps(described, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _named(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Every weight once: joined projections apart, linear ones (outputs, inputs)."""
    for name, parameter in model.named_parameters():
        owner, _, leaf = name.rpartition(".")
        value = parameter.detach()
        if leaf == "weight" and isinstance(model.get_submodule(owner), Linear):
            value = value.t()
        prefix, _, layer = owner.rpartition(".")
        parts = JOINED.get(layer)
        if parts is None:
            yield name, value.contiguous()
            continue
        for part, piece in zip(parts, value.chunk(len(parts)), strict=True):
            yield f"{prefix}.{part}.{leaf}", piece.contiguous()
