"""The graphs of forced decoding: alignments, targets in pieces, shortlists, and the choice of heads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from bundled_tokenizer import bundled_tokenizer

from dragoman import native
from dragoman.bundle.manifest import Alignment, Lowering, Precision
from dragoman.export.calibration import alignment
from dragoman.export.calibration.alignment import find_alignment
from dragoman.export.checkpoint import read_checkpoint
from dragoman.export.transformer.forced import aligning_heads
from dragoman.export.verification.corpus import bundled_corpus
from dragoman.export.verification.forced import ForcedModel
from dragoman.export.verification.sessions import opened
from exported_graphs import Exported, export
from random_families import FAMILIES
from random_marian import REFERENCE_MODEL, write_marian

needs_operators = pytest.mark.skipif(native.ops_library() is None, reason="the custom operators are not built")
LOWERINGS = [pytest.param("native", marks=needs_operators), "portable"]
HEADS = ((0, 1), (1, 0), (1, 2))
SOURCE, TARGET = [5, 9, 11, 6, 120, 3, 2], [7, 130, 8, 12, 25, 4, 2]


@pytest.fixture(scope="module", params=["NLLB", "T5 1.1"])
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FAMILIES[request.param].write(tmp_path_factory.mktemp("family") / "model")


@pytest.fixture(scope="module", params=LOWERINGS)
def exported(family: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The family's graphs of one lowering."""
    return export(tmp_path_factory.mktemp("forced") / "graphs", family, (request.param,), alignment_heads=HEADS)


def test_alignments_are_the_average_attention_of_the_chosen_heads(family: Path, exported: Exported) -> None:
    forced = model_of(exported)(SOURCE, TARGET)
    load = transformers.AutoModelForSeq2SeqLM.from_pretrained
    original = load(family, local_files_only=True, dtype=torch.float32, attn_implementation="eager").eval()
    fed = torch.tensor([[exported.checkpoint.tokens.decoder_start, *TARGET[:-1]]])
    with torch.inference_mode():
        said = original(input_ids=torch.tensor([SOURCE]), decoder_input_ids=fed, output_attentions=True)
    expected = sum(said.cross_attentions[layer][0, head].numpy() for layer, head in HEADS) / len(HEADS)
    np.testing.assert_allclose(forced.alignment, expected, atol=1e-5)


def test_the_sum_of_log_probabilities_is_the_loss_of_hugging_face(family: Path, exported: Exported) -> None:
    original = transformers.AutoModelForSeq2SeqLM.from_pretrained(family, local_files_only=True, dtype=torch.float32).eval()
    original.config.decoder_start_token_id = exported.checkpoint.tokens.decoder_start
    fed = torch.tensor([[exported.checkpoint.tokens.decoder_start, *TARGET[:-1]]])
    with torch.inference_mode():
        loss = original(input_ids=torch.tensor([SOURCE]), decoder_input_ids=fed, labels=torch.tensor([TARGET])).loss.item()
    forced = model_of(exported)(SOURCE, TARGET)
    assert -float(forced.log_probs.mean()) == pytest.approx(loss, abs=1e-4)


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_a_token_outside_of_the_shortlist_has_no_probability(tmp_path: Path, lowering: Lowering) -> None:
    checkpoint = write_marian(tmp_path / "model")
    shortlist = [0, 4, 7, 8, 12, 25, 30, 52]
    exported = export(tmp_path / "graphs", checkpoint, (lowering,), shortlist=shortlist)
    forced = model_of(exported)([5, 9, 11, 0], [7, 9, 8, 0])
    assert np.isneginf(forced.log_probs).tolist() == [False, True, False, False]
    assert set(forced.best_tokens.ravel().tolist()) <= set(shortlist)


@needs_operators
def test_alignments_need_no_log_probabilities(tiny_fp32: Exported) -> None:
    model = model_of(tiny_fp32, "native")
    scored, aligned = model([5, 9, 11, 0], [7, 9, 8, 0]), model([5, 9, 11, 0], [7, 9, 8, 0], scored=0)
    assert (scored.log_probs.shape, aligned.log_probs.shape, aligned.best_tokens.shape[0]) == ((4,), (0,), 0)
    np.testing.assert_array_equal(aligned.alignment, scored.alignment)


