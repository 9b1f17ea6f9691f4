"""Damaged checkpoints of every format are read or refused in a line, in a process with little memory."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")

from hostile.formats import WRITERS, formats_spoilt


def test_damaged_files_of_every_format_are_read_or_refused(tmp_path: Path) -> None:
    row = formats_spoilt(tmp_path, 25 * len(WRITERS), seed=5)
    assert row.count == 25 * len(WRITERS)
    assert row.examples == ()
