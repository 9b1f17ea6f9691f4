"""dragoman.json with "format": "torch-transformer", and the file of weights that it names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from dragoman.errors import CheckpointError, ExportError
from dragoman.export.checkpoint.files import open_safetensors, require_file
from dragoman.export.checkpoint.formats.described_tokenizer import DescribedTokenizer
from dragoman.export.checkpoint.formats.description import Description, closest, described_format, read_description
from dragoman.export.checkpoint.formats.generation import described_generation
from dragoman.export.checkpoint.formats.pickles import load_pickle, state_dict
from dragoman.export.checkpoint.formats.protocol import CompanionFiles, OpenedSource, Reference
from dragoman.export.checkpoint.formats.stacked import unstacked
from dragoman.export.checkpoint.formats.torch_transformer.names import COMPUTED, TorchNames, read_names
from dragoman.export.checkpoint.formats.torch_transformer.positions import computed_positions, stored_positions
from dragoman.export.checkpoint.limits import TokenLimits
from dragoman.export.checkpoint.settings import shown
from dragoman.export.transformer import TransformerConfig

__all__ = ["TorchTransformerFormat", "read_weights", "with_positions"]

ACTIVATIONS = {"relu": "relu", "gelu": "gelu"}
SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")


class TorchTransformerFormat:
    """The layers' own weights are found by torch's names; the description names the rest."""

    name = "torch-transformer"
    looks_for = 'dragoman.json with "format": "torch-transformer" beside a state dict of torch.nn.Transformer'

    def recognises(self, source: Path) -> bool:
        """By the description, in the directory or beside the file."""
        return described_format(source) == self.name

    def open(self, source: Path, limits: TokenLimits, companions: CompanionFiles) -> OpenedSource:  # noqa: ARG002
        description, directory = read_description(source)
        description.one_of("format", (self.name,))
        names = read_names(description)
        weights, file = read_weights(description, directory, source)
        tensors = with_positions(unstacked(weights), description.section("positions", required=False), names)
        names.check(tensors, description.where, file)
        config = _config(description, tensors, names)
        tokenizer = DescribedTokenizer(description, directory)
        tokens = tokenizer.special_tokens()
        plan = tokenizer.plan(config)
        generation = described_generation(description, limits.target(config))
        description.check_read()
        return OpenedSource(
            name=directory.resolve().name,
            architecture="torch.nn.Transformer",
            config=config,
            weights=tensors,
            weight_names=names,
            tokens=dataclasses.replace(tokens, unknown=plan.unknown),
            generation=generation,
            tokenizer_plan=plan,
            reference=Reference("torch", source),
        )


def read_weights(description: Description, directory: Path, source: Path) -> tuple[Mapping[str, Tensor], str]:
    """The tensors by name, and the name of their file: the one that was given, the one that is named, or the only one."""
    named = description.text("weights")
    inside = description.text("state_dict")
    if source.is_file() and source.suffix in SUFFIXES:
        path = source
    elif named is not None:
        path = require_file(description.beside(directory, named, "'weights'"), "the weights")
    else:
        path = _only_file(directory)
    if path.suffix == ".safetensors":
        return open_safetensors(require_file(path, "the weights")), path.name
    loaded = load_pickle(require_file(path, "the weights"))
    if inside is not None:
        if not isinstance(loaded, Mapping) or inside not in loaded:
            known = [key for key in loaded if isinstance(key, str)] if isinstance(loaded, Mapping) else []
            raise CheckpointError(f"{path} has no {shown(inside)} ('state_dict'){closest(inside, known)}")
        loaded = loaded[inside]
    return state_dict(loaded, str(path)), path.name


def _only_file(directory: Path) -> Path:
    found = sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)
    if len(found) != 1:
        listed = ", ".join(path.name for path in found) or "none"
        raise CheckpointError(
            f"{directory} must hold one file of weights ({', '.join(SUFFIXES)}), or 'weights' name one; it has {listed}"
        )
    return found[0]


def with_positions(tensors: dict[str, Tensor], positions: Description, names: TorchNames) -> dict[str, Tensor]:
    """The tables of positions in the shape that the model uses, under the names that `names` gives them."""
    embedding = tensors.get(names.source_embedding)
    if embedding is None or embedding.dim() != 2:
        return tensors
    width = embedding.shape[1]
    if names.source_positions == COMPUTED:
        return {**tensors, COMPUTED: computed_positions(positions, width)}
    positions.raw("target_weight")
    tables = {key: tensors[key] for key in (names.source_positions, names.target_positions) if key in tensors}
    return tensors | {key: stored_positions(positions, table, key, width) for key, table in tables.items()}


def _config(description: Description, tensors: Mapping[str, Tensor], names: TorchNames) -> TransformerConfig:
    d_model = tensors[names.source_embedding].shape[1]
    encoder_final, decoder_final = (f"{side}norm.weight" in tensors for side in (names.encoder, names.decoder))
    if encoder_final != decoder_final:
        raise CheckpointError("one of encoder and decoder has a norm after its last layer; dragoman needs both or none")
    heads = description.number("heads")
    scale = description.raw("embedding_scale", 1.0)
    try:
        return TransformerConfig(
            d_model=d_model,
            encoder_layers=_layers(tensors, names.encoder),
            decoder_layers=_layers(tensors, names.decoder),
            encoder_heads=heads,
            decoder_heads=description.number("decoder_heads", heads),
            encoder_feed_forward=_inner_width(tensors, names.encoder),
            decoder_feed_forward=_inner_width(tensors, names.decoder),
            source_vocabulary=tensors[names.source_embedding].shape[0],
            target_vocabulary=tensors[names.target_embedding].shape[0],
            max_source_positions=tensors[names.source_positions].shape[0],
            max_target_positions=tensors[names.target_positions].shape[0],
            positions="learned",
            pre_norm=description.flag("norm_first", False),
            final_norm=encoder_final,
            norm_epsilon=description.real("layer_norm_epsilon", 1e-5),
            activation=description.choice("activation", ACTIVATIONS, "relu"),  # type: ignore[arg-type]
            attention_bias=f"{names.encoder}layers.0.self_attn.out_proj.bias" in tensors,
            feed_forward_bias=f"{names.encoder}layers.0.linear1.bias" in tensors,
            embedding_scale=d_model**0.5 if scale == "sqrt" else description.real("embedding_scale", 1.0),
            shared_embeddings=names.source_embedding == names.target_embedding,
            tied_output=names.output_weight == names.target_embedding,
            output_bias=names.output_bias is not None,
        )
    except CheckpointError:
        raise
    except ExportError as error:
        raise CheckpointError(f"{description.where} and its weights are of a model that can't be: {error}") from error


def _layers(tensors: Mapping[str, Tensor], prefix: str) -> int:
    pattern = re.compile(re.escape(prefix) + r"layers\.(\d{1,4})\.")
    return 1 + max((int(match[1]) for name in tensors if (match := pattern.match(name))), default=0)


def _inner_width(tensors: Mapping[str, Tensor], prefix: str) -> int:
    return tensors[f"{prefix}layers.0.linear1.weight"].shape[0]
