"""A trained BART: from the letters of a word to its pronunciation, token for token as Hugging Face `generate`."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from dragoman import native
from dragoman.bundle.manifest import Lowering
from dragoman.export.verification.exported import GraphModel
from dragoman.export.verification.original import HuggingFaceModel
from exported_graphs import Exported, export
from shared_files import shared_checkpoint

WORDS = ("hello", "transformer", "a", "Wednesday", "pneumonoultramicroscopic", "don't", "queue", "rhythm")
KNOWN = {"hello": "hˈɛlO", "transformer": "tɹænsfˈɔɹməɹ"}
LOWERINGS: tuple[Lowering, ...] = ("native", "portable") if native.ops_library() is not None else ("portable",)


@dataclasses.dataclass(frozen=True)
class Trained:
    directory: Path
    exported: Exported
    graphs: dict[str, GraphModel]

    def source(self, word: str) -> list[int]:
        letters = json.loads((self.directory / "config.json").read_text())["grapheme_chars"]
        return [1, *(letters.index(letter) for letter in word), 2]

    def sounds(self, tokens: tuple[int, ...]) -> str:
        known = json.loads((self.directory / "config.json").read_text())["phoneme_chars"]
        return "".join(known[token] for token in tokens if token > 3)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    original = shared_checkpoint("bart-g2p")
    directory = tmp_path_factory.mktemp("checkpoints") / "bart"
    shutil.copytree(original, directory, copy_function=shutil.copyfile)
    # It has no tokenizer, and the test needs none: pieces that are never looked up.
    size = json.loads((directory / "config.json").read_text())["vocab_size"]
    (directory / "vocab.json").write_text(json.dumps({f"piece{at}": at for at in range(size)}))
    (directory / "merges.txt").write_text("")
    exported = export(tmp_path_factory.mktemp("graphs") / "bart", directory, LOWERINGS)
    read = exported.checkpoint
    graphs = {
        name: GraphModel(
            exported.directory,
            {role: exported.graph(role, name) for role in ("encoder", "decoder", "forced")},
            read.tokens,
            read.dimensions,
        )
        for name in LOWERINGS
    }
    return Trained(directory, exported, graphs)


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("beams", [1, 5])
def test_a_trained_bart_pronounces_words_as_in_hugging_face(trained: Trained, beams: int, lowering: Lowering) -> None:
    checkpoint, graphs = trained.exported.checkpoint, trained.graphs[lowering]
    options = dataclasses.replace(checkpoint.generation, beam_size=beams, max_length=40)
    batch = [trained.source(word) for word in WORDS]
    expected = HuggingFaceModel(trained.directory, checkpoint.tokens).generate(batch, options)
    assert [answer.tokens for answer in graphs.generate(batch, options)] == expected
    assert [graphs.generate([source], options)[0].tokens for source in batch] == expected
    if beams == 1:
        assert {word: trained.sounds(expected[WORDS.index(word)]) for word in KNOWN} == KNOWN
