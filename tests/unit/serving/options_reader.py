"""A reader of request options for a small model and small limits."""

from __future__ import annotations

import dataclasses
import json

from fake_bundle import MANIFEST

from dragoman.bundle.languages import language_resolver
from dragoman.bundle.manifest import Dimensions, ModelCard
from dragoman.search.options import DecodingOptions
from dragoman.serving.process.options import OptionsReader, RequestOptions
from dragoman.wire import Limits

LIMITS = Limits(max_texts=3, max_text_bytes=100, max_request_bytes=250, max_options_bytes=8192)
DIMENSIONS = Dimensions(
    d_model=16,
    heads=2,
    head_dim=8,
    encoder_layers=1,
    decoder_layers=1,
    source_vocabulary=50,
    target_vocabulary=50,
    max_source_tokens=64,
    max_target_tokens=128,
)
DEFAULTS = DecodingOptions(beam_size=4, length_penalty=0.6)
PAIR = language_resolver(dataclasses.replace(MANIFEST, model=ModelCard("en-de", "MarianMTModel", 1, "en", "de")))
READER = OptionsReader(DIMENSIONS, DEFAULTS, LIMITS, PAIR)


def read(options: object, reader: OptionsReader = READER) -> RequestOptions:
    return reader.read(json.dumps(options).encode())
