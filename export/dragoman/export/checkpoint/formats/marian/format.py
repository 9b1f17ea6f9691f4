"""A Marian model file, or the directory that it lies in, with its decoder.yml and vocabularies."""

from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path

from dragoman.bundle.manifest import SpecialTokens
from dragoman.errors import CheckpointError, InvalidRequest
from dragoman.export.checkpoint.files import require_file
from dragoman.export.checkpoint.formats.described_tokenizer import Vocabularies, pieces_plan, sentencepiece_ids
from dragoman.export.checkpoint.formats.marian.arrays import SETTINGS, open_arrays
from dragoman.export.checkpoint.formats.marian.model import MarianNames, MarianWeights, model_config
from dragoman.export.checkpoint.formats.marian.yaml import MarianSettings, parse_settings, parse_vocabulary
from dragoman.export.checkpoint.formats.moses import moses_of
from dragoman.export.checkpoint.formats.protocol import CompanionFiles, OpenedSource
from dragoman.export.checkpoint.formats.vocabularies import read_lines
from dragoman.export.checkpoint.formats.zips import ZIP_ERRORS
from dragoman.export.checkpoint.limits import TokenLimits
from dragoman.export.checkpoint.tokenizer_plan import TokenizerPlan
from dragoman.export.transformer import TransformerConfig
from dragoman.search.options import DecodingOptions, from_mapping

__all__ = ["MarianFormat"]

MODELS = ("model.npz", "model.npz.best-*.npz", "*.npz", "model.bin", "*.intgemm*.bin", "*.alphas.bin", "*.bin")
DECODER = ("decoder.yml", "*.decoder.yml", "config.yml", "*.yml")
END, UNKNOWN = "</s>", "<unk>"
LARGEST_SETTINGS = 1 << 20


class MarianFormat:
    """special:model.yml in a .npz or a .bin."""

    name = "marian"
    looks_for = "model.npz or a .bin of Marian (Bergamot, Firefox), or the directory of one"

    def recognises(self, source: Path) -> bool:
        """By the settings among the arrays; a directory of Hugging Face has config.json."""
        path = None if (source / "config.json").exists() else _model_file(source)
        return path is not None and _has_settings(path)

    def open(self, source: Path, limits: TokenLimits, companions: CompanionFiles) -> OpenedSource:
        path = _model_file(source)
        if path is None:
            raise CheckpointError(f"{source} has no model of Marian; looked for {', '.join(MODELS)}")
        arrays = open_arrays(require_file(path, "the model"))
        settings = parse_settings(arrays.settings(), f"{SETTINGS} of {path.name}")
        config = model_config(settings, arrays, limits)
        decoder = _decoder_settings(path.parent)
        vocabularies, files = _vocabularies(path, decoder, config)
        tokens = _tokens(vocabularies, config)
        plan = _tokenizer(path, vocabularies, files, companions, tokens)
        return OpenedSource(
            name=path.resolve().parent.name,
            architecture="Marian transformer",
            config=config,
            weights=MarianWeights(arrays, config),
            weight_names=MarianNames(config),
            tokens=dataclasses.replace(tokens, unknown=plan.unknown),
            generation=_generation(decoder, tokens, vocabularies, limits.target(config)),
            tokenizer_plan=plan,
        )


def _model_file(source: Path) -> Path | None:
    if source.is_file():
        return source
    found = (path for pattern in MODELS for path in sorted(source.glob(pattern)) if path.is_file())
    return next((path for path in found if _has_settings(path)), None)


