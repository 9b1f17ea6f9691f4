"""What the Triton model `server_status` answers: which bundles this server has, and where its metrics are."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from dragoman import wire
from dragoman.serving.triton.flags import Address

__all__ = ["server_status"]

_UNKNOWN: dict[str, Any] = {"source_languages": [], "target_languages": [], "shortlists": {}}


def server_status(bundles: Mapping[str, Mapping[str, Any]], metrics: Address | None) -> dict[str, Any]:
    """STATUS as `wire` defines it; `bundles` has the report of an engine of each, nothing before it was ready."""
    return {
        "wire_version": wire.WIRE_VERSION,
        "server": version("dragoman"),
        "metrics": None if metrics is None else f"http://{metrics}/metrics",
        "bundles": [
            {field: {**_UNKNOWN, **info, "name": name}.get(field) for field in wire.BUNDLE_FIELDS}
            for name, info in bundles.items()
        ],
    }
