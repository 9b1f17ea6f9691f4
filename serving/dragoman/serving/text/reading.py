"""The texts of a request, from their bytes."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.errors import InvalidRequest
from dragoman.search.option_types import check_text
from dragoman.wire import Limits

__all__ = ["check_answer_size", "check_sizes", "read_text"]


def check_sizes(raw: Sequence[bytes], limits: Limits, noun: str = "text") -> None:
    """InvalidRequest for too many texts or too many bytes; looks at no byte of them. `noun` is what they are called."""
    if not raw:
        raise InvalidRequest(f"{noun.upper()} is empty: send at least one {noun}")
    if len(raw) > limits.max_texts:
        raise InvalidRequest(f"{len(raw)} {noun}s are too many; this server takes {limits.max_texts}: send several requests")
    for number, each in enumerate(raw):
        if len(each) > limits.max_text_bytes:
            raise InvalidRequest(
                f"{_which(number, len(raw), noun)} has {len(each)} bytes; this server takes {limits.max_text_bytes}: "
                "send it in pieces"
            )
    if (together := sum(map(len, raw))) > limits.max_request_bytes:
        raise InvalidRequest(f"the {noun}s have {together} bytes; this server takes {limits.max_request_bytes} in a request")


def check_answer_size(size_bytes: int, limits: Limits) -> None:
    """InvalidRequest for an answer of so many bytes: what stands between sentences is in every hypothesis of a text."""
    if size_bytes > limits.max_answer_bytes:
        raise InvalidRequest(
            f"the answer would have more than {limits.max_answer_bytes} bytes; send fewer texts at a time, or ask for fewer "
            "hypotheses"
        )


def read_text(raw: bytes, number: int, count: int, noun: str = "text") -> str:
    """Text `number` of `count`; InvalidRequest says what is wrong with it and does not repeat it."""
    which = _which(number, count, noun)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{which} is not UTF-8: the bytes at {error.start} can't be read") from None
    if not text or text.isspace():
        raise InvalidRequest(f"{which} is empty")
    check_text(text, which)
    return text


def _which(number: int, count: int, noun: str) -> str:
    return f"{noun} {number}" if count > 1 else f"the {noun}"
