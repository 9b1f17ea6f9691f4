"""The door reads one field of a request's options; Python reads the same."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from native_link import asked_model, can_compile

names = st.text(max_size=12) | st.sampled_from(["model", "models", "en-de"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@can_compile
@settings(max_examples=300, deadline=None)
@given(options=st.dictionaries(names, values, max_size=5), ascii_only=st.booleans(), indent=st.sampled_from([None, 2]))
def test_the_model_that_json_names_is_found(options: dict[str, object], ascii_only: bool, indent: int | None) -> None:
    readable, found = asked_model(json.dumps(options, ensure_ascii=ascii_only, indent=indent).encode())
    wanted = options.get("model")
    assert readable
    if isinstance(wanted, str) and "\0" not in wanted:  # the test's own way to hand over a name ends there
        assert found == wanted
    elif not isinstance(wanted, str):
        assert (found is None) == (wanted is None)


@can_compile
@settings(max_examples=300, deadline=None)
@given(options=st.binary(max_size=40) | st.text(alphabet='{}[]":,\\u0aeotmdl ', max_size=40).map(str.encode))
def test_whatever_is_sent_is_read_or_not_and_nothing_breaks(options: bytes) -> None:
    readable, found = asked_model(options)
    assert readable or found is None
