"""Checks between the fields of a manifest, beyond the type and range of each single field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dragoman.bundle.tasks import impossible_tasks

if TYPE_CHECKING:
    from dragoman.bundle.manifest import Manifest
    from dragoman.bundle.records import StoredTensor
    from dragoman.search import DecodingOptions

__all__ = ["contradictions"]

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int8": 1, "uint8": 1, "bool": 1}
MAX_BEAM_SIZE = 1024
SHORTLISTS = "shortlists"
"""The input of a graph that takes the number of the shortlist of each sequence."""
MAX_ENDS = 16
"""End tokens: each costs a beam search a candidate for each of its rows."""


def contradictions(manifest: Manifest) -> list[str]:
    """The contradictions between fields, each as a short sentence."""
    return [*_files(manifest), *_graphs(manifest), *_tokens(manifest), *_generation(manifest)]


def _files(manifest: Manifest) -> Iterator[str]:
    """Every file that is opened must be listed with its hash."""
    if not manifest.files:
        yield "it lists no files"
    for role, name in manifest.tokenizer.files.items():
        if name not in manifest.files:
            yield f"the tokenizer's {role} {name} is not among its files"
    for kind, opened in (("graph", manifest.graphs), ("engine", manifest.engines)):
        for item in opened:
            if item.file not in manifest.files:
                yield f"the {kind} {item.file} is not among its files"
    for graph in manifest.graphs:
        for tensor in graph.large_weights:
            yield from _stored(manifest, tensor)


def _stored(manifest: Manifest, tensor: StoredTensor) -> Iterator[str]:
    record = manifest.files.get(tensor.file)
    if record is None:
        yield f"the weights {tensor.file} are not among its files"
    elif tensor.offset + math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype] > record.bytes:
        yield f"the weight {tensor.name} ends after {tensor.file}"


def _graphs(manifest: Manifest) -> Iterator[str]:
    if not manifest.graphs:
        yield "it lists no graphs"
    kinds = [(graph.role, graph.lowering) for graph in manifest.graphs]
    if len(set(kinds)) != len(kinds):
        yield "two graphs have the same role and lowering"
    sizes = manifest.dimensions
    if sizes.shortlist is not None and sizes.shortlist > sizes.target_vocabulary:
        yield f"the shortlist has {sizes.shortlist} tokens of a vocabulary of {sizes.target_vocabulary}"
    yield from _shortlists(manifest)


def _shortlists(manifest: Manifest) -> Iterator[str]:
    lists, sizes = manifest.shortlists, manifest.dimensions
    if not lists:
        return
    if (longest := max(lists.values())) > sizes.target_vocabulary:
        yield f"a shortlist has {longest} tokens of a vocabulary of {sizes.target_vocabulary}"
    if sizes.shortlist is not None:
        yield "it has a shortlist for all languages and shortlists of single ones"
    if manifest.languages is not None and not lists.keys() <= manifest.languages.tokens.keys():
        yield "a shortlist is for a language that is not among its languages"
    for graph in manifest.graphs:
        if graph.role != "encoder" and all(given.name != SHORTLISTS for given in graph.inputs):
            yield f"{graph.file} can't choose between the shortlists of languages"


def _tokens(manifest: Manifest) -> Iterator[str]:
    tokens, vocabulary = manifest.tokens, manifest.dimensions.target_vocabulary
    named = {"pad": tokens.pad, "eos": tokens.eos, "decoder_start": tokens.decoder_start}
    yield from _outside(named, vocabulary)
    if any(token >= vocabulary for token in tokens.other_eos) or len(set(tokens.ends)) != len(tokens.ends):
        yield f"its end tokens {tokens.ends} are not different tokens of a target vocabulary of {vocabulary}"
    if len(tokens.ends) > MAX_ENDS:
        yield f"it has {len(tokens.ends)} end tokens; {MAX_ENDS} are supported"
    sources = (*manifest.tokenizer.source_prefix, *manifest.tokenizer.source_suffix)
    if any(token >= manifest.dimensions.source_vocabulary for token in sources):
        yield f"a token around the sources is not in the source vocabulary of {manifest.dimensions.source_vocabulary}"
    languages = manifest.languages
    if languages is not None:
        if any(token >= vocabulary for token in languages.tokens.values()):
            yield f"the token of a language is not in the target vocabulary of {vocabulary}"
        for code in (languages.default_source, languages.default_target):
            if code is not None and code not in languages.tokens:
                yield f"the default language {code} is not among its languages"


def _outside(named: Mapping[str, int | None], vocabulary: int) -> Iterator[str]:
    for name, token in named.items():
        if token is not None and token >= vocabulary:
            yield f"the token {name}={token} is not in the target vocabulary of {vocabulary}"


def _generation(manifest: Manifest) -> Iterator[str]:
    yield from impossible_tasks(manifest.tasks)
    for generation in (manifest.generation, *(task.generation for task in manifest.tasks.named.values())):
        yield from _search(manifest, generation)


def _search(manifest: Manifest, generation: DecodingOptions) -> Iterator[str]:
    longest, vocabulary = manifest.dimensions.max_target_tokens, manifest.dimensions.target_vocabulary
    yield from _outside({"forced_bos": generation.forced_bos, "forced_eos": generation.forced_eos}, vocabulary)
    listed = (*generation.prefix, *(token for word in generation.bad_words for token in word))
    if any(token >= vocabulary for token in listed):
        yield f"a token of prefix or bad_words is not in the target vocabulary of {vocabulary}"
    if generation.max_length > longest:
        yield f"max_length={generation.max_length} is more than max_target_tokens={longest}"
    if generation.beam_size > MAX_BEAM_SIZE:
        yield f"beam_size={generation.beam_size} is more than {MAX_BEAM_SIZE}"
    if generation.no_repeat_ngram_size > longest:
        yield f"no_repeat_ngram_size={generation.no_repeat_ngram_size} is more than max_target_tokens={longest}"
