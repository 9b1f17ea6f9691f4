"""The original model, run by Hugging Face `generate`: the reference of an export."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from dragoman.bundle.languages import NO_LANGUAGE_TOKENS, LanguageTokens
from dragoman.bundle.manifest import SpecialTokens
from dragoman.errors import ExportError
from dragoman.export.verification.answers import FloatArray, Tokens
from dragoman.search.options import DecodingOptions

__all__ = ["HuggingFaceModel"]

_EARLY_STOPPING = {"heuristic": False, "first": True, "never": "never"}


class HuggingFaceModel:
    """The checkpoint as transformers runs it, in fp32 on the CPU, from the directory alone."""

    def __init__(self, checkpoint: Path, tokens: SpecialTokens) -> None:
        import transformers

        self.name = f"transformers {transformers.__version__} generate"
        self._tokens = tokens
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()  # the export shows its own
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about settings of the checkpoint that generate() is told explicitly
            try:
                load = transformers.AutoModelForSeq2SeqLM.from_pretrained
                model = load(checkpoint, local_files_only=True, dtype=torch.float32)
            except Exception as error:  # a file that nobody trusts may raise anything there
                raise _unchecked(f"transformers can't load {checkpoint}", error) from error
        self._model = model.eval()
        sizes = model.config  # its cache has a place for each layer of the encoder, too few for a deeper decoder
        self._caches = getattr(sizes, "num_decoder_layers", 0) <= sizes.num_hidden_layers

    @torch.inference_mode()
    def generate(self, sources: Sequence[Sequence[int]], options: DecodingOptions) -> list[Tokens]:
        """The best hypothesis of each source. Its score is not asked for: `generate` would keep all logits of all steps."""
        ids, mask = self._padded(sources)
        try:
            sequences = self._model.generate(ids, attention_mask=mask, generation_config=self._generation(options))
        except (ValueError, TypeError) as error:  # settings of the checkpoint that the original itself refuses
            raise _unchecked("transformers refuses the checkpoint's settings", error) from error
        start = 1 + len(options.prefix)
        return [self._trimmed(row[start:].tolist()) for row in sequences]

    @torch.inference_mode()
    def log_probs(
        self, source: Sequence[int], target: Sequence[int], language: LanguageTokens = NO_LANGUAGE_TOKENS
    ) -> FloatArray:
        """(target tokens, vocabulary): log-probabilities of every next token while `target` is forced."""
        ids, mask = self._padded([source])
        start = self._tokens.decoder_start if language.decoder_start is None else language.decoder_start
        decoder_ids = torch.tensor([[start, *target[:-1]]])
        logits = self._model(input_ids=ids, attention_mask=mask, decoder_input_ids=decoder_ids).logits
        result: FloatArray = logits[0].float().log_softmax(-1).numpy()
        return result

    def _padded(self, sources: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        longest = max(map(len, sources))
        ids = np.full((len(sources), longest), self._tokens.pad, np.int64)
        mask = np.zeros((len(sources), longest), np.int64)
        for row, source in enumerate(sources):
            ids[row, : len(source)], mask[row, : len(source)] = source, 1
        return torch.from_numpy(ids), torch.from_numpy(mask)

    def _trimmed(self, row: list[int]) -> Tokens:
        """Up to and with the first end token: what follows is padding."""
        ended = next((at for at, token in enumerate(row) if token in self._tokens.ends), len(row))
        return tuple(row[: ended + 1])

    def _generation(self, options: DecodingOptions) -> object:
        import transformers

        return transformers.GenerationConfig(
            num_beams=options.beam_size,
            do_sample=False,
            max_length=1 + len(options.prefix) + options.max_length,  # theirs counts the start token
            min_new_tokens=options.min_length or None,
            length_penalty=options.length_penalty,
            early_stopping=_EARLY_STOPPING[options.early_stopping],
            no_repeat_ngram_size=options.no_repeat_ngram_size,
            repetition_penalty=options.repetition_penalty,
            bad_words_ids=[list(word) for word in options.bad_words] or None,
            forced_bos_token_id=options.forced_bos,
            forced_eos_token_id=options.forced_eos,
            decoder_start_token_id=self._tokens.decoder_start if options.decoder_start is None else options.decoder_start,
            eos_token_id=list(self._tokens.ends),
            pad_token_id=self._tokens.pad,
            use_cache=self._caches,
        )


def _unchecked(cause: str, error: Exception) -> ExportError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    return ExportError(f"the export can't be checked, because {cause}: {reason}")
