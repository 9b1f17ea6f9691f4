"""dragoman's own format: "format": "dragoman" in dragoman.json, and the weights of our Transformer in model.safetensors.

`dragoman.export.training.save_model` writes it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from dragoman.bundle.schema import build
from dragoman.errors import BundleError, CheckpointError, ExportError
from dragoman.export.checkpoint.files import open_safetensors, require_file
from dragoman.export.checkpoint.formats.described_tokenizer import DescribedTokenizer
from dragoman.export.checkpoint.formats.description import Description, described_format, read_description
from dragoman.export.checkpoint.formats.generation import described_generation
from dragoman.export.checkpoint.formats.protocol import CompanionFiles, OpenedSource
from dragoman.export.checkpoint.limits import TokenLimits
from dragoman.export.checkpoint.settings import shown
from dragoman.export.transformer import TransformerConfig

__all__ = ["FORMAT", "VERSION", "WEIGHTS", "OwnFormat"]

FORMAT, VERSION, WEIGHTS = "dragoman", 1, "model.safetensors"


class OwnFormat:
    """`config` has the fields of TransformerConfig; weights have our names, linear ones (outputs, inputs) as in torch."""

    name = FORMAT
    looks_for = 'a directory with dragoman.json ("format": "dragoman") and model.safetensors'

    def recognises(self, source: Path) -> bool:
        """By the description."""
        return described_format(source) == self.name

    def open(self, source: Path, limits: TokenLimits, companions: CompanionFiles) -> OpenedSource:  # noqa: ARG002
        description, directory = read_description(source)
        description.one_of("format", (FORMAT,))
        if (version := description.raw("version")) != VERSION:
            raise CheckpointError(f"{description.where} is of version {shown(version)} of the format; {VERSION} is known")
        config = _config(description)
        tokenizer = DescribedTokenizer(description, directory)
        tokens, plan = tokenizer.special_tokens(), tokenizer.plan(config)
        generation = described_generation(description, limits.target(config))
        description.check_read()
        return OpenedSource(
            name=directory.resolve().name,
            architecture="dragoman Transformer",
            config=config,
            weights=open_safetensors(require_file(directory / WEIGHTS, "the weights")),
            weight_names=_OwnNames(),
            tokens=dataclasses.replace(tokens, unknown=plan.unknown),
            generation=generation,
            tokenizer_plan=plan,
        )


class _OwnNames:
    def weight_names(self, ours: str) -> tuple[str, ...]:
        return (ours,)

    def is_optional(self, ours: str) -> bool:  # noqa: ARG002 - the writer writes them all
        return False

    def is_ignored(self, theirs: str) -> bool:  # noqa: ARG002
        return False


def _config(description: Description) -> TransformerConfig:
    try:
        return build(TransformerConfig, description.raw("config"), f"'config' in {description.where}")
    except (BundleError, ExportError) as error:
        raise CheckpointError(str(error)) from error
