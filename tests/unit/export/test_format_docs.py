"""The examples on the pages about other trainers and about training do what the pages say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from dragoman.export.checkpoint import read_checkpoint
from dragoman.export.checkpoint.formats import FORMATS

DOCS = Path(__file__).resolve().parents[3] / "docs"


def examples(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_description_on_the_page_describes_a_model(tmp_path: Path) -> None:
    (tmp_path / "dragoman.json").write_text(examples("formats.md", "json")[0])
    pieces = ["<pad>", "<s>", "</s>", "<unk>", *"abc"]
    (tmp_path / "vocab.json").write_text(json.dumps({piece: at for at, piece in enumerate(pieces)}))
    model = nn.Module()
    model.transformer = nn.Transformer(16, 8, 1, 1, 16, batch_first=True)
    model.embed, model.output_proj = nn.Embedding(len(pieces), 16), nn.Linear(16, len(pieces))
    model.register_buffer("pos_encoding", torch.zeros(1, 20, 16))
    torch.save(model.state_dict(), tmp_path / "model.pt")
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint.config.max_source_positions == 20
    assert (checkpoint.card.target_language, checkpoint.generation.beam_size) == ("de", 4)


def test_the_training_code_on_the_page_saves_a_model_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(examples("train.md", "python")[0], "train.md", "exec"), {})  # noqa: S102 - our own page
    assert read_checkpoint(tmp_path / "my-model").config.d_model == 32


def test_every_format_is_on_a_page() -> None:
    pages = "".join((DOCS / page).read_text(encoding="utf-8") for page in ("export.md", "formats.md"))
    assert [one.name for one in FORMATS if f"| `{one.name}` |" not in pages] == []
