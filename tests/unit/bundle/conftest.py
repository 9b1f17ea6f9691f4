from __future__ import annotations

import pytest

from dragoman.bundle.manifest import (
    SCHEMA_VERSION,
    Dimensions,
    FileRecord,
    Graph,
    Manifest,
    ModelCard,
    SpecialTokens,
    TensorSpec,
    TokenizerFiles,
    Verification,
    VerificationCase,
)
from dragoman.search.options import DecodingOptions


@pytest.fixture
def manifest() -> Manifest:
    spec = TensorSpec("tokens", "int64", ("groups", "width"))
    case = VerificationCase("greedy, batch 1", "native", 3, 3, 40, 1e-6, bleu=100.0, chrf=100.0)
    return Manifest(
        schema_version=SCHEMA_VERSION,
        dragoman_version="0.1.0",
        model=ModelCard("tiny", "marian", 1234, "en", "de"),
        dimensions=Dimensions(16, 2, 8, 1, 1, 32, 32, 64, 64),
        tokens=SpecialTokens(pad=31, eos=0, decoder_start=31, unknown=1),
        generation=DecodingOptions(beam_size=4, bad_words=((31,),), forced_eos=0, max_length=64),
        tokenizer=TokenizerFiles("marian", {"source_model": "source.spm"}),
        precision="fp32",
        targets=("cpu",),
        graphs=(Graph("decoder", "native", "decoder.native.onnx", 18, (spec,), (spec,)),),
        files={"decoder.native.onnx": FileRecord("0" * 64, 3), "source.spm": FileRecord("1" * 64, 5)},
        verification=Verification("transformers", "original", 0.5, 0.0, (case,)),
    )
