"""Files that others made, in a folder `shared` beside the checkout or above it. Tests without them are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["CHECKOUT", "shared_checkpoint", "shared_file"]

CHECKOUT = Path(__file__).resolve().parents[1]


def shared_file(name: str) -> Path:
    """The file or folder `name`; where it is not there, the test is skipped."""
    for folder in CHECKOUT.parents:
        if (found := folder / "shared" / name).exists():
            return found
    pytest.skip(f"needs shared/{name} beside the checkout or above it")


def shared_checkpoint(name: str) -> Path:
    """The checkpoint `name`."""
    return shared_file(f"checkpoints/{name}")
