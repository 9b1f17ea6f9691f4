from __future__ import annotations

from benchmarks.cells import FULL, QUICK, by_workers, fixed_sources


def test_fixed_sources_have_their_length_with_one_end_token_at_the_end() -> None:
    sources = fixed_sources(50, 20, vocabulary=30)
    assert {len(source) for source in sources} == {20}
    assert all(source[-1] == 0 for source in sources)
    drawn = {token for source in sources for token in source[:-1]}
    assert drawn <= set(range(2, 29))  # neither the end token nor <unk> nor pad


def test_the_same_sources_are_drawn_every_time() -> None:
    assert fixed_sources(3, 5, vocabulary=1000) == fixed_sources(3, 5, vocabulary=1000)


def test_the_full_grid_covers_the_goals() -> None:
    cells = FULL.cells()
    assert len(set(cells)) == len(cells) == 5 * 2 * 2 * 2 * 4
    assert set(QUICK.cells()) <= set(cells)


def test_cells_that_share_workers_stand_together_once() -> None:
    shared = [key for key, _ in by_workers(FULL.cells())]
    assert len(shared) == len(set(shared)) == 3 * 2 * 2
