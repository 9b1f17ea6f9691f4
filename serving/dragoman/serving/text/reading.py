"""The texts of a request, from their bytes."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.errors import InvalidRequest
from dragoman.search.option_types import check_text
from dragoman.wire import Limits

__all__ = ["check_sizes", "read_text"]


def check_sizes(raw: Sequence[bytes], limits: Limits) -> None:
    """InvalidRequest for too many texts or too many bytes; looks at no byte of them."""
    if not raw:
        raise InvalidRequest("TEXT is empty: send at least one text")
    if len(raw) > limits.max_texts:
        raise InvalidRequest(f"{len(raw)} texts are too many; this server takes {limits.max_texts}: send several requests")
    for number, each in enumerate(raw):
        if len(each) > limits.max_text_bytes:
            raise InvalidRequest(
                f"{_which(number, len(raw))} has {len(each)} bytes; this server takes {limits.max_text_bytes}: "
                "send it in pieces"
            )
    if (together := sum(map(len, raw))) > limits.max_request_bytes:
        raise InvalidRequest(f"the texts have {together} bytes; this server takes {limits.max_request_bytes} in a request")


def read_text(raw: bytes, number: int, count: int) -> str:
    """Text `number` of `count`; InvalidRequest says what is wrong with it and does not repeat it."""
    which = _which(number, count)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{which} is not UTF-8: the bytes at {error.start} can't be read") from None
    if not text or text.isspace():
        raise InvalidRequest(f"{which} is empty")
    check_text(text, which)
    return text


def _which(number: int, count: int) -> str:
    return f"text {number}" if count > 1 else "the text"
