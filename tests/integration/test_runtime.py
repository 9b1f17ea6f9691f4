"""The engine on the graphs of the reference model generates the tokens of Hugging Face, alone and in any batch."""

from __future__ import annotations

import dataclasses
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GenerationConfig, MarianMTModel

from client_driven import client_driven
from dragoman import native
from dragoman.bundle.manifest import read_manifest
from dragoman.errors import BundleError, ServeError
from dragoman.search import DecodingOptions, Hypothesis
from dragoman.serving.engine import EngineLimits, Finished, Progress, Sequence
from dragoman.serving.engine.slots import KVSlots
from dragoman.serving.in_process import LoadedModel, open_model
from dragoman.serving.runtime.opening import open_runtime
from dragoman.serving.runtime.settings import RuntimeSettings
from stepped_engine import check_invariants

REFERENCE_MODEL = Path(__file__).resolve().parents[2] / "models" / "tatoeba-en-de"
ONE_THREAD = RuntimeSettings(threads=1)

SENTENCES = """
Where is the station?|I love you.|Tom has never been there before.|She is two years older than you.|It is raining.
He can't have forgotten our meeting.|What time is it now?|The dog ran after the cat.|Mary bought a new car last week.|Why?
If it rains tomorrow, we will stay at home and read.|My father works in a large hospital in the middle of the city.|Yes.
Could you tell me how to get to the nearest post office, please?|I have lost my key.|The book that you gave me is boring.
Nobody knows what will happen.|He plays the piano very well.|We should have taken the other road.|I'm hungry!|Come here.
The children were playing in the garden when their mother called them for dinner.|Don't open the window.|How are you?
I would rather stay here than go with him.|There are a lot of people in this room.|She speaks three languages.|Stop.
Please give me a glass of water.|Tom and Mary have been married for almost thirty years.|This is the best day of my life.
It was so cold that we could not feel our fingers.|Who is that man?|He asked me a question.|You must not smoke in here.
Although he was tired, he kept working until late at night.|Is this seat taken?|I did not see anybody.|Help me.|Good night.
"""
TEXTS = [text for line in SENTENCES.strip().splitlines() for text in line.split("|")]


@pytest.fixture(scope="module")
def model(reference_bundle: Path) -> LoadedModel:
    return open_model(reference_bundle, ONE_THREAD)


@pytest.fixture(scope="module")
def original() -> MarianMTModel:
    torch.set_num_threads(1)
    return MarianMTModel.from_pretrained(REFERENCE_MODEL).eval()


@pytest.fixture(scope="module")
def sources(model: LoadedModel) -> list[tuple[int, ...]]:
    return [tuple(model.tokenizer.encode(text)) for text in TEXTS]


def generated(original: MarianMTModel, source: tuple[int, ...], beam_size: int) -> tuple[int, ...]:
    """Hugging Face's tokens, after the start token."""
    asked = GenerationConfig.from_pretrained(REFERENCE_MODEL, num_beams=beam_size, max_length=128)
    with torch.no_grad():
        (row,) = original.generate(torch.tensor([source]), generation_config=asked).tolist()
    return tuple(row[1:])


def asked(model: LoadedModel, **changes: object) -> DecodingOptions:
    return dataclasses.replace(model.manifest.generation, **changes)


def mixed(model: LoadedModel, sources: list[tuple[int, ...]]) -> list[Sequence]:
    """Greedy, beam 4, beam 2 and sampled sequences, shuffled."""
    kinds = [asked(model, beam_size=1), asked(model), asked(model, beam_size=2, num_hypotheses=2)]
    kinds.append(asked(model, beam_size=1, sampling=True, seed=5))
    requests = [Sequence(source, kinds[kind]) for kind in range(4) for source in sources]
    random.Random(3).shuffle(requests)
    return requests


@pytest.mark.parametrize("beam_size", [1, 4])
def test_one_batch_of_all_sentences_generates_what_hugging_face_generates(
    model: LoadedModel, original: MarianMTModel, sources: list[tuple[int, ...]], beam_size: int
) -> None:
    answers = model.decode(sources, asked(model, beam_size=beam_size))
    assert [answer[0].tokens for answer in answers] == [generated(original, source, beam_size) for source in sources]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_portable_graphs_generate_the_same(
    model: LoadedModel, stock_bundle: Path, sources: list[tuple[int, ...]], beam_size: int
) -> None:
    stock, options = open_model(stock_bundle, ONE_THREAD), asked(model, beam_size=beam_size)
    for answer, expected in zip(stock.decode(sources, options), model.decode(sources, options), strict=True):
        agree(answer, expected)


