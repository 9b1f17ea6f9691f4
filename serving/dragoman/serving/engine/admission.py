"""Every limit on a sequence is checked here, once, before any work is done for it."""

from __future__ import annotations

from collections.abc import Sequence as Many

from dragoman.errors import InvalidRequest
from dragoman.search import DecodingOptions
from dragoman.search.constraints import check_tokens
from dragoman.serving.engine.limits import EngineLimits, ModelFacts
from dragoman.serving.engine.runtime import Runtime
from dragoman.serving.engine.sequence import Sequence
from dragoman.serving.engine.slots import Usage

__all__ = ["AdmissionCheck", "check_source"]


def check_source(source: Many[int], model: ModelFacts) -> None:
    """InvalidRequest unless the model takes this source."""
    if not source:
        raise InvalidRequest("the source has no tokens")
    if len(source) > model.max_source_tokens:
        raise InvalidRequest(f"the source has {len(source)} tokens, the model takes {model.max_source_tokens}; split it")
    if not 0 <= min(source) <= max(source) < model.source_vocabulary:
        raise InvalidRequest(f"a source token is outside the vocabulary of {model.source_vocabulary}")


class AdmissionCheck:
    """Refuses sequences that could not run even alone, and finds out which ones are large."""

    def __init__(self, limits: EngineLimits, model: ModelFacts, runtime: Runtime) -> None:
        self._limits, self._model, self._runtime = limits, model, runtime
        self._slots = limits.kv_slots(model)
        self._checked: DecodingOptions | None = None  # the last ones: those of most requests are the same object
        self._row_candidates = 0  # of these

    def __call__(self, sequence: Sequence) -> None:
        model, limits = self._model, self._limits
        check_source(sequence.source, model)
        sequence.limit_target(model.max_target_tokens)
        if sequence.options is not self._checked:
            self._check_options(sequence.options)
            self._checked, self._row_candidates = sequence.options, self._candidates(sequence.options)
        tokens, longest = sequence.source_tokens, sequence.longest
        alone = Usage(1, tokens, tokens, longest, longest).slots(sequence.width, self._runtime.pads)
        if not alone.fit(self._slots):
            raise InvalidRequest(
                f"beam_size={sequence.width} with max_length={sequence.options.max_length} needs more cache than this "
                f"server has ({self._slots.own} token positions); ask for less"
            )
        slots = sequence.width * sequence.reserved + sequence.source_tokens
        options, of_row = sequence.options, self._row_candidates
        if options.repetition_penalty != 1.0 or options.no_repeat_ngram_size == 1:
            of_row += sequence.reserved  # a repeated token may drop out of the candidates, or become a worse one
        sequence.candidates, sequence.takes_turns = sequence.width * of_row, of_row > limits.row_candidates
        sequence.is_large = sequence.takes_turns or sequence.width > limits.small_rows or slots > limits.small_slots

    def _candidates(self, options: DecodingOptions) -> int:
        """How many next tokens of a row a step considers: its work besides that of the model."""
        if options.sampling:
            return options.top_k or self._model.choices
        phrases = sum(map(len, options.must_occur))
        bad_words = sum(len(word) == 1 for word in options.bad_words)
        return 2 * options.beam_size + bad_words + phrases

    def _check_options(self, options: DecodingOptions) -> None:
        widest, most = min(self._limits.max_beam_size, self._limits.max_rows), self._runtime.max_candidates
        if options.beam_size > widest:
            raise InvalidRequest(f"beam_size={options.beam_size} is more than this server allows ({widest})")
        check_tokens(options, self._model.target_vocabulary)
        if options.must_occur and not self._runtime.can_score_tokens:
            raise InvalidRequest(
                "this bundle's decoder can't enforce terms, because its graphs are older than glossaries; export the "
                "checkpoint again"
            )
        if most is None:
            return
        banned = sum(len(word) == 1 for word in options.bad_words)
        own = (options.top_k or self._model.choices) if options.sampling else 2 * options.beam_size
        if own + banned + (options.min_length > 0) > most:
            raise InvalidRequest(
                f"beam_size={options.beam_size}, top_k={options.top_k} and {banned} bad words need more than the {most} "
                "best tokens that this model gives at a step"
            )
