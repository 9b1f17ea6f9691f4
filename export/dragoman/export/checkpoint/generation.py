"""How the model's authors want it decoded: generation_config.json, or config.json as older checkpoints have it.

Whatever changes what Hugging Face `generate` gives is honoured or refused, never ignored.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.bundle.manifest import SpecialTokens
from dragoman.errors import CheckpointError, InvalidRequest
from dragoman.export.checkpoint.files import read_settings
from dragoman.export.checkpoint.settings import Settings, shown
from dragoman.search.options import DecodingOptions, EarlyStopping, from_mapping

__all__ = ["generation_options", "generation_settings"]

EARLY_STOPPING: tuple[tuple[object, EarlyStopping], ...] = ((False, "heuristic"), (True, "first"), ("never", "never"))

SAME_MEANING = {
    "num_beams": "beam_size",
    "length_penalty": "length_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "repetition_penalty": "repetition_penalty",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    # bans the end token while fewer stand before it, the start token counted: the same number as with the end token counted
    "min_length": "min_length",
}

NEUTRAL: dict[str, tuple[object, ...]] = {
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1, 1.0),
    "num_beam_groups": (1,),
    "diversity_penalty": (0, 0.0),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "min_new_tokens": (0,),
    "exponential_decay_length_penalty": (),
    "renormalize_logits": (False,),
    "sequence_bias": ({}, []),
    "constraints": ([],),
    "force_words_ids": ([],),
    "forced_decoder_ids": ([],),
    "guidance_scale": (1, 1.0),
    "penalty_alpha": (0, 0.0),
    "typical_p": (1, 1.0),
    "epsilon_cutoff": (0, 0.0),
    "eta_cutoff": (0, 0.0),
    "min_p": (0, 0.0),
    "top_h": (),
    "stop_strings": ([], ""),
    "max_time": (),
    "watermarking_config": (),
    "dola_layers": (),
    "prompt_lookup_num_tokens": (),
}
"""Settings that the search does not have, with the values (besides null) that ask for nothing."""

SAMPLING_ONLY = {"typical_p", "epsilon_cutoff", "eta_cutoff", "min_p", "top_h"}


def generation_settings(directory: Path, config: Settings) -> Settings:
    """The raw settings, wherever this checkpoint keeps them."""
    path = directory / "generation_config.json"
    return read_settings(path) if path.is_file() else config


def generation_options(raw: Mapping[str, Any], tokens: SpecialTokens, max_positions: int) -> DecodingOptions:
    """The settings as our options. Without a `max_length` the model's positions are the limit."""
    settings = Settings(raw, "the generation settings")
    values: dict[str, object] = {ours: raw[theirs] for theirs, ours in SAME_MEANING.items() if theirs in settings}
    beams, samples = values.get("beam_size", 1), settings.flag("do_sample", False)
    _refuse_unsupported(settings, samples)
    if samples and beams != 1:
        raise CheckpointError("num_beams with do_sample (beam sampling) is not supported; set do_sample to false")
    values["max_length"] = min(_longest(raw), max_positions)
    if isinstance(shortest := values.get("min_length"), int):
        values["min_length"] = min(shortest, values["max_length"])  # type: ignore[call-overload]
    if "early_stopping" in settings:
        values["early_stopping"] = _early_stopping(raw["early_stopping"])
    words = raw.get("bad_words_ids") or []
    values["bad_words"] = [word for word in words if word != [tokens.eos]] if isinstance(words, list) else words
    values["forced_bos"] = settings.token("forced_bos_token_id")
    values["forced_eos"] = settings.token("forced_eos_token_id")
    values["sampling"] = samples
    try:
        return from_mapping(values, DecodingOptions())
    except InvalidRequest as error:
        raise CheckpointError(f"the checkpoint's generation settings are impossible: {error}") from error


def _refuse_unsupported(settings: Settings, samples: bool) -> None:
    for name, neutral in NEUTRAL.items():
        value = settings.raw(name)
        if value is None or value in neutral or (name in SAMPLING_ONLY and not samples):
            continue
        raise CheckpointError(
            f"{name}={shown(value)} in the checkpoint's generation settings is not supported and changes its answers; "
            f"remove it from generation_config.json to export the model without it"
        )


def _early_stopping(value: object) -> object:
    """As Hugging Face spells it: compared by identity of type, since 0 == False."""
    for theirs, ours in EARLY_STOPPING:
        if type(value) is type(theirs) and value == theirs:
            return ours
    raise CheckpointError(f'early_stopping={shown(value)} must be true, false or "never"')


def _longest(raw: Mapping[str, Any]) -> int:
    """How many tokens may be generated; `max_length` counts the start token as well, `max_new_tokens` does not."""
    new, whole = raw.get("max_new_tokens"), raw.get("max_length")
    if isinstance(new, int) and new > 0:
        return new
    return whole - 1 if isinstance(whole, int) and whole > 1 else sys.maxsize
