from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.errors import UsageError
from dragoman.loadtest.workload import Item, Workload, read_workload


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_text_file_is_one_sentence_a_line(tmp_path: Path) -> None:
    workload = read_workload(written(tmp_path / "a.txt", "\ufeffOne.\r\n\n  Zwei\tund drei.\n".encode()))
    assert workload.items == (Item("One."), Item("  Zwei\tund drei."))
    assert not workload.has_references


def test_a_tsv_file_has_references_after_the_source(tmp_path: Path) -> None:
    workload = read_workload(written(tmp_path / "a.tsv", b"One.\tEins.\nTwo.\tZwei.\tDuo.\n"))
    assert workload.items == (Item("One.", ("Eins.",)), Item("Two.", ("Zwei.", "Duo.")))
    assert workload.has_references


def test_references_count_only_when_every_line_has_one(tmp_path: Path) -> None:
    assert not read_workload(written(tmp_path / "a.tsv", b"One.\tEins.\nTwo.\n")).has_references


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"", "no sentences"),
        ("a.txt", b"\n  \n", "no sentences"),
        ("a.txt", b"good\nalso good\n\xff\xfe\n", "line 3"),
        ("a.tsv", b"One.\tEins.\n\tZwei.\n", "without a source"),
    ],
)
def test_a_bad_workload_is_refused_with_its_reason(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_workload(written(tmp_path / name, content))


def test_a_missing_workload_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't read"):
        read_workload(tmp_path / "nowhere.txt")


def test_a_seed_repeats_the_order_and_nothing_is_lost() -> None:
    workload = Workload("w", tuple(Item(str(number)) for number in range(100)))
    assert workload.shuffled(1) == workload.shuffled(1) != workload.shuffled(2)
    assert sorted(workload.shuffled(1).items, key=lambda item: int(item.source)) == list(workload.items)
