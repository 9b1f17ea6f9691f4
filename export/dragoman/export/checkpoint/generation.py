"""The decoding settings of a checkpoint: generation_config.json, or config.json in older checkpoints.

Settings that change the output of Hugging Face `generate` are honoured or refused, never ignored.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.bundle.manifest import SpecialTokens, Task
from dragoman.bundle.tasks import TASK_NAME, TASK_PREFIX
from dragoman.errors import CheckpointError, InvalidRequest
from dragoman.export.checkpoint.files import read_settings
from dragoman.export.checkpoint.settings import JsonSettings, shown
from dragoman.search.options import DecodingOptions, EarlyStopping, from_mapping

__all__ = ["NEUTRAL", "end_tokens", "generation_options", "generation_settings", "named_tasks"]

EARLY_STOPPING: tuple[tuple[object, EarlyStopping], ...] = ((False, "heuristic"), (True, "first"), ("never", "never"))

SAME_MEANING = {
    "num_beams": "beam_size",
    "length_penalty": "length_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "repetition_penalty": "repetition_penalty",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "num_return_sequences": "num_hypotheses",
}

NEUTRAL: dict[str, tuple[object, ...]] = {
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1, 1.0),
    "num_beam_groups": (1,),
    "diversity_penalty": (0, 0.0),
    "begin_suppress_tokens": ([],),
    "exponential_decay_length_penalty": (),
    "renormalize_logits": (False,),
    "remove_invalid_values": (False,),
    "token_healing": (False,),
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


def generation_settings(directory: Path, config: JsonSettings) -> JsonSettings:
    """The raw settings, wherever this checkpoint keeps them."""
    path = directory / "generation_config.json"
    return read_settings(path) if path.is_file() else config


def generation_options(raw: Mapping[str, Any], tokens: SpecialTokens, max_positions: int) -> DecodingOptions:
    """The settings as DecodingOptions. Without a `max_length` the model's positions are the limit."""
    settings = JsonSettings(raw, "the generation settings")
    values: dict[str, object] = {ours: raw[theirs] for theirs, ours in SAME_MEANING.items() if theirs in settings}
    beams, samples = values.get("beam_size", 1), settings.flag("do_sample", False)
    _refuse_unsupported(settings, samples)
    if samples and beams != 1:
        raise CheckpointError("num_beams with do_sample (beam sampling) is not supported; set do_sample to false")
    longest = min(_longest(raw), max_positions)
    values["max_length"], values["min_length"] = longest, min(_shortest(settings), longest)
    if "early_stopping" in settings:
        values["early_stopping"] = _early_stopping(raw["early_stopping"])
    values["forced_bos"] = settings.token("forced_bos_token_id")
    values["forced_eos"] = settings.token("forced_eos_token_id")
    values["bad_words"] = _bad_words(settings, {*tokens.ends, values["forced_bos"], values["forced_eos"]}, tokens)
    values["sampling"] = samples
    try:
        return from_mapping(values, DecodingOptions())
    except InvalidRequest as error:
        raise CheckpointError(f"the checkpoint's generation settings are impossible: {error}") from error


def end_tokens(generation: JsonSettings, config: JsonSettings, default: int | None = None) -> tuple[int, ...]:
    """Every token that ends a translation; first the one that config.json, and so the tokenizer, ends sources with."""
    usual = config.tokens("eos_token_id")
    listed = generation.tokens("eos_token_id") or usual or (() if default is None else (default,))
    first = usual[:1] if usual[:1] and usual[0] in listed else listed[:1]
    return tuple(dict.fromkeys((*first, *listed)))


def _bad_words(settings: JsonSettings, needed: set[object], tokens: SpecialTokens) -> object:
    """The words, and the suppressed tokens, which are words of one token; `needed` ones can't be among those."""
    words, suppressed = settings.raw("bad_words_ids", []), settings.raw("suppress_tokens", [])
    if not isinstance(words, list) or not isinstance(suppressed, list):
        raise CheckpointError(f"{settings.file} must give bad_words_ids and suppress_tokens as lists")
    for token in suppressed:
        if token in needed:
            raise CheckpointError(
                f"suppress_tokens in {settings.file} has {shown(token)}, which the same settings force or end with; "
                "take it out"
            )
    ends = [[end] for end in tokens.ends]
    return [*(word for word in words if word not in ends), *([token] for token in suppressed)]


def _shortest(settings: JsonSettings) -> int:
    """Tokens that must stand before the end token; `min_length` counts the start token as well."""
    name, counted = ("min_new_tokens", 0) if "min_new_tokens" in settings else ("min_length", 1)
    value = settings.raw(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CheckpointError(f"{settings.file} must give {name} as a whole number, not {shown(value)}")
    return max(value - counted, 0)


def named_tasks(
    config: JsonSettings, generation: JsonSettings, tokens: SpecialTokens, max_positions: int
) -> dict[str, Task]:
    """`task_specific_params`: each task's settings over the model's own. They hold for requests that name the task."""
    listed = config.raw("task_specific_params", {})
    if not isinstance(listed, dict) or not all(isinstance(settings, dict) for settings in listed.values()):
        raise CheckpointError(f"{config.file} must give task_specific_params as an object of objects")
    tasks = {}
    for name, settings in listed.items():
        try:
            TASK_NAME.read("task", name)
            prefix = TASK_PREFIX.read("prefix", settings.get("prefix")) or ""
            options = generation_options({**generation.values, **settings}, tokens, max_positions)
        except (CheckpointError, InvalidRequest) as error:
            raise CheckpointError(f"task_specific_params of {config.file}, {shown(name)}: {error}") from error
        tasks[name] = Task(prefix, options)
    return tasks


def _refuse_unsupported(settings: JsonSettings, samples: bool) -> None:
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
