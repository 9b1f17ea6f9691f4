"""Exported graphs against Hugging Face's MarianMTModel, token by token and logit by logit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from dragoman.bundle.manifest import Lowering, read_manifest
from dragoman.export.verification.exported import GraphModel
from dragoman.search.options import DecodingOptions
from exported_graphs import EACH_LOWERING, LOWERINGS, Exported, export, log_softmax
from forced_steps import STEPPERS, NativeStepper, PortableStepper, Workload, random_workload, worst_difference
from random_marian import REFERENCE_MODEL, write_marian

CLOSE = 1e-4


def hugging_face(directory: Path) -> nn.Module:
    from transformers import MarianMTModel

    return MarianMTModel.from_pretrained(directory).eval()


def hugging_face_logits(directory: Path, work: Workload) -> NDArray[np.float32]:
    """(rows, steps, vocabulary), with every source repeated for its rows and padding masked."""
    with torch.inference_mode():
        logits = hugging_face(directory)(
            input_ids=torch.from_numpy(work.sources.repeat(work.width, 0)),
            attention_mask=torch.from_numpy(work.mask.repeat(work.width, 0)),
            decoder_input_ids=torch.from_numpy(work.targets),
        ).logits
    return logits.numpy()


def assert_parity(stepper: PortableStepper | NativeStepper, work: Workload, expected: NDArray[np.float32]) -> None:
    for step, best in enumerate(stepper.run(work)):
        logits = expected[:, step]
        assert worst_difference(best, log_softmax(logits), logits) < CLOSE
        assert (best.tokens[:, 0] == logits.argmax(-1)).all()


MODELS: dict[str, dict[str, object]] = {
    "odd sizes, unequal depth, unshared embeddings": {
        "d_model": 15,
        "encoder_attention_heads": 5,
        "decoder_attention_heads": 3,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_ffn_dim": 17,
        "decoder_ffn_dim": 31,
        "vocab_size": 71,
        "decoder_vocab_size": 67,
        "share_encoder_decoder_embeddings": False,
        "activation_function": "gelu",
    },
    "58k vocabulary, untied projection": {
        "vocab_size": 58101,
        "tie_word_embeddings": False,
        "activation_function": "relu",
        "scale_embedding": False,
    },
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    directory = tmp_path_factory.mktemp("parity")
    checkpoint = write_marian(directory / "model", **MODELS[request.param])
    return export(directory / "bundle", checkpoint, LOWERINGS)


@pytest.fixture(scope="module")
def work(model: Exported) -> Workload:
    config = model.checkpoint.config
    return random_workload(config.source_vocabulary, config.target_vocabulary, model.checkpoint.tokens.decoder_start)


@pytest.fixture(scope="module")
def expected(model: Exported, work: Workload) -> NDArray[np.float32]:
    return hugging_face_logits(model.checkpoint.source, work)


@pytest.mark.parametrize("lowering", EACH_LOWERING)
def test_random_models_compute_what_hugging_face_computes(
    model: Exported, work: Workload, expected: NDArray[np.float32], lowering: Lowering
) -> None:
    assert_parity(model.stepper(lowering), work, expected)


def test_random_models_gather_their_past(model: Exported, work: Workload, expected: NDArray[np.float32]) -> None:
    for rows, at, best in model.stepper("portable").run_shuffled(work):
        logits = expected[rows, at]
        assert worst_difference(best, log_softmax(logits), logits) < CLOSE


@pytest.mark.parametrize("lowering", EACH_LOWERING)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_random_models_generate_what_hugging_face_generates(
    model: Exported, work: Workload, lowering: Lowering, beam_size: int
) -> None:
    checkpoint = model.checkpoint
    start, end = checkpoint.tokens.decoder_start, checkpoint.tokens.eos
    generated = hugging_face(checkpoint.source).generate(
        torch.from_numpy(work.sources),
        attention_mask=torch.from_numpy(work.mask),
        num_beams=beam_size,
        max_length=13,
        bad_words_ids=[[start]],
        do_sample=False,
    )
    expected = [[token for token in row[1:] if token not in {start, end}] for row in generated.tolist()]
    sources = [row[:length].tolist() for row, length in zip(work.sources, work.lengths, strict=True)]
    options = DecodingOptions(beam_size=beam_size, max_length=12, bad_words=((start,),))
    graphs = GraphModel(
        model.directory,
        {role: model.graph(role, lowering) for role in ("encoder", "decoder", "forced")},
        checkpoint.tokens,
        checkpoint.dimensions,
    )
    answers = graphs.generate(sources, options)
    assert [[token for token in answer.tokens if token != end] for answer in answers] == expected


def test_the_reference_model_computes_what_hugging_face_computes(reference_bundle: Path) -> None:
    manifest = read_manifest(reference_bundle)
    work = random_workload(8001, 8001, start=8000, width=3)
    lowering = manifest.graphs[0].lowering
    stepper = STEPPERS[lowering](reference_bundle, manifest.graph("encoder", lowering), manifest.graph("decoder", lowering))
    assert_parity(stepper, work, hugging_face_logits(REFERENCE_MODEL, work))
