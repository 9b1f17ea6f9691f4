"""Translate over gRPC: Translator, AsyncTranslator and their commands."""

from dragoman.client.addresses import TLS
from dragoman.client.async_translator import AsyncTranslator
from dragoman.client.client_decoding import ClientDecoding
from dragoman.client.files import FileReport
from dragoman.client.hooks import Best, Processor, Step
from dragoman.client.options import RequestOptions, ScoreOptions
from dragoman.client.results import (
    Alternative,
    Alternatives,
    Link,
    Score,
    SentenceCheck,
    Timings,
    TokenAlternative,
    TokenScore,
    Translation,
)
from dragoman.client.retry import RetryPolicy
from dragoman.client.streams import AsyncTranslationStream, TranslationStream
from dragoman.client.translator import Translator
from dragoman.client.windows import Window

__all__ = [
    "TLS",
    "Alternative",
    "Alternatives",
    "AsyncTranslationStream",
    "AsyncTranslator",
    "Best",
    "ClientDecoding",
    "FileReport",
    "Link",
    "Processor",
    "RequestOptions",
    "RetryPolicy",
    "Score",
    "ScoreOptions",
    "SentenceCheck",
    "Step",
    "Timings",
    "TokenAlternative",
    "TokenScore",
    "Translation",
    "TranslationStream",
    "Translator",
    "Window",
]
