"""Chooses the cross-attention heads that align: those that attend to the source tokens which the model's output depends on.

A target token depends on the source token without which it becomes least probable: each token of a source is left out in
turn, and the log-probability of the translation is computed again. That needs no aligned text, works for any language and
tokenizer, and takes some hundred forced translations. Tokens that depend on no source token, or on several, are not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dragoman.bundle.manifest import Alignment, SpecialTokens
from dragoman.export.lowering.portable.forced import Memory, TargetOperators
from dragoman.export.progress import Advance
from dragoman.export.transformer import AttentionShape, Transformer
from dragoman.export.transformer.attention import attention_weights, split_heads, within
from dragoman.export.transformer.forced import aligning_heads
from dragoman.export.transformer.layers import Step
from dragoman.export.verification.eager import EagerModel, threads_for
from dragoman.search.options import DecodingOptions

__all__ = ["find_alignment"]

SENTENCES = 10
"""Sentences of medium length: each costs as many forced translations as it has tokens."""
MAX_TOKENS = 24
"""The limit of a source, and of its translation."""
CLEAR = 1.0
"""Natural logarithms by which the lack of a source token must lower a target token's log-probability …"""
CLEARER = 2.0
"""… and so many times as much as that of any other."""
MOST_HEADS = 8
FEWEST_LINKS = 20
"""With fewer a choice would mean nothing."""
LOGITS_BYTES = 32 << 20
"""Of the rows that are scored at a time: one row of a large vocabulary takes a megabyte."""

Floats = NDArray[np.float32]


class Sample(NamedTuple):
    """The clear dependencies of one translation, and the attention of all heads there."""

    targets: NDArray[np.int64]  # (links,) places in the target
    sources: NDArray[np.int64]  # (links,) places among the text tokens of the source
    weights: Floats  # (layers, heads, target, text tokens)


def find_alignment(
    model: Transformer,
    tokens: SpecialTokens,
    sources: Sequence[Sequence[int]],
    options: DecodingOptions,
    *,
    silent: frozenset[int],
    advance: Advance,
) -> Alignment:
    """The heads for `model`, chosen on these sources; without enough text, those of the middle layer."""
    chosen = _of_medium_length([source for source in sources if len(source) <= MAX_TOKENS])
    samples: list[Sample] = []
    if chosen:
        longest = min(MAX_TOKENS, model.config.max_target_positions - 1)
        short = DecodingOptions(max_length=longest, forced_bos=options.forced_bos, forced_eos=options.forced_eos)
        answers = EagerModel(model, tokens).generate(chosen, short)
        for at, (source, answer) in enumerate(zip(chosen, answers, strict=True)):
            text = [place for place, token in enumerate(source) if token not in silent]
            if len(text) > 1 and len(answer) > 1:
                with threads_for(model.config.d_model):
                    samples.append(_sample(model, tokens, source, answer, text))
            advance((at + 1) / len(chosen))
    links = sum(len(sample.targets) for sample in samples)
    if links < FEWEST_LINKS:
        return Alignment(aligning_heads(model.config), when="predicted", agreement=None, links=links)
    return _chosen(samples, links)


