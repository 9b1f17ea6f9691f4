"""Shortlists of target languages: the graphs generate what the model restricted to a language's tokens generates."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from bundled_tokenizer import bundled_tokenizer

from dragoman import native
from dragoman.bundle.languages import LanguageTokens
from dragoman.bundle.manifest import Precision
from dragoman.errors import UsageError
from dragoman.export.checkpoint import Checkpoint, read_checkpoint
from dragoman.export.lowering.native.shortlists import ListedRows
from dragoman.export.pipeline import ExportOptions
from dragoman.export.shortlist import check_size, parse_shortlists, read_shortlists
from dragoman.export.transformer import Transformer
from dragoman.export.verification.answers import IntArray
from dragoman.export.verification.decoding import TopTokens, decode
from dragoman.export.verification.eager import EagerModel, _EagerStepper
from dragoman.export.verification.exported import GraphModel
from exported_graphs import Exported, export
from random_families import FAMILIES
from random_marian import REFERENCE_MODEL

needs_operators = pytest.mark.skipif(native.ops_library() is None, reason="the custom operators are not built")

ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}
draw = np.random.default_rng(7)
COMMON = (2, 3, *range(4, 24))
LISTS = {
    "de": sorted({*COMMON, *draw.choice(400, 90, replace=False).tolist()}),
    "fr": sorted({*COMMON, *draw.choice(400, 150, replace=False).tolist()}),
    "pt": sorted({*COMMON, 30}),
}
SOURCES = [[*draw.integers(110, 250, length).tolist(), 2] for length in (3, 7, 12, 25)]


def graphs_of(exported: Exported) -> GraphModel:
    read = exported.checkpoint
    graphs = {role: exported.graph(role, "native") for role in ("encoder", "decoder", "forced")}
    return GraphModel(exported.directory, graphs, read.tokens, read.dimensions)  # type: ignore[arg-type]


@needs_operators
@pytest.mark.parametrize(
    ("family", "precision"), [("M2M100", "fp32"), ("M2M100", "fp16"), ("M2M100", "int8"), ("mT5", "fp32")]
)
def test_the_graphs_generate_what_the_restricted_model_generates(tmp_path: Path, family: str, precision: Precision) -> None:
    """Tied and untied output projections; lists that overlap; the whole vocabulary beside them."""
    shape = ONE_LAYER if family == "M2M100" else {"num_layers": 1, "num_decoder_layers": 1}
    directory = FAMILIES[family].write(tmp_path / "model", **shape)
    lists = {code: [token for token in tokens if token < 320] for code, tokens in LISTS.items()}
    graphs = graphs_of(export(tmp_path / "graphs", directory, ("native",), precision, shortlists=lists))
    read = read_checkpoint(directory)
    vocabulary = read.config.target_vocabulary
    whole: GraphModel | None = None  # in fp32 the torch module is what they are compared with
    for number, tokens in enumerate([None, *lists.values()]):
        language = LanguageTokens(shortlist=number)
        for beams in (1, 4):
            options = dataclasses.replace(read.generation, beam_size=beams, max_length=16, forced_bos=None)
            found = [answer.tokens for answer in graphs.generate(SOURCES, options, language)]
            assert [graphs.generate([source], options, language)[0].tokens for source in SOURCES] == found
            if precision == "fp32":
                listed = range(vocabulary) if tokens is None else tokens
                original = decode(
                    ListedStepper(read.model, listed), SOURCES, options, read.tokens, vocabulary, choices=len(listed)
                )
                assert found == [answer.tokens for answer in original]
            elif tokens is None:
                whole = whole or graphs_of(export(tmp_path / "whole", directory, ("native",), precision))
                assert found == [answer.tokens for answer in whole.generate(SOURCES, options)]
            allowed = set(range(vocabulary)) if tokens is None else set(tokens)
            assert {token for answer in found for token in answer} <= allowed
        target = [*COMMON[4:9], 30, 31, 2]
        scored = graphs.scored(SOURCES[1], target, language)
        assert np.isneginf(scored).tolist() == [tokens is not None and token not in tokens for token in target]
        if precision == "fp32":
            every = EagerModel(read.model, read.tokens).log_probs(SOURCES[1], target)
            kept = np.arange(every.shape[1]) if tokens is None else np.array(tokens)
            normaliser = np.log(np.exp(every[:, kept]).sum(1))
            expected = every[np.arange(len(target)), target] - normaliser
            sayable = np.isfinite(scored)
            np.testing.assert_allclose(scored[sayable], expected[sayable], atol=1e-4)


class ListedStepper:
    """The torch module, of whose logits only those of a list count."""

    def __init__(self, model: Transformer, listed: Sequence[int]) -> None:
        self._whole, self._listed = _EagerStepper(model), torch.tensor(listed)

    def start(self, sources: Sequence[Sequence[int]], shortlist: int = 0) -> None:
        self._whole.start(sources, shortlist)

    def step(self, tokens: IntArray, positions: IntArray, groups: IntArray, parents: IntArray, candidates: int) -> TopTokens:
        logits = self._whole.logits(tokens, positions, groups, parents)[:, self._listed]
        best = logits.log_softmax(-1).topk(min(candidates, len(self._listed)), dim=-1)
        return TopTokens(self._listed[best.indices].numpy(), best.values.numpy(), logits.gather(-1, best.indices).numpy())


def test_a_table_holds_the_vocabulary_then_what_lists_share_then_what_each_has() -> None:
    rows = ListedRows.of_languages(20, [[1, 5, 9], [1, 5, 7, 8], [0, 1, 5]])
    held = [[rows.tokens[begin:end].tolist() for begin, end in one.reshape(2, 2)] for one in rows.ranges]
    assert held == [[list(range(20)), []], [[1, 5], [9]], [[1, 5], [7, 8]], [[1, 5], [0]]]
    assert (rows.ranges[:, ::2] % 16 == 0).all()
    assert len(rows.tokens) == 32 + 16 * 4
    alone = ListedRows.of_languages(20, [[3, 4]])
    assert alone.tokens[slice(*alone.ranges[1, 2:])].tolist() == [3, 4]


def test_a_list_is_given_for_all_languages_or_for_single_ones() -> None:
    assert parse_shortlists(["news.de"]) == {None: Path("news.de")}
    assert parse_shortlists(["de=a=b.txt", "zh-Hans=c"]) == {"de": Path("a=b.txt"), "zh-Hans": Path("c")}
    assert parse_shortlists(["./de=a.txt"]) == {None: Path("./de=a.txt")}
    assert parse_shortlists([]) == {}
    for values, why in ((["a", "b"], "twice"), (["de=a", "de=b"], "twice for de"), (["a", "de=b"], "both were given")):
        with pytest.raises(UsageError, match=why):
            parse_shortlists(values)


def test_lists_that_are_larger_than_the_vocabulary_together_are_refused() -> None:
    check_size({"de": range(60), "fr": range(10, 70)}, 100)
    with pytest.raises(UsageError, match=r"110 tokens together, more than the vocabulary \(100\)"):
        check_size({"de": range(60), "fr": range(40, 100), "it": range(50, 60)}, 100)


def read_of(checkpoint: Checkpoint, directory: Path, texts: dict[str, str]) -> dict[str | None, tuple[int, ...]]:
    tokenizer = bundled_tokenizer(checkpoint, directory)
    for code, text in texts.items():
        (directory / code).write_text(text, encoding="utf-8")
    return read_shortlists({code: directory / code for code in texts}, tokenizer, checkpoint)


def test_a_list_is_by_the_models_own_code_and_has_the_languages_first_token(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(FAMILIES["NLLB"].write(tmp_path / "model", **ONE_LAYER))
    (tmp_path / "lists").mkdir()
    lists = read_of(checkpoint, tmp_path / "lists", {"de": "Where is it?", "fra_Latn": "Tom is here."})
    languages = checkpoint.languages
    assert languages is not None
    assert list(lists) == ["deu_Latn", "fra_Latn"]
    assert languages.tokens["deu_Latn"] in lists["deu_Latn"]
    assert languages.tokens["deu_Latn"] not in lists["fra_Latn"]
    assert {checkpoint.tokens.eos, checkpoint.tokens.unknown} <= set(lists["fra_Latn"])
    assert list(lists["deu_Latn"]) == sorted(set(lists["deu_Latn"]))
    for texts, why in (
        ({"de": "a", "deu_Latn": "b"}, r"this language \(deu_Latn\) has a list already"),
        ({"tlh": "a"}, "not a target language of this model; it has"),
        ({"zh": "a"}, "could be several languages"),
        ({"de": "\n"}, "is empty"),
    ):
        with pytest.raises(UsageError, match=why):
            read_of(checkpoint, tmp_path / "lists", texts)


def test_the_only_language_of_a_model_is_all_languages(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(REFERENCE_MODEL)
    assert set(read_of(checkpoint, tmp_path, {"de": "Wo ist der Bahnhof?"})) == {None}
    with pytest.raises(UsageError, match="not a target language of this model; it has de"):
        read_of(checkpoint, tmp_path, {"fr": "Où est la gare ?"})


def test_a_model_without_languages_takes_one_list_only(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(FAMILIES["BART"].write(tmp_path / "model", **ONE_LAYER))
    with pytest.raises(UsageError, match="does not list its languages"):
        read_of(checkpoint, tmp_path, {"de": "a"})


def test_graphs_of_standard_operators_have_no_lists_of_languages(tmp_path: Path) -> None:
    for more in ({"lowering": "portable"}, {"targets": ("cpu", "cuda")}):
        with pytest.raises(UsageError, match="need the custom operators"):
            ExportOptions(tmp_path, tmp_path / "bundle", shortlists={"de": tmp_path / "a"}, **more)  # type: ignore[arg-type]
