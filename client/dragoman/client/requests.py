"""The requests of `translate`, `translate_stream` and client-driven decoding, for both translators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tritonclient.grpc import service_pb2

from dragoman.client.messages import Message, infer_request
from dragoman.client.options import CheckedOptions, encode_text
from dragoman.errors import InvalidRequest
from dragoman.wire import TRANSLATE, TRANSLATE_STREAM, TritonModel

__all__ = ["READY_REQUEST", "Build", "check_texts", "score_builder", "stream_builder", "translate_builder"]

READY_REQUEST = service_pb2.ModelReadyRequest(name=TRANSLATE.name)

Build = Callable[[float], Message]
"""Makes the ModelInferRequest of an attempt that has so many seconds left."""


def check_texts(texts: object, method: str = "translate") -> list[str]:
    """The texts of a call as a list; TypeError for anything that is not text."""
    if isinstance(texts, (bytes, bytearray, Mapping)) or not isinstance(texts, Sequence):
        raise TypeError(f"{method}() takes a str or a list of str, not {type(texts).__name__}")
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise TypeError(f"text {number} is {type(text).__name__}, not str; decode bytes first")
    return list(texts)


def translate_builder(texts: Sequence[str], options: CheckedOptions) -> Build:
    """Makes the `translate` request of an attempt."""
    return _builder(TRANSLATE, texts, options)


def stream_builder(text: str, options: CheckedOptions) -> Build:
    """Makes the `translate_stream` request of an attempt."""
    if not isinstance(text, str):
        raise TypeError(f"stream() takes one str, not {type(text).__name__}")
    if options.sent.get("num_hypotheses", 1) != 1:
        raise InvalidRequest("a stream has one hypothesis; use translate() for num_hypotheses")
    return _builder(TRANSLATE_STREAM, [text], options)


def score_builder(pairs: Sequence[tuple[str, str]], options: CheckedOptions) -> Build:
    """Makes the `translate` request of an attempt that scores targets of sources."""
    targets = [encode_text(target, "the target") for _, target in pairs]
    return _builder(TRANSLATE, [source for source, _ in pairs], options, targets)


def _builder(model: TritonModel, texts: Sequence[str], options: CheckedOptions, targets: list[bytes] | None = None) -> Build:
    sources = [encode_text(text) for text in texts]
    request_id = str(options.sent.get("request_id", ""))

    def build(remaining_s: float) -> Message:
        return infer_request(model, options.inputs(sources, remaining_s, targets), request_id)

    return build