def _of_medium_length(sources: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    ordered = sorted(sources, key=len)
    first = max(0, len(ordered) - SENTENCES) // 2
    return ordered[first : first + SENTENCES]


@torch.inference_mode()
def _sample(
    model: Transformer, tokens: SpecialTokens, source: Sequence[int], answer: Sequence[int], text: Sequence[int]
) -> Sample:
    whole, weights = _forced(model, tokens, [source], answer)  # (1, target), (layers, heads, target, source)
    without, _ = _forced(model, tokens, [[*source[:at], *source[at + 1 :]] for at in text], answer)  # (text, target)
    loss = (whole - without).numpy()[:, :-1]  # (text, target): the end depends on all of the source
    ordered = np.sort(loss, axis=0)
    clear = (ordered[-1] >= CLEAR) & (ordered[-1] >= CLEARER * ordered[-2])
    targets = np.flatnonzero(clear)
    return Sample(targets, loss.argmax(0)[targets], weights[..., list(text)])


def _forced(
    model: Transformer, tokens: SpecialTokens, sources: Sequence[Sequence[int]], answer: Sequence[int]
) -> tuple[Tensor, Floats]:
    """Log-probabilities of the answer's tokens (sources, target), and the attention of all heads for the first source."""
    operators, ids = _Listener(), torch.tensor(sources)
    lengths = torch.full((len(sources),), ids.shape[1], dtype=torch.int32)
    memories = [Memory(pair, None) for pair in model.encode(ids, lengths)]
    fed = torch.tensor([tokens.decoder_start, *answer[:-1]]).expand(len(sources), -1)
    positions = torch.arange(fed.shape[1], dtype=torch.int32)[None]
    step = Step(positions, lengths, operators)
    hidden, _ = model.decoder(model.target_embedding, fed, memories, [None] * len(memories), step)
    of_answer = _log_probs(model, hidden.flatten(0, 1), torch.tensor(answer).repeat(len(sources)))
    weights = np.stack([weights[0].float().numpy() for weights in operators.weights])
    return of_answer.reshape(len(sources), -1), weights


def _log_probs(model: Transformer, hidden: Tensor, tokens: Tensor) -> Tensor:
    """Of each row's own token (rows,): hidden (rows, d_model), tokens (rows,). All logits are never in memory."""
    most = max(1, LOGITS_BYTES // (4 * model.choices))
    pieces = [slice(start, start + most) for start in range(0, len(hidden), most)]
    logits = ((model.output(hidden[piece]).float(), tokens[piece, None]) for piece in pieces)
    return torch.cat([some.log_softmax(-1).gather(1, theirs)[:, 0] for some, theirs in logits])


class _Listener(TargetOperators):
    """Keeps the attention of every layer: (sources, heads, target, source) each."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Tensor] = []

    def cross_attention(  # type: ignore[override]
        self, query: Tensor, memory: Memory, lengths: Tensor, shape: AttentionShape
    ) -> Tensor:
        key = memory.source.key
        self.weights.append(attention_weights(split_heads(query, shape), key, shape.scale, within(key, lengths)))
        return super().cross_attention(query, memory, lengths, shape)


def _chosen(samples: Sequence[Sample], links: int) -> Alignment:
    """Heads are added one by one, as long as their average agrees with more dependencies."""
    best = Alignment((), when="fed", agreement=-1.0, links=links)
    layers, heads = samples[0].weights.shape[:2]
    for when, shift in (("fed", 1), ("predicted", 0)):
        # A token is predicted in the row before the one in which it is fed.
        rows = [sample.weights[:, :, sample.targets + shift] for sample in samples]  # (layers, heads, links, text)
        taken: list[tuple[int, int]] = []
        reached = -1.0
        while len(taken) < MOST_HEADS:
            candidates = [(layer, head) for layer in range(layers) for head in range(heads) if (layer, head) not in taken]
            if not candidates:
                break
            shares = {one: _agreement(rows, samples, [*taken, one]) for one in candidates}
            head = max(shares, key=shares.__getitem__)
            if shares[head] <= reached:
                break
            taken, reached = [*taken, head], shares[head]
        if best.agreement is None or reached > best.agreement:
            best = Alignment(tuple(sorted(taken)), when=when, agreement=reached, links=links)  # type: ignore[arg-type]
    return best


def _agreement(rows: Sequence[Floats], samples: Sequence[Sample], heads: Sequence[tuple[int, int]]) -> float:
    """The share of dependencies whose source token gets the most attention of these heads together."""
    right = total = 0
    for row, sample in zip(rows, samples, strict=True):
        looked = np.sum([row[layer, head] for layer, head in heads], axis=0).argmax(-1)  # (links,)
        right += int((looked == sample.sources).sum())
        total += len(looked)
    return right / total