def test_portable_graphs_enforce_terms_as_native_ones_do(model: LoadedModel, stock_bundle: Path) -> None:
    stock = open_model(stock_bundle, ONE_THREAD)
    sources = [tuple(stock.tokenizer.encode(text)) for text in ("Where is the station?", "I saw two stations.")]
    term = tuple(stock.tokenizer.encode_target("HALTESTELLE"))
    for kind in ("phrases", "terms"):
        answers = [one.decode(sources, asked(one, beam_size=4, **{kind: ((term,),)})) for one in (model, stock)]
        for own, expected in zip(*answers, strict=True):
            agree(own, expected)
            text = stock.tokenizer.decode(own[0].tokens)
            assert re.search(r"\bHALTESTELLE\b" if kind == "terms" else "HALTESTELLE", text)


def test_result_is_independent_of_a_mixed_batch(model: LoadedModel, sources: list[tuple[int, ...]]) -> None:
    together, alone = mixed(model, sources[:20]), mixed(model, sources[:20])
    model.run(together)
    for sequence, expected in zip(together, alone, strict=True):
        model.run([expected])
        agree(sequence.hypotheses, expected.hypotheses)


def test_batches_in_worker_threads_generate_the_same(model: LoadedModel, reference_bundle: Path, sources: list) -> None:
    """Two calls at once, and the caller runs a search of its own beside them."""
    side_by_side = open_model(reference_bundle, RuntimeSettings(threads=2), EngineLimits(max_rows=32, max_beam_size=4))
    assert side_by_side.engine.wakeup_fd is not None
    requests, expectations = mixed(model, sources[:20]), mixed(model, sources[:20])
    side_by_side.run(requests)
    model.run(expectations)
    for sequence, expected in zip(requests, expectations, strict=True):
        agree(sequence.hypotheses, expected.hypotheses)
    options = asked(model, beam_size=3)
    others = mixed(model, sources[:20])
    for sequence in others:
        side_by_side.engine.submit(sequence)
    side_by_side.engine.step()
    driven = client_driven(side_by_side, sources[:6], options)
    for answer, expected in zip(driven, model.decode(sources[:6], options), strict=True):
        agree(answer, expected)
    while side_by_side.engine.busy:
        side_by_side.engine.step()
        side_by_side.engine.wait()
    check_invariants(side_by_side.engine)
    for sequence, expected in zip(others, expectations, strict=True):
        agree(sequence.hypotheses, expected.hypotheses)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_engine_short_of_slots_generates_the_same(
    model: LoadedModel, reference_bundle: Path, sources: list, threads: int
) -> None:
    limits = EngineLimits(
        max_rows=24, max_beam_size=4, target_tokens_per_row=8, source_tokens_per_row=16, encode_tokens_per_step=64
    )
    tight = open_model(reference_bundle, RuntimeSettings(threads=threads), limits)
    roomy = model.decode(sources, asked(model))
    # Drawn from nearly all tokens alike it hardly ever ends, and nobody can know that before.
    long = asked(model, beam_size=1, sampling=True, temperature=20.0, top_k=1000, seed=7, max_length=300)
    for answer, expected in zip(tight.decode(sources, asked(model)), roomy, strict=True):
        agree(answer, expected)
    for answer, expected in zip(tight.decode(sources[:12], long), model.decode(sources[:12], long), strict=True):
        agree(answer, expected)
    assert tight.engine.counters.preemptions > 0
    check_invariants(tight.engine)


def test_a_client_that_runs_the_search_itself_gets_the_same(model: LoadedModel, sources: list[tuple[int, ...]]) -> None:
    options = asked(model, beam_size=3, num_hypotheses=3)
    answers = client_driven(model, sources[:6], options)
    for answer, expected in zip(answers, model.decode(sources[:6], options), strict=True):
        agree(answer, expected)
    assert len(model.engine.sessions) == 0


@pytest.mark.parametrize("bundle", ["reference_bundle", "stock_bundle"])
def test_beams_in_caches_that_grow_and_give_memory_back_generate_the_same(
    request: pytest.FixtureRequest, bundle: str, sources: list[tuple[int, ...]]
) -> None:
    """Sequences join, leave and stand at different positions, and rows continue any other of their sequence."""
    directory: Path = request.getfixturevalue(bundle)
    runtime = open_runtime(directory, read_manifest(directory), ONE_THREAD)

    def decoded(resized: bool) -> list[list[float]]:
        draw, decoder = np.random.default_rng(2), runtime.decoder(3, 4)
        encoded = runtime.encode(sources[3:7])
        decoder.join(encoded, [0, 1, 2], [16] * 3)
        positions, log_probs = np.zeros(3, np.int64), []
        for step in range(9):
            if step == 4:  # the last sequence takes the number of the one that leaves, and another joins
                decoder.leave(0)
                decoder.join(encoded, [3], [16])
                positions = np.array([positions[2], positions[1], 0])
            if resized and step == 3:
                decoder.reserve(32)
            if resized and step == 6:
                decoder.release(16)
            tokens, parents = draw.integers(2, 8000, (3, 3)), draw.integers(0, 3, (3, 3))
            log_probs += decoder.step(tokens, positions, parents, 2).log_probs.tolist()
            positions = positions + 1
        return log_probs

    assert np.array(decoded(resized=True)) == pytest.approx(np.array(decoded(resized=False)), abs=1e-5)


