from dragoman.serving.process.response_cache import ResponseCache


def test_what_was_put_is_found() -> None:
    cache = ResponseCache[str](100)
    cache.put("a", "A", 10)
    assert cache.get("a") == "A"


def test_what_was_not_put_is_not_found() -> None:
    assert ResponseCache[str](100).get("a") is None


def test_the_least_recently_used_goes_first() -> None:
    cache = ResponseCache[str](30)
    for name in "abc":
        cache.put(name, name, 10)
    cache.get("a")
    cache.put("d", "d", 10)
    assert [name for name in "abcd" if cache.get(name)] == ["a", "c", "d"]


def test_it_never_holds_more_than_it_may() -> None:
    cache = ResponseCache[int](100)
    for number in range(50):
        cache.put(number % 7, number, number)
        assert cache.used_bytes <= 100


def test_a_value_that_never_fits_is_not_kept() -> None:
    cache = ResponseCache[str](5)
    cache.put("small", "s", 5)
    cache.put("large", "l", 6)
    assert (cache.get("small"), cache.get("large")) == ("s", None)


def test_a_new_value_takes_the_place_of_the_old() -> None:
    cache = ResponseCache[str](100)
    cache.put("a", "old", 40)
    cache.put("a", "new", 50)
    assert (cache.get("a"), cache.used_bytes, len(cache)) == ("new", 50, 1)


def test_without_room_it_is_off() -> None:
    assert not ResponseCache[str](0).enabled
