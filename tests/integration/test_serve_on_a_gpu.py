"""`dragoman serve --device tensorrt` whole, with the real Triton: only CUDA and TensorRT are the double's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.client import Translator
from dragoman.search import DecodingOptions
from dragoman.serving.engine import Sequence
from dragoman.serving.engine.forced_decoding import Forcing
from dragoman.serving.in_process import open_model
from dragoman.serving.runtime.settings import RuntimeSettings
from gpu_bundles import add_engines
from served import Server, launch

TESTS = Path(__file__).resolve().parents[1]
TEXTS = ["Where is the station?", "It is raining.", "Tom has never been there before, and he will not go."]


@pytest.fixture(scope="module")
def bundle(stock_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = Path(shutil.copytree(stock_bundle, tmp_path_factory.mktemp("gpu") / "en-de"))
    add_engines(copy)
    return copy


@pytest.fixture(scope="module")
def server(bundle: Path) -> Iterator[Server]:
    modules = os.pathsep.join([str(TESTS / "gpu_double" / "modules"), str(TESTS)])
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", modules)
        environment.setenv("DRAGOMAN_TEST_GPU_BUNDLE", str(bundle))
        started = Server.start([f"en-de={bundle}"], "--device", "tensorrt", "--max-batch", "16")
    with started as server:
        yield server


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_server_on_a_gpu_answers_as_the_cpu_does(server: Server, stock_bundle: Path, beam_size: int) -> None:
    model = open_model(stock_bundle, RuntimeSettings(threads=1))
    wanted = model.translate(TEXTS, DecodingOptions(beam_size=beam_size, max_length=40))
    caller = server.caller()
    try:
        assert caller.translate(TEXTS, beam_size=beam_size, max_length=40).best == wanted
    finally:
        caller.close()


def test_scores_alignments_and_markup_work_on_a_gpu(server: Server, stock_bundle: Path) -> None:
    """Through the engine of forced decoding."""
    source, target = TEXTS[0], "Wo ist der Bahnhof?"
    model = open_model(stock_bundle, RuntimeSettings(threads=1))
    ids = tuple(model.tokenizer.encode(source))
    forced = Sequence(ids, forcing=Forcing(targets=((*model.tokenizer.encode_target(target), model.manifest.tokens.eos),)))
    model.run([forced])
    with Translator(server.grpc) as translator:
        score = translator.score(source, target)
        aligned = translator.translate(source, alignment=True)
        page = translator.translate("Where is <b>the station</b>?", format="html")
    assert [token.log_probability for token in score.tokens] == pytest.approx(forced.forced[0].log_probs.tolist(), abs=1e-4)
    assert aligned.alignment
    assert page.text == "Wo ist <b>der Bahnhof</b>?"


def test_glossaries_are_enforced_on_a_gpu(server: Server) -> None:
    with Translator(server.grpc) as translator:
        answer = translator.translate(TEXTS[0], glossary={"station": "Haltestelle"}, beam_size=4)
    assert "Haltestelle" in answer.text


def test_a_search_in_the_client_finds_what_the_server_on_a_gpu_finds(server: Server) -> None:
    """Through sessions, whose caches stay on the GPU between two calls."""
    with Translator(server.grpc) as translator, Translator(server.grpc, decoding="client") as driving:
        for beam_size in (1, 4):
            wanted = translator.translate(TEXTS, beam_size=beam_size, max_length=40)
            found = driving.translate(TEXTS, beam_size=beam_size, max_length=40)
            assert [each.text for each in found] == [each.text for each in wanted]


def test_alternatives_and_the_omission_guard_work_on_a_gpu(server: Server) -> None:
    with Translator(server.grpc) as translator:
        plain = translator.translate(TEXTS[0])
        asked = translator.translate(TEXTS[0], alternatives_at=[0], num_alternatives=3)
        guarded = translator.translate(TEXTS[0], on_suspicion="retry")
    (place,) = asked.alternatives_at
    assert asked.text == guarded.text == plain.text
    assert place is not None
    assert plain.text[place.start : place.end] == place.text
    assert len(place.tokens) == 3
    (check,) = guarded.sentences
    assert check.coverage is not None
    assert 0 < check.coverage <= 1


def test_its_metrics_are_those_of_every_server(server: Server) -> None:
    assert any(name.startswith("dragoman_") and value > 0 for name, value in server.metrics().items())


def test_without_a_gpu_the_server_ends_with_the_reason(bundle: Path) -> None:
    """The real libraries, which are installed here and find no driver."""
    pytest.importorskip("tensorrt_rtx_bindings")
    runtime = pytest.importorskip("cuda.bindings.runtime")
    if int(runtime.cudaGetDeviceCount()[0]) == 0:
        pytest.skip("this machine has a GPU")
    process = launch(["--bundle", f"en-de={bundle}", "--device", "tensorrt"])
    try:
        said, log = process.communicate(timeout=600)
    finally:
        process.kill()
        process.wait(120)
    assert process.returncode == 1
    assert "needs an NVIDIA GPU" in said + log
    assert "--device cpu" in said + log