def test_a_decoder_gives_the_memory_of_free_places_back(reference_bundle: Path, sources: list[tuple[int, ...]]) -> None:
    runtime = open_runtime(reference_bundle, read_manifest(reference_bundle), ONE_THREAD)
    decoder = runtime.decoder(2, 4)
    encoded = runtime.encode(sources[3:6])
    decoder.join(encoded, [0, 1, 2], [16, 16, 16])
    assert decoder.held_slots == KVSlots(3 * 2 * 16, int(encoded.lengths.sum()))
    decoder.leave(2)
    decoder.leave(0)
    decoder.release(16)
    assert decoder.held_slots == KVSlots(2 * 16, int(encoded.lengths[1]))


def test_a_bundle_with_custom_operators_needs_their_library(reference_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if native.ops_library() is None:
        pytest.skip("the kernels are not built: no C++ compiler")
    monkeypatch.setattr(native, "OPS_LIBRARY", Path("nowhere.so"))
    with pytest.raises(ServeError, match=r"not built on this machine: .*--lowering portable"):
        open_model(reference_bundle, ONE_THREAD)


def agree(ours: tuple[Hypothesis, ...], expected: tuple[Hypothesis, ...]) -> None:
    assert [hypothesis.tokens for hypothesis in ours] == [hypothesis.tokens for hypothesis in expected]
    assert [hypothesis.score for hypothesis in ours] == pytest.approx([h.score for h in expected], abs=1e-4)


def test_a_streaming_sequence_gets_its_answer_token_by_token(model: LoadedModel, sources: list[tuple[int, ...]]) -> None:
    model.engine.submit(Sequence(sources[11], asked(model), stream=True))
    pieces, answer = [], None
    while model.engine.busy:
        for event in model.engine.step():
            if isinstance(event, Finished):
                answer = event.sequence
            elif isinstance(event, Progress):
                pieces.append(event.tokens)
    assert answer is not None
    assert len(pieces) > 3
    assert tuple(token for piece in pieces for token in piece) == answer.hypotheses[0].tokens
    assert answer.timings.first_token_s is not None
    assert 0 <= answer.timings.queue_s <= answer.timings.first_token_s <= answer.timings.total_s


def test_a_tampered_graph_is_not_opened(reference_bundle: Path, tmp_path: Path) -> None:
    bundle = shutil.copytree(reference_bundle, tmp_path / "bundle")
    graph = read_manifest(bundle).graphs[-1].file
    content = bytearray((bundle / graph).read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / graph).write_bytes(content)
    with pytest.raises(BundleError, match="changed after the export"):
        open_model(bundle, ONE_THREAD)


def test_both_graphs_read_the_embedding_from_the_same_memory(reference_bundle: Path) -> None:
    manifest = read_manifest(reference_bundle)
    weights = {graph.role: set(graph.large_weights) for graph in manifest.graphs}
    shared = {tensor.name for tensor in weights["encoder"] & weights["decoder"]}
    # tied: it is the source embedding, the target embedding and the projection, in tiles as the operators read it
    assert {name.removesuffix(".tiles") for name in shared} == {"output.table"}
    (embedding,) = (tensor for tensor in weights["encoder"] if tensor.name in shared)
    before = mappings(reference_bundle, 4 * embedding.shape[0] * embedding.shape[1])
    runtime = open_runtime(reference_bundle, manifest, ONE_THREAD)
    after = mappings(reference_bundle, 4 * embedding.shape[0] * embedding.shape[1])
    assert runtime.encode([(5, 0)]).lengths.tolist() == [2]
    assert after - before == 1


def mappings(bundle: Path, least_bytes: int) -> int:
    """How often a file of the bundle, or so much of it, is mapped into this process."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    regions = [line.split()[0].split("-") for line in lines if str(bundle) in line]
    return sum(int(end, 16) - int(start, 16) >= least_bytes for start, end in regions)


def test_a_weight_outside_the_bundle_is_not_read(reference_bundle: Path) -> None:
    manifest = read_manifest(reference_bundle)
    elsewhere = tuple(
        dataclasses.replace(
            graph, large_weights=tuple(dataclasses.replace(tensor, file="../x") for tensor in graph.large_weights)
        )
        for graph in manifest.graphs
    )
    with pytest.raises(BundleError, match=r"lies in \.\./x, which is no file of the bundle"):
        open_runtime(reference_bundle, dataclasses.replace(manifest, graphs=elsewhere), ONE_THREAD)
