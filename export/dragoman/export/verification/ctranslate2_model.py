"""A CTranslate2 model run by CTranslate2 itself in float32: the reference of its export, if CTranslate2 is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dragoman.bundle.languages import NO_LANGUAGE_TOKENS, LanguageTokens
from dragoman.bundle.manifest import SpecialTokens
from dragoman.errors import ExportError
from dragoman.export.checkpoint.formats.ctranslate2.vocabulary import read_vocabularies
from dragoman.export.transformer import TransformerConfig
from dragoman.export.verification.answers import FloatArray, Tokens
from dragoman.search.options import DecodingOptions

__all__ = ["CTranslate2Original"]


class CTranslate2Original:
    """Ids become tokens on the way in, and tokens ids on the way out: CTranslate2 knows no ids."""

    def __init__(self, directory: Path, config: TransformerConfig, tokens: SpecialTokens) -> None:
        import ctranslate2

        self.name = f"CTranslate2 {ctranslate2.__version__} in float32"
        self._rows, self._tokens = config.target_vocabulary, tokens
        try:
            self._translator = ctranslate2.Translator(str(directory), compute_type="float32", inter_threads=1)
        except (RuntimeError, ValueError) as error:
            raise _unchecked(error) from error
        extra = int(tokens.decoder_start == config.target_vocabulary - 1 and tokens.pad == tokens.decoder_start)
        self._words = read_vocabularies(
            directory, config.source_vocabulary - (extra if config.shared_embeddings else 0), self._rows - extra
        )
        self._ids = self._words.target_ids

    def generate(self, sources: Sequence[Sequence[int]], options: DecodingOptions) -> list[Tokens]:
        """The end token counts in a length, as it does everywhere else in dragoman."""
        start = self._prefix(options)
        try:
            results = self._translator.translate_batch(
                [self._source(source) for source in sources],
                [start] * len(sources) if start else None,
                beam_size=options.beam_size,
                length_penalty=options.length_penalty,
                repetition_penalty=options.repetition_penalty,
                no_repeat_ngram_size=options.no_repeat_ngram_size,
                suppress_sequences=[self._target(word) for word in options.bad_words] or None,
                max_input_length=0,
                max_decoding_length=options.max_length + len(options.prefix),
                min_decoding_length=max(0, options.min_length - 1),
                return_end_token=True,
            )
        except (RuntimeError, ValueError) as error:
            raise _unchecked(error) from error
        skipped = len(options.prefix)  # a start token is not in the answer
        return [tuple(self._ids[word] for word in result.hypotheses[0][skipped:]) for result in results]

    def log_probs(
        self, source: Sequence[int], target: Sequence[int], language: LanguageTokens = NO_LANGUAGE_TOKENS
    ) -> FloatArray:
        """The logits of every step while all but the last token are a prefix; a row that is only ours has none."""
        start = self._prefix(DecodingOptions(decoder_start=language.decoder_start))
        result = self._translator.translate_batch(
            [self._source(source)],
            [[*start, *self._target(target[:-1])]] if start or len(target) > 1 else None,
            beam_size=1,
            max_input_length=0,
            max_decoding_length=len(target),
            min_decoding_length=0,
            return_end_token=True,
            return_logits_vocab=True,
        )[0]
        logits = np.stack([np.array(step, np.float32) for step in result.logits[0]])[-len(target) :]
        shifted = logits - logits.max(axis=1, keepdims=True)
        known: FloatArray = shifted - np.log(np.exp(shifted.astype(np.float64)).sum(axis=1, keepdims=True)).astype(
            np.float32
        )
        whole = np.full((len(target), self._rows), -np.inf, np.float32)
        whole[:, : known.shape[1]] = known
        return whole

    def _prefix(self, options: DecodingOptions) -> list[str]:
        """Without a start token of its own, the model starts from the first token of the prefix."""
        start = self._tokens.decoder_start if options.decoder_start is None else options.decoder_start
        forced = (options.forced_bos,) if options.forced_bos is not None else ()
        return self._target([*((start,) if self._words.start is None else ()), *options.prefix, *forced])

    def _source(self, ids: Sequence[int]) -> list[str]:
        """Without the tokens that CTranslate2 adds by itself."""
        begin, end = int(self._words.adds_bos), len(ids) - int(self._words.adds_eos)
        return [self._words.source[index] for index in ids[begin:end]]

    def _target(self, ids: Sequence[int]) -> list[str]:
        return [self._words.target[index] for index in ids]


def _unchecked(error: Exception) -> ExportError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    return ExportError(f"the export can't be checked, because CTranslate2 refuses the model: {reason}")
