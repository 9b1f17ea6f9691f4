"""A small model of Marian goes through the whole export: its graphs generate the same tokens as its module."""

from __future__ import annotations

from pathlib import Path

from dragoman.export.checkpoint import TokenLimits
from dragoman.export.pipeline import ExportOptions, export_bundle
from marian_files import write


def test_graphs_of_a_marian_file_are_token_identical(tmp_path: Path) -> None:
    """Its decoder starts from zeros, one row of its logits is never a token, and its gelu is Marian's own."""
    texts = tmp_path / "texts"
    texts.write_text("ein zwei drei\ndrei\nzwei zwei unbekannt ein\n")
    source, _ = write(tmp_path / "model", transformer_ffn_activation="gelu")
    options = ExportOptions(source, tmp_path / "bundle", verify_file=texts, limits=TokenLimits(16, 12))
    verification = export_bundle(options).manifest.verification
    assert verification is not None
    assert [case.name for case in verification.cases if case.identical + case.ties < case.sentences] == []
