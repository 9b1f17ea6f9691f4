"""The graphs for CUDA and TensorRT, run on a CPU: they must generate the same tokens as the native graphs."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnxruntime
import pytest

from client_driven import client_driven
from dragoman.bundle.integrity import record_file
from dragoman.bundle.manifest import MANIFEST_NAME, SCHEMA_VERSION, Manifest, Precision
from dragoman.errors import ServeError
from dragoman.search import DecodingOptions, Hypothesis
from dragoman.serving.engine import EngineLimits
from dragoman.serving.in_process import LoadedModel, open_model
from dragoman.serving.runtime.opening import open_runtime
from dragoman.serving.runtime.settings import RuntimeSettings
from exported_graphs import Exported

REFERENCE_MODEL = Path(__file__).resolve().parents[2] / "models" / "tatoeba-en-de"
ONE_THREAD = RuntimeSettings(threads=1)
CROWDED = EngineLimits(max_rows=12, max_beam_size=4, encode_tokens_per_step=12)
"""So few rows that requests come and go at nearly every step."""

TEXTS = [
    "Where is the station?",
    "I love you.",
    "If it rains tomorrow, we will stay at home and read.",
    "Tom has never been there before.",
    "Could you tell me how to get to the nearest post office, please?",
    "It is raining.",
    "The children were playing in the garden when their mother called them for dinner.",
    "Nobody knows what will happen.",
    "Help me.",
    "Although he was tired, he kept working until late at night.",
]
OPTIONS = {
    "greedy": DecodingOptions(max_length=40, bad_words=((8000,),)),
    "beam 4": DecodingOptions(beam_size=4, num_hypotheses=4, max_length=40, bad_words=((8000,),)),
    "beam 3, prefix": DecodingOptions(beam_size=3, max_length=20, prefix=(7, 8), no_repeat_ngram_size=2),
}


def completed(exported: Exported, bundle: Path, precision: Precision) -> Path:
    """A bundle of the portable graphs, which are in `bundle` already."""
    read = exported.checkpoint
    for name, path in read.tokenizer_plan.copied.items():
        shutil.copyfile(path, bundle / name)
    files = {path.name: record_file(path) for path in bundle.iterdir()}
    facts = (read.card, read.dimensions, read.tokens, read.generation, read.tokenizer)
    graphs = tuple(graph for graph in exported.graphs if graph.lowering == "portable")
    manifest = Manifest(SCHEMA_VERSION, "test", *facts, precision, ("cuda",), graphs, files)
    (bundle / MANIFEST_NAME).write_text(manifest.to_json())
    return bundle


@pytest.fixture(scope="module")
def tuned(reference_bundle: Path) -> LoadedModel:
    return open_model(reference_bundle, ONE_THREAD)


@pytest.fixture(scope="module")
def sources(tuned: LoadedModel) -> list[tuple[int, ...]]:
    return [tuple(tuned.tokenizer.encode(text)) for text in TEXTS] * 2


@pytest.fixture(scope="module")
def portable(stock_bundle: Path) -> LoadedModel:
    return open_model(stock_bundle, ONE_THREAD, CROWDED)


def agree(ours: list[tuple[Hypothesis, ...]], expected: list[tuple[Hypothesis, ...]], within: float = 1e-4) -> None:
    for answer, wanted in zip(ours, expected, strict=True):
        assert [hypothesis.tokens for hypothesis in answer] == [hypothesis.tokens for hypothesis in wanted]
        assert [hypothesis.score for hypothesis in answer] == pytest.approx([h.score for h in wanted], abs=within)


@pytest.mark.parametrize("name", OPTIONS)
def test_sequences_that_join_and_leave_get_the_result_of_the_native_graphs(
    portable: LoadedModel, tuned: LoadedModel, sources: list[tuple[int, ...]], name: str
) -> None:
    agree(portable.decode(sources, OPTIONS[name]), tuned.decode(sources, OPTIONS[name]))


def test_a_client_that_runs_the_search_itself_gets_the_same(
    portable: LoadedModel, tuned: LoadedModel, sources: list[tuple[int, ...]]
) -> None:
    agree(client_driven(portable, sources[:5], OPTIONS["beam 4"]), tuned.decode(sources[:5], OPTIONS["beam 4"]))


@pytest.mark.parametrize("beam_size", [1, 3])
def test_fp16_caches_keep_sequences_apart_that_join_and_leave(tiny_fp16: Exported, tmp_path: Path, beam_size: int) -> None:
    bundle = completed(tiny_fp16, Path(shutil.copytree(tiny_fp16.directory, tmp_path / "bundle")), "fp16")
    model = open_model(bundle, ONE_THREAD, CROWDED)
    runtime = open_runtime(bundle, model.manifest, ONE_THREAD)
    assert runtime.layout.dtype == "float16"
    sources = [tuple(5 + (7 * number + place) % 40 for place in range(2 + number % 9)) for number in range(20)]
    options = DecodingOptions(beam_size=beam_size, max_length=12, no_repeat_ngram_size=1)  # else it repeats one word
    alone = [model.decode([source], options)[0] for source in sources]
    assert len({answer[0].tokens for answer in alone}) > 10, "or nothing could be mixed up"
    agree(model.decode(sources, options), alone, within=0.01)  # a wider batch may add up in another order


def test_a_missing_device_is_a_clear_error(stock_bundle: Path) -> None:
    with pytest.raises(ServeError, match="has no CUDAExecutionProvider"):
        open_model(stock_bundle, RuntimeSettings(device="cuda"))


def test_a_provider_that_gave_way_to_the_cpu_is_refused(stock_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As onnxruntime-gpu does where TensorRT's or CUDA's libraries are missing: it warns, and opens the graph without."""
    real = onnxruntime.InferenceSession
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr(
        onnxruntime, "InferenceSession", lambda *given, providers: real(*given, providers=["CPUExecutionProvider"])
    )
    with pytest.raises(ServeError, match="could not start CUDAExecutionProvider"):
        open_model(stock_bundle, RuntimeSettings(device="cuda"))