@needs_operators
@pytest.mark.parametrize(("name", "precision"), [("BART", "fp32"), ("NLLB", "int8")])  # norms behind the sums, and before
def test_alignments_need_no_layers_behind_their_heads(tmp_path: Path, name: str, precision: Precision) -> None:
    exported = export(
        tmp_path / "graphs", FAMILIES[name].write(tmp_path / "model"), ("native",), precision, alignment_heads=((0, 1),)
    )
    graph, target = exported.graph("forced", "native"), np.array([7, 9, 8, 12, 25, 4], np.int64)
    session, dice = opened(exported.directory / graph.file), np.random.default_rng(5)
    shapes = {spec.name: spec.shape for spec in graph.inputs}
    memories = {
        name: dice.standard_normal((4, int(shape[1])), np.float32)
        for name, shape in shapes.items()
        if name.startswith("cross_")
    }
    layers, _, slot = shapes["self_cache"]
    alignments, caches = [], []
    for targets in (target, target[:0]):
        cache = np.zeros((int(layers), len(target), int(slot)), np.float32)
        given = {
            "tokens": target,
            "targets": targets,
            "positions": np.arange(len(target), dtype=np.int32),
            "self_cache": cache,
            "candidates": np.ones(1, np.int64),
        }
        alignments.append(session.run(["alignment"], {**given, **memories})[0])
        caches.append(cache)
    np.testing.assert_array_equal(*alignments)
    np.testing.assert_array_equal(caches[0][0], caches[1][0])
    assert caches[0][1].any(-1).all()
    assert not caches[1][1:].any()


@needs_operators
def test_a_second_graph_of_the_decoder_adds_no_weights(tiny_fp32: Exported) -> None:
    encoder, decoder, forced = (
        set(tiny_fp32.graph(role, "native").large_weights) for role in ("encoder", "decoder", "forced")
    )
    assert decoder == forced
    assert len({tensor.offset for tensor in encoder | decoder | forced}) == len(decoder | encoder)


def test_heads_that_align_are_found_on_real_text(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(REFERENCE_MODEL)
    tokenizer = bundled_tokenizer(checkpoint, tmp_path)
    sources = [tokenizer.encode(text) for text in bundled_corpus().sentences[:12]]
    silent = frozenset({checkpoint.tokens.eos})
    found = find_alignment(
        checkpoint.model, checkpoint.tokens, sources, checkpoint.generation, silent=silent, advance=lambda _share: None
    )
    assert found.agreement is not None
    assert found.agreement > 0.8
    assert found.links >= 20


def test_heads_are_the_same_where_a_large_vocabulary_is_scored_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = read_checkpoint(REFERENCE_MODEL)
    tokenizer = bundled_tokenizer(checkpoint, tmp_path)
    sources = [tokenizer.encode(text) for text in bundled_corpus().sentences[:4]]
    sizes: list[int] = []
    checkpoint.model.output.register_forward_pre_hook(lambda _module, given: sizes.append(len(given[0])))

    def found() -> Alignment:
        silent = frozenset({checkpoint.tokens.eos})
        given = (checkpoint.model, checkpoint.tokens, sources, checkpoint.generation)
        return find_alignment(*given, silent=silent, advance=lambda _share: None)

    whole = found()
    assert max(sizes) > 50
    sizes.clear()
    monkeypatch.setattr(alignment, "LOGITS_BYTES", 4 * checkpoint.model.choices * 7)
    assert found() == whole
    assert max(sizes) == 7


def test_without_text_the_heads_of_the_layer_in_the_middle_align() -> None:
    checkpoint = read_checkpoint(REFERENCE_MODEL)
    found = find_alignment(
        checkpoint.model, checkpoint.tokens, [], checkpoint.generation, silent=frozenset(), advance=lambda _share: None
    )
    assert found.agreement is None
    assert found.heads == aligning_heads(checkpoint.model.config) == tuple((1, head) for head in range(8))


def model_of(exported: Exported, lowering: Lowering | None = None) -> ForcedModel:
    """Of the graphs of `lowering`; there may be only one."""
    lowering = lowering or exported.graphs[0].lowering
    encoder, forced = exported.graph("encoder", lowering), exported.graph("forced", lowering)
    return ForcedModel(exported.directory, encoder, forced, exported.checkpoint.tokens)