def _has_settings(path: Path) -> bool:
    """Whether special:model.yml is one of the arrays, from the directory of the zip or the head of the binary file."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return f"{SETTINGS}.npy" in archive.namelist()
        with path.open("rb") as stream:
            head = stream.read(LARGEST_SETTINGS)
        return head.startswith(b"\x01" + bytes(7)) and SETTINGS.encode() in head
    except ZIP_ERRORS:
        return False


def _decoder_settings(directory: Path) -> MarianSettings:
    """How to decode, where the directory says so."""
    found = [path for pattern in DECODER for path in sorted(directory.glob(pattern)) if path.is_file()]
    for path in found:
        lines = read_lines(path) if path.stat().st_size <= LARGEST_SETTINGS else []
        if any(line.startswith(("beam-size:", "models:", "vocabs:")) for line in lines):
            return parse_settings("".join(lines), path.name)
    return MarianSettings({}, "decoder.yml")


def _vocabularies(path: Path, decoder: MarianSettings, config: TransformerConfig) -> tuple[Vocabularies, tuple[Path, Path]]:
    """The two that decoder.yml names, or those that lie beside the model under a usual name."""
    directory = path.parent
    named = [Path(name.replace("\\", "/")).name for name in decoder.texts("vocabs")]
    found = [directory / name for name in named] or _usual(directory)
    if len(found) == 1:
        found *= 2
    if len(found) != 2:
        raise CheckpointError(
            f"the vocabularies of {path.name} are missing: name them as `vocabs` in decoder.yml, or put vocab.spm, "
            f"vocab.yml, or source.spm and target.spm, into {directory}"
        )
    files = (require_file(found[0], "the source vocabulary"), require_file(found[1], "the target vocabulary"))
    source, target = _read(files[0]), _read(files[1])
    shared = source == target and config.shared_embeddings
    vocabularies = Vocabularies(source, target, is_shared=shared, source_unknown=source.get(UNKNOWN))
    vocabularies.check(config, (files[0].name, files[1].name))
    rows = config.target_vocabulary - 1
    if max(target.values()) >= rows:
        raise CheckpointError(
            f"vocabulary and embedding disagree: {files[1].name} has {len(target)} pieces, the embedding {rows} rows"
        )
    return vocabularies, files


def _usual(directory: Path) -> list[Path]:
    pairs = [("source.spm", "target.spm"), ("vocab.src.yml", "vocab.trg.yml"), ("srcvocab.spm", "trgvocab.spm")]
    for pair in pairs:
        if all((directory / name).is_file() for name in pair) and not list(directory.glob("*vocab*.yml")):
            return [directory / name for name in pair]
    single = [
        path for pattern in ("*vocab*.yml", "vocab*.spm", "*vocab*.spm", "*.spm") for path in sorted(directory.glob(pattern))
    ]
    return single[:1]


def _read(path: Path) -> dict[str, int]:
    if path.suffix in (".yml", ".yaml", ".json"):
        return parse_vocabulary(read_lines(path), path.name) if path.suffix != ".json" else _json(path)
    return sentencepiece_ids(path)


def _json(path: Path) -> dict[str, int]:
    from dragoman.export.checkpoint.formats.vocabularies import read_vocabulary_file

    return read_vocabulary_file(path)


def _tokens(vocabularies: Vocabularies, config: TransformerConfig) -> SpecialTokens:
    if END not in vocabularies.target or END not in vocabularies.source:
        raise CheckpointError(f"a vocabulary of the model has no {END}")
    start = config.target_vocabulary - 1  # the row of zeros
    return SpecialTokens(
        pad=start, eos=vocabularies.target[END], decoder_start=start, unknown=vocabularies.target.get(UNKNOWN)
    )


def _tokenizer(
    path: Path, vocabularies: Vocabularies, files: tuple[Path, Path], companions: CompanionFiles, tokens: SpecialTokens
) -> TokenizerPlan:
    around: tuple[tuple[int, ...], tuple[int, ...]] = ((), (vocabularies.source[END],))
    directory, pieces = path.parent, [*vocabularies.source, *vocabularies.target]
    models = companions.sentencepiece or tuple(file for file in files if file.suffix == ".spm")
    models = models or tuple(path for name in ("source.spm", "target.spm") if (path := directory / name).is_file())
    if models:
        pair = dict(zip(("source_model", "target_model"), dict.fromkeys(models), strict=False))
        return pieces_plan("m2m100", vocabularies, tokens, around, pair, {})
    moses = moses_of(companions.moses, set(pieces), path.name)
    codes = companions.bpe_codes or next(
        (file for name in ("source.bpe", "bpe.codes", "codes") if (file := directory / name).is_file()), None
    )
    if codes is not None or any(piece.endswith("@@") for piece in pieces):
        if codes is None:
            raise CheckpointError(f"the vocabulary of {path.name} has pieces of subword-nmt; name its codes: --bpe-codes")
        return pieces_plan("subword_nmt", vocabularies, tokens, around, {"source_codes": codes}, moses)
    if any(piece.startswith("▁") for piece in pieces):
        raise CheckpointError(f"the vocabulary of {path.name} has pieces of sentencepiece; name its model: --spm")
    return pieces_plan("vocabulary", vocabularies, tokens, around, {}, {"unit": "word", **moses})


def _generation(decoder: MarianSettings, tokens: SpecialTokens, vocabularies: Vocabularies, longest: int) -> DecodingOptions:
    """Unknown tokens are never generated unless `allow-unk` is set, as in Marian."""
    if decoder.real("word-penalty", 0.0) != 0.0:
        raise CheckpointError(f"word-penalty in {decoder.file} is not supported; set it to 0 and choose `normalize` instead")
    unknown = vocabularies.target.get(UNKNOWN)
    values: dict[str, object] = {
        "beam_size": decoder.number("beam-size", 12),
        "length_penalty": decoder.real("normalize", 0.0),
        "max_length": longest,
        "bad_words": [] if decoder.flag("allow-unk") or unknown in (None, tokens.eos) else [[unknown]],
    }
    try:
        return from_mapping(values, DecodingOptions())
    except InvalidRequest as error:
        raise CheckpointError(f"{decoder.file} is impossible: {error}") from error
