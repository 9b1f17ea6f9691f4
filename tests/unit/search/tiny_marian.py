"""A tiny random MarianMTModel: Hugging Face `generate`, and our search on the same logits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel
from transformers.modeling_outputs import BaseModelOutput

from dragoman.search import DecodingOptions, Hypothesis, search_batch

VOCABULARY, PAD, EOS = 37, 36, 0


@dataclass(frozen=True)
class Tokens:
    ends: tuple[int, ...] = (EOS,)
    decoder_start: int = PAD


@lru_cache
def tiny_model() -> MarianMTModel:
    """Weights large enough to be sure of itself, and an end token likely enough to end most sentences."""
    torch.manual_seed(7)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "max_position_embeddings": 64}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    ids = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": PAD, "forced_eos_token_id": None}
    config = MarianConfig(vocab_size=VOCABULARY, decoder_vocab_size=VOCABULARY, init_std=0.6, **sizes, **heads, **ids)
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        # A random model repeats one word for ever. An output projection of its own, and the last word felt more than the
        # source, make it wander.
        model.lm_head.weight = torch.nn.Parameter(torch.randn(VOCABULARY, 16))
        model.model.shared.weight *= 4.0
        model.model.decoder.layers[0].encoder_attn.out_proj.weight *= 0.4
        model.final_logits_bias[0, EOS] += 2.0
    model.generation_config = GenerationConfig(**{name: ids[name] for name in list(ids)[:3]})
    return model


def generated(
    source: list[int], options: DecodingOptions, ends: tuple[int, ...] = (EOS,)
) -> list[tuple[tuple[int, ...], float | None]]:
    """The hypotheses of Hugging Face: tokens after the start token up to the end token, and score for beams."""
    o = options
    start = PAD if o.decoder_start is None else o.decoder_start
    asked = GenerationConfig(
        num_beams=o.beam_size,
        num_return_sequences=o.num_hypotheses,
        max_new_tokens=o.max_length,
        min_new_tokens=o.min_length or None,
        length_penalty=o.length_penalty,
        early_stopping={"heuristic": False, "first": True, "never": "never"}[o.early_stopping],
        no_repeat_ngram_size=o.no_repeat_ngram_size or None,
        repetition_penalty=float(o.repetition_penalty),
        bad_words_ids=[list(word) for word in o.bad_words] or None,
        forced_bos_token_id=o.forced_bos,
        forced_eos_token_id=o.forced_eos,
        do_sample=False,
        pad_token_id=PAD,
        eos_token_id=list(ends),
        decoder_start_token_id=start,
        return_dict_in_generate=True,
        output_scores=True,
    )
    answer = tiny_model().generate(
        torch.tensor([source]),
        attention_mask=torch.ones(1, len(source), dtype=torch.long),
        decoder_input_ids=torch.tensor([[start, *o.prefix]]),
        generation_config=asked,
    )
    scores = answer.sequences_scores.tolist() if o.beam_size > 1 else [None] * o.num_hypotheses
    prompt = 1 + len(o.prefix)
    return [(_until_end(row.tolist(), prompt, ends), score) for row, score in zip(answer.sequences, scores, strict=True)]


def _until_end(row: list[int], prompt: int, ends: tuple[int, ...]) -> tuple[int, ...]:
    ended = next((at for at in range(prompt, len(row)) if row[at] in ends), len(row))
    return tuple(row[1 : ended + 1])


def searched(
    sources: list[list[int]], every: list[DecodingOptions], extra_candidates: int = 0, ends: tuple[int, ...] = (EOS,)
) -> list[tuple[Hypothesis, ...]]:
    """Our answers, all in one batch (one width), logits from the same model, each row's history kept by `parents`."""
    (width,) = {options.beam_size for options in every}
    batch = search_batch(width, Tokens(ends), VOCABULARY)
    for options in every:
        batch.join(options)
    encoded = [_encoded(tuple(source)) for source in sources]
    standing = list(range(len(every)))  # which request each group is
    histories = [[[] for _ in range(width)] for _ in every]
    answers: dict[int, tuple[Hypothesis, ...]] = {}
    while len(batch):
        k = min(batch.candidates + extra_candidates, VOCABULARY)
        best_tokens = np.zeros((len(batch), width, k), np.int64)
        log_probs, logits = np.zeros(best_tokens.shape, np.float32), np.zeros(best_tokens.shape, np.float32)
        fed, parents, positions = batch.tokens, batch.parents, batch.positions
        for group, request in enumerate(standing):
            before = histories[request]
            rows = [before[parent] + [token] for parent, token in zip(parents[group], fed[group].tolist(), strict=True)]
            histories[request] = rows
            assert positions[group] == len(rows[0]) - 1
            with torch.no_grad():
                states = encoded[request].expand(width, -1, -1)
                said = tiny_model()(encoder_outputs=BaseModelOutput(states), decoder_input_ids=torch.tensor(rows)).logits[
                    :, -1
                ]
            top = said.log_softmax(-1).topk(k)
            best_tokens[group], log_probs[group] = top.indices.numpy(), top.values.numpy()
            logits[group] = said.gather(1, top.indices).numpy()
        for group in batch.advance(best_tokens, log_probs, logits):
            answers[standing[group]] = batch.hypotheses(group)
            batch.leave(group)
            standing[group] = standing[-1]
            standing.pop()
    return [answers[request] for request in range(len(every))]


@lru_cache
def _encoded(source: tuple[int, ...]) -> torch.Tensor:
    with torch.no_grad():
        states: torch.Tensor = tiny_model().get_encoder()(torch.tensor([source])).last_hidden_state
    return states
