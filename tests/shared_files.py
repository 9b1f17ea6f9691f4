"""Checkpoints that others trained, in a folder `shared` beside the checkout or above it. Tests without them are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["shared_checkpoint"]

CHECKOUT = Path(__file__).resolve().parents[1]


def shared_checkpoint(name: str) -> Path:
    """The checkpoint `name`; where it is not there, the test is skipped."""
    for folder in CHECKOUT.parents:
        if (found := folder / "shared" / "checkpoints" / name).exists():
            return found
    pytest.skip(f"needs the checkpoint {name} in a folder shared/checkpoints beside the checkout")
