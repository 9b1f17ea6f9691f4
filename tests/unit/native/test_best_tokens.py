"""The output projection with the choice of the best tokens, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman import native
from dragoman.export.lowering.native.tiles import in_float_tiles, in_tiles
from one_operator import BEST, Array, close, floats, random, run

pytestmark = pytest.mark.skipif(native.ops_library() is None, reason="the operators are not built: no C++ compiler")


def best(logits: Array, candidates: int, *bias: Array) -> list[Array]:
    """Of weights whose outputs are these logits: row r of the inputs is one at r, and nothing elsewhere."""
    rows, vocabulary = logits.shape
    weights = np.zeros((vocabulary, 8), np.float32)
    weights[:, :rows] = logits.T
    inputs = (np.eye(rows, 8, dtype=np.float32), in_float_tiles(weights), np.array([candidates]), *bias)
    return run("FloatBestOutputs", *inputs, outputs=BEST, vocabulary=vocabulary)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12000), st.integers(0, 2**32 - 1), st.booleans(), st.booleans(), st.data())
def test_the_best_tokens_are_those_of_a_stable_sort(
    vocabulary: int, seed: int, biased: bool, many_equal: bool, data: st.DataObject
) -> None:
    draw = np.random.default_rng(seed)
    logits = draw.integers(-3, 3, (3, vocabulary)) if many_equal else draw.normal(0, 8, (3, vocabulary))
    logits = logits.astype(np.float32)
    bias = [draw.integers(-2, 2, vocabulary).astype(np.float32)] if biased else []
    candidates = data.draw(st.integers(1, vocabulary) | st.integers(1, min(16, vocabulary)))
    tokens, log_probs, found = best(logits, candidates, *bias)
    summed = logits + bias[0] if biased else logits
    expected = np.argsort(-summed, axis=-1, kind="stable")[:, :candidates]
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_array_equal(found, np.take_along_axis(summed, expected, -1))
    wide = summed.astype(np.float64)
    normaliser = np.log(np.exp(wide - wide.max(-1, keepdims=True)).sum(-1, keepdims=True)) + wide.max(-1, keepdims=True)
    close(log_probs, np.take_along_axis(wide, expected, -1) - normaliser, 4e-6)


def test_logits_may_be_infinitely_small() -> None:
    """A whole stretch of the vocabulary may be forbidden, from its beginning on."""
    bias = np.full(30000, -np.inf, np.float32)
    bias[20000:20003] = 1.0, 3.0, 2.0
    tokens, log_probs, _ = best(np.zeros((1, 30000), np.float32), 3, bias)
    assert tokens.tolist() == [[20001, 20002, 20000]]
    close(np.exp(log_probs).sum(-1), np.ones(1, np.float32), 1e-5)


@pytest.mark.parametrize("vocabulary", [130, 9000])
def test_logits_that_are_no_numbers_crash_nothing(vocabulary: int) -> None:
    tokens, _, _ = best(np.full((2, vocabulary), np.nan, np.float32), 5)
    assert tokens.shape == (2, 5)
    assert ((tokens >= 0) & (tokens < vocabulary)).all()


@pytest.mark.parametrize("rows", [1, 48, 49, 100, 193])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("vocabulary", "inputs"), [(70, 16), (9001, 13)])
@pytest.mark.parametrize("scale", [1.0, 0.125])
def test_the_best_outputs_are_those_of_the_product(
    rows: int, biased: bool, vocabulary: int, inputs: int, scale: float
) -> None:
    """Also of so many rows and tokens that they are computed in several parts."""
    x, weights = floats(rows, inputs), floats(vocabulary, inputs)
    bias = [floats(vocabulary)] if biased else []
    quantised = np.round(weights * 20).clip(-63, 63).astype(np.int8)
    scales = np.full(vocabulary, 0.05, np.float32)
    integers = (in_tiles(quantised), scales, quantised.sum(1).astype(np.float32) * scales)
    for name, stored in (("BestOutputs", integers), ("FloatBestOutputs", (in_float_tiles(weights),))):
        is_float = name.startswith("Float")
        tokens, _, found = run(
            name,
            x,
            *stored,
            np.array([4]),
            *bias,
            outputs=BEST,
            scale=scale,
            **({"vocabulary": vocabulary} if is_float else {}),
        )
        columns = {"columns": vocabulary} if is_float else {}
        (logits,) = run(name.replace("BestOutputs", "Linear"), x, *stored, activation=0, **columns)
        summed = logits * np.float32(scale) + (bias[0] if biased else np.float32(0))
        expected = np.argsort(-summed, axis=-1, kind="stable")[:, :4]
        np.testing.assert_array_equal(tokens, expected)
        np.testing.assert_array_equal(found, np.take_along_axis(summed, expected, -1))


@pytest.mark.parametrize("rows", [48, 49, 200, 385])
def test_log_probabilities_are_those_of_a_row_alone(rows: int) -> None:
    """However many tokens of how many rows are computed at once."""
    x, weights = floats(rows, 8), floats(20_000, 8)
    stored = in_float_tiles(weights), np.array([3])
    together = run("FloatBestOutputs", x, *stored, outputs=BEST, vocabulary=20_000)
    for row in range(0, rows, 47):
        alone = run("FloatBestOutputs", x[row : row + 1].copy(), *stored, outputs=BEST, vocabulary=20_000)
        for one, many in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one[0], many[row])


def test_a_vocabulary_of_nllb_is_no_multiple_of_eight() -> None:
    vocabulary = 256_206
    x, values = floats(3, 16), random.integers(-127, 128, (vocabulary, 16)).astype(np.int8)
    scale = np.full(vocabulary, 0.01, np.float32)
    stored = (in_tiles(values), scale, values.sum(1).astype(np.float32) * scale)
    tokens, log_probs, logits = run("BestOutputs", x, *stored, np.array([8]), outputs=BEST)
    (all_logits,) = run("Linear", x, *stored, activation=0)
    expected = np.argsort(-all_logits, axis=-1, kind="stable")[:, :8]
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_array_equal(logits, np.take_along_axis(all_logits, expected, -1))
    wide = all_logits.astype(np.float64)
    close(log_probs, np.take_along_axis(wide, expected, -1) - np.log(np.exp(wide).sum(-1, keepdims=True)), 1e-5)


@pytest.mark.parametrize("name", ["BestOutputs", "FloatBestOutputs"])
@pytest.mark.parametrize("rows", [1, 49, 100])
@pytest.mark.parametrize("biased", [False, True])
def test_scored_tokens_stand_behind_the_best(name: str, rows: int, biased: bool) -> None:
    vocabulary = 9001
    x, weights = floats(rows, 16), floats(vocabulary, 16)
    quantised = np.round(weights * 20).clip(-63, 63).astype(np.int8)
    scales = np.full(vocabulary, 0.05, np.float32)
    integers = (in_tiles(quantised), scales, quantised.sum(1).astype(np.float32) * scales)
    stored, more = ((in_float_tiles(weights),), {"vocabulary": vocabulary}) if name.startswith("Float") else (integers, {})
    bias = floats(vocabulary) if biased else None
    every = run(name, x, *stored, np.array([vocabulary]), bias, outputs=BEST, **more)
    scored_tokens = random.integers(-1, vocabulary, (rows, 3))
    scored_tokens[0] = [0, vocabulary - 1, -1]
    found = run(name, x, *stored, np.array([4]), bias, scored_tokens, outputs=BEST, **more)
    order = np.argsort(every[0], axis=1)  # the place of each token among all
    places = np.take_along_axis(order, np.maximum(scored_tokens, 0), 1)
    np.testing.assert_array_equal(found[0], np.concatenate([every[0][:, :4], np.maximum(scored_tokens, 0)], 1))
    for numbers, all_numbers in zip(found[1:], every[1:], strict=True):
        expected = np.where(scored_tokens < 0, -np.inf, np.take_along_axis(all_numbers, places, 1))
        np.testing.assert_array_equal(numbers, np.concatenate([all_numbers[:, :4], expected], 1))


@pytest.mark.parametrize("scored_tokens", [np.full((2, 1), 70), np.full((2, 1), -2), np.zeros((3, 1), np.int64)])
def test_tokens_that_the_vocabulary_lacks_are_not_looked_up(scored_tokens: Array) -> None:
    with pytest.raises(Exception, match="scored"):
        run(
            "FloatBestOutputs",
            floats(2, 16),
            in_float_tiles(floats(70, 16)),
            np.array([4]),
            None,
            scored_tokens,
            outputs=BEST,
            vocabulary=70,
        )


LISTS = ((3, 40, 41, 66), (0, 3, 17, 40, 41, 66, 69), (3, 40, 41, 66, *range(42, 60)))
"""Of a vocabulary of 70; the first is what the others share."""


def listed(weights: Array, quantised: bool, bias: Array | None) -> tuple[tuple[Array, ...], tuple[Array, ...], Array | None]:
    """The table with the whole vocabulary and the lists behind it: what is stored, the inputs of the lists, and the bias."""
    shared, parts, ranges, begin = LISTS[0], [np.arange(70)], [(0, 70, 0, 0)], 80
    for own in (shared, *(tuple(sorted(set(one) - set(shared))) for one in LISTS[1:])):
        parts += [np.zeros(-len(np.concatenate(parts)) % 16, np.int64), np.array(own)]
        ranges.append((80, 80 + len(shared), *((0, 0) if own == shared else (begin, begin + len(own)))))
        begin += -(-len(own) // 16) * 16
    tokens = np.concatenate(parts)
    table = weights[tokens]
    stored: tuple[Array, ...] = (in_float_tiles(table),)
    if quantised:
        values, scales = np.round(table * 20).clip(-63, 63).astype(np.int8), np.full(len(tokens), 0.05, np.float32)
        stored = (in_tiles(values), scales, values.sum(1).astype(np.float32) * scales)
    return stored, (tokens.astype(np.int32), np.array(ranges)), None if bias is None else bias[tokens]


@pytest.mark.parametrize("name", ["BestOutputs", "FloatBestOutputs"])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("groups", [1, 3, 25, 100])
def test_each_row_chooses_among_the_tokens_of_its_list(name: str, biased: bool, groups: int) -> None:
    """The rows of several lists in any order, the whole vocabulary among them; with ties and scored tokens."""
    rows, is_float = 2 * groups, name.startswith("Float")
    x, weights = floats(rows, 24), np.round(floats(70, 24), 1)
    weights[40] = weights[3]  # of equal ones the lower token comes first, whichever range has it
    bias = np.zeros(70, np.float32) if biased else None
    if bias is not None:
        bias[10:60] = floats(50)
        bias[40] = bias[3]
    stored, shortlists, table_bias = listed(weights, not is_float, bias)
    numbers = random.integers(0, 4, groups).astype(np.int32)
    scored_tokens = random.integers(-1, 70, (rows, 3))
    more = {"vocabulary": len(shortlists[0])} if is_float else {}
    inputs = (x, *stored, np.array([5]), table_bias, scored_tokens, *shortlists)
    found = run(name, *inputs, numbers, outputs=BEST, **more)
    whole = run(name, *inputs, np.zeros(groups, np.int32), outputs=BEST, **more)
    every = run(name, x, *stored, np.array([70]), table_bias, None, *shortlists, outputs=BEST, **more)  # list 0
    np.testing.assert_array_equal(every[0][:, :5], whole[0][:, :5])
    logits = np.take_along_axis(every[2], np.argsort(every[0], axis=1), 1)  # by token
    for row in range(rows):
        number = int(numbers[row // 2])
        tokens = np.array(LISTS[number - 1] if number else range(70))
        mine = logits[row, tokens]
        order = np.argsort(-mine, kind="stable")[:5]
        count = len(order)
        wide = mine.astype(np.float64)
        normaliser = np.log(np.exp(wide - wide.max()).sum()) + wide.max()
        np.testing.assert_array_equal(found[0][row, :count], tokens[order])
        np.testing.assert_array_equal(found[2][row, :count], mine[order])
        close(found[1][row, :count], mine[order] - normaliser, 4e-6)
        assert np.isneginf(found[1][row, count:5]).all()  # the list has no more
        for column, token in enumerate(scored_tokens[row].tolist()):
            expected = logits[row, token] if token in tokens else -np.inf
            assert found[2][row, 5 + column] == expected
            close(found[1][row, 5 + column], np.float32(expected - normaliser), 4e-6)


@pytest.mark.parametrize("name", ["BestOutputs", "FloatBestOutputs"])
def test_the_list_of_a_row_is_the_same_alone_and_beside_others(name: str) -> None:
    x, weights = floats(64, 24), floats(70, 24)
    is_float = name.startswith("Float")
    stored, shortlists, _ = listed(weights, not is_float, None)
    numbers = random.integers(0, 4, 64).astype(np.int32)
    more = {"vocabulary": len(shortlists[0])} if is_float else {}

    def best_of(rows: slice) -> list[Array]:
        return run(name, x[rows], *stored, np.array([4]), None, None, *shortlists, numbers[rows], outputs=BEST, **more)

    together = best_of(slice(0, 64))
    for row in range(0, 64, 7):
        for alone, all_rows in zip(best_of(slice(row, row + 1)), together, strict=True):
            np.testing.assert_array_equal(alone[0], all_rows[row])


def lists_of(tokens: int = 16, ranges: object = ((0, 9, 0, 0),), groups: object = None) -> tuple[Array | None, ...]:
    return (
        np.arange(tokens, dtype=np.int32),
        np.array(ranges, np.int64),
        None if groups is None else np.array(groups, np.int32),
    )


@pytest.mark.parametrize(
    ("shortlists", "why"),
    [
        (lists_of(tokens=8), "a token for each row"),
        (lists_of(ranges=((0, 9),)), "ranges"),
        (lists_of(ranges=np.zeros((0, 4))), "ranges"),
        (lists_of(ranges=((0, 17, 0, 0),)), "not in the table"),
        (lists_of(ranges=((-16, 9, 0, 0),)), "not in the table"),
        (lists_of(ranges=((0, 9, 9, 3),)), "not in the table"),
        (lists_of(ranges=((0, 3, 3, 9),)), "not in the table"),  # the second does not begin at a tile
        (lists_of(groups=(1, 0)), "no shortlist of this number"),
        (lists_of(groups=(-1, 0)), "no shortlist of this number"),
        (lists_of(groups=(0, 0, 0)), "for each group"),
        (lists_of(groups=()), "for each group"),
        ((None, None, np.zeros(2, np.int32)), "no shortlists to choose from"),
        ((np.zeros(16, np.int32),), "belong together"),
    ],
)
def test_shortlists_that_do_not_fit_are_refused(shortlists: tuple[Array | None, ...], why: str) -> None:
    with pytest.raises(Exception, match=f"FloatBestOutputs: .*{why}"):
        run(
            "FloatBestOutputs",
            *(floats(2, 16), in_float_tiles(floats(16, 16)), np.array([4]), None, None, *shortlists),
            outputs=BEST,
            vocabulary=16,
        )
