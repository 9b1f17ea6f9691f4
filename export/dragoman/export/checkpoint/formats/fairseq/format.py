"""A file of fairseq, or the directory that it lies in, with its dictionaries and subwords."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.bundle.manifest import SpecialTokens
from dragoman.errors import CheckpointError, InvalidRequest
from dragoman.export.checkpoint.files import require_file
from dragoman.export.checkpoint.formats.described_tokenizer import Vocabularies, pieces_plan
from dragoman.export.checkpoint.formats.fairseq.companions import (
    Dictionary,
    find_codes,
    find_dictionaries,
    find_sentencepiece,
    searched_directories,
)
from dragoman.export.checkpoint.formats.fairseq.names import FairseqNames, modernised
from dragoman.export.checkpoint.formats.fairseq.settings import FairseqSettings, read_settings
from dragoman.export.checkpoint.formats.moses import moses_of
from dragoman.export.checkpoint.formats.pickles import load_pickle, pickled_names, state_dict
from dragoman.export.checkpoint.formats.protocol import CompanionFiles, OpenedSource
from dragoman.export.checkpoint.limits import TokenLimits
from dragoman.export.checkpoint.settings import JsonSettings
from dragoman.export.checkpoint.tokenizer_plan import TokenizerPlan
from dragoman.search.options import DecodingOptions, from_mapping

__all__ = ["FairseqFormat"]

BEGIN, PAD, END, UNKNOWN = 0, 1, 2, 3
CHECKPOINTS = ("checkpoint_best.pt", "model.pt", "checkpoint_last.pt", "averaged_model.pt", "avg.pt")
SUBDIRECTORIES = ("", "checkpoints", "models")
MARK, SPACE = "@@", "▁"
BEAMS, MOST_TOKENS = 5, 200  # of fairseq-generate


class FairseqFormat:
    """`args` or `cfg` beside `model` in a file of torch.save."""

    name = "fairseq"
    looks_for = "a file of torch.save with `model` and `args` or `cfg`, or a directory with " + ", ".join(CHECKPOINTS[:3])

    def recognises(self, source: Path) -> bool:
        """By what the file holds; of a directory, the file that has one of the usual names."""
        path = _checkpoint(source)
        return path is not None and {"model", "extra_state"} <= pickled_names(path)

    def open(self, source: Path, limits: TokenLimits, companions: CompanionFiles) -> OpenedSource:
        path = _checkpoint(source)
        if path is None:
            raise CheckpointError(f"{source} has no fairseq checkpoint; looked for {', '.join(CHECKPOINTS)}")
        loaded = load_pickle(require_file(path, "the checkpoint"))
        if not isinstance(loaded, Mapping) or "model" not in loaded:
            raise CheckpointError(f"{path} is not a fairseq checkpoint: it has no `model`")
        settings = read_settings(loaded, str(path))
        weights = modernised(state_dict(loaded["model"], f"`model` of {path}"))
        config = settings.config(weights)
        directories = searched_directories(path, settings)
        rows = (config.source_vocabulary, config.target_vocabulary)
        dictionaries = find_dictionaries(directories, companions, settings, rows)
        tokens = SpecialTokens(pad=PAD, eos=END, decoder_start=END, unknown=UNKNOWN)
        plan = _tokenizer(directories, companions, settings, dictionaries, tokens)
        return OpenedSource(
            name=_name(path),
            architecture="fairseq transformer",
            config=config,
            weights=weights,
            weight_names=FairseqNames(config.shared_embeddings, config.tied_output),
            tokens=dataclasses.replace(tokens, unknown=plan.unknown),
            generation=_generation(settings.generation, limits.target(config)),
            tokenizer_plan=plan,
        )


def _checkpoint(source: Path) -> Path | None:
    if source.is_file():
        return source
    usual = (source / inside / name for name in CHECKPOINTS for inside in SUBDIRECTORIES)
    return next((path for path in usual if path.is_file()), None)


def _name(path: Path) -> str:
    directory = path.resolve().parent
    return directory.parent.name if directory.name in SUBDIRECTORIES else directory.name


def _tokenizer(
    directories: list[Path],
    companions: CompanionFiles,
    settings: FairseqSettings,
    dictionaries: tuple[Dictionary, Dictionary],
    tokens: SpecialTokens,
) -> TokenizerPlan:
    """By the pieces that the source dictionary has: `@@` of subword-nmt, `▁` of sentencepiece, or words."""
    source, target = dictionaries
    vocabularies = Vocabularies(source.ids, target.ids, is_shared=source is target, source_unknown=UNKNOWN)
    around, languages = ((), (END,)), (source.language, target.language)
    silent = (BEGIN,)
    pieces = {**source.ids, **target.ids}
    moses = moses_of(
        companions.moses, pieces, "the fairseq checkpoint", languages=settings.languages, settings=settings.tokenizer
    )
    codes = find_codes(directories, companions, settings)
    if companions.bpe_codes is not None or any(piece.endswith(MARK) for piece in pieces):
        if companions.sentencepiece:
            raise CheckpointError("--spm does not fit: the dictionary has pieces with @@, or --bpe-codes is given, too")
        if codes is None:
            raise _missing("codes of subword-nmt (its dictionary has pieces with @@)", directories, "--bpe-codes")
        return pieces_plan("subword_nmt", vocabularies, tokens, around, {"source_codes": codes}, moses, languages, silent)
    if companions.sentencepiece or any(piece.startswith(SPACE) for piece in pieces):
        models = find_sentencepiece(directories, companions, settings)
        if not models:
            raise _missing("sentencepiece model (its dictionary has pieces with ▁)", directories, "--spm")
        if moses:
            raise CheckpointError("Moses's tokenizer before sentencepiece is not supported; --moses none leaves it out")
        files = dict(zip(("source_model", "target_model"), models, strict=False))
        return pieces_plan("m2m100", vocabularies, tokens, around, files, {}, languages, silent)
    return pieces_plan("vocabulary", vocabularies, tokens, around, {}, {"unit": "word", **moses}, languages, silent)


def _missing(what: str, directories: list[Path], option: str) -> CheckpointError:
    listed = ", ".join(map(str, directories))
    return CheckpointError(f"the {what} are missing; looked in {listed}. Name the file: {option}")


def _generation(raw: Mapping[str, Any], longest: int) -> DecodingOptions:
    """What fairseq-generate does where the checkpoint does not say: five beams, and the end when five are finished."""
    settings = JsonSettings(raw, "`generation` of the fairseq checkpoint")
    values = {
        "beam_size": settings.number("beam", BEAMS),
        "length_penalty": settings.real("lenpen", 1.0) if not settings.flag("unnormalized", False) else 0.0,
        "no_repeat_ngram_size": settings.raw("no_repeat_ngram_size", 0),
        "max_length": min(settings.number("max_len_b", MOST_TOKENS), longest),
        "early_stopping": "heuristic" if settings.flag("no_early_stop", False) else "first",
    }
    try:
        return from_mapping(values, DecodingOptions())
    except InvalidRequest as error:
        raise CheckpointError(f"{settings.file} is impossible: {error}") from error
