"""How the model's authors want it decoded: generation_config.json, or config.json as older checkpoints have it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.bundle.manifest import SpecialTokens
from dragoman.errors import CheckpointError, InvalidRequest
from dragoman.export.checkpoint.files import read_json
from dragoman.search.options import DecodingOptions, EarlyStopping, from_mapping

__all__ = ["generation_options", "generation_settings", "single_token"]

EARLY_STOPPING: dict[object, EarlyStopping] = {False: "heuristic", True: "first", "never": "never"}

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


def generation_settings(directory: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The raw settings, wherever this checkpoint keeps them."""
    path = directory / "generation_config.json"
    return read_json(path) if path.is_file() else config


def generation_options(raw: Mapping[str, Any], tokens: SpecialTokens, max_positions: int) -> DecodingOptions:
    """The settings as our options. Without a `max_length` the model's positions are the limit."""
    values: dict[str, object] = {ours: raw[theirs] for theirs, ours in SAME_MEANING.items() if raw.get(theirs) is not None}
    values["max_length"] = min(_longest(raw), max_positions)
    if isinstance(shortest := values.get("min_length"), int):
        values["min_length"] = min(shortest, values["max_length"])  # type: ignore[call-overload]
    if (early := raw.get("early_stopping")) is not None:
        values["early_stopping"] = EARLY_STOPPING.get(early, early)
    values["bad_words"] = [word for word in raw.get("bad_words_ids") or [] if word != [tokens.eos]]
    values["forced_bos"] = single_token(raw, "forced_bos_token_id")
    values["forced_eos"] = single_token(raw, "forced_eos_token_id")
    if values.get("beam_size", 1) == 1:
        values["sampling"] = bool(raw.get("do_sample"))
    try:
        return from_mapping(values, DecodingOptions())
    except InvalidRequest as error:
        raise CheckpointError(f"the checkpoint's generation settings are impossible: {error}") from error


def _longest(raw: Mapping[str, Any]) -> int:
    """How many tokens may be generated; `max_length` counts the start token as well, `max_new_tokens` does not."""
    new, whole = raw.get("max_new_tokens"), raw.get("max_length")
    if isinstance(new, int) and new > 0:
        return new
    return whole - 1 if isinstance(whole, int) and whole > 1 else sys.maxsize


def single_token(raw: Mapping[str, Any], name: str) -> int | None:
    """A token id that may be stored as a list of one."""
    value = raw.get(name)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise CheckpointError(f"{name} is {value!r}; dragoman supports one token id")
    return value
