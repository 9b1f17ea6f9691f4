"""What the values of `dragoman serve`'s options are, for argparse: addresses, counts, times, sizes."""

from __future__ import annotations

import argparse
import re

from dragoman.serving.triton.flags import Address

__all__ = ["address", "address_or_off", "count", "gpu_number", "seconds", "size"]

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def address(text: str) -> Address:
    """`HOST:PORT`, `[IPV6]:PORT`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8001")
    return Address(host.strip("[]"), int(port))


def address_or_off(text: str) -> Address | None:
    """An address, or `off`."""
    return None if text == "off" else address(text)


def count(text: str) -> int:
    """A whole number above 0."""
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number above 0")
    return int(text)


def gpu_number(text: str) -> int:
    """A whole number from 0."""
    if not text.isdigit() or len(text) > 4:
        raise argparse.ArgumentTypeError(f"{text!r} must be the number of a GPU, from 0")
    return int(text)


def seconds(text: str) -> float:
    """A time above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds above 0")
    return value


def size(text: str) -> int:
    """Bytes, with K, M or G for powers of 1024."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 512M or 2G")
    return int(float(match[1]) * _UNITS[match[2].upper()])
