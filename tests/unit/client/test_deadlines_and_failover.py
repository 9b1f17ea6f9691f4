"""What happens when servers are slow, gone, hung or come back; with real connections."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable

import grpc
import pytest
from cable import Cable
from fake_triton import OVERLOADED, Refuse, ScriptedTriton, until_cancelled
from tiny_dns import naming

from dragoman.client import AsyncTranslator, RetryPolicy, Translator, Window
from dragoman.errors import DeadlineExceeded, Overloaded, TransportError

Eventually = Callable[[Callable[[], bool]], None]


@pytest.fixture
def both(triton: ScriptedTriton, other_triton: ScriptedTriton) -> tuple[ScriptedTriton, ScriptedTriton]:
    return triton, other_triton


def test_two_servers_share_the_calls(both: tuple[ScriptedTriton, ScriptedTriton]) -> None:
    with Translator([server.url for server in both]) as translator:
        for _ in range(10):
            translator.translate("hi")
    assert [len(server.received) for server in both] == [5, 5]


def test_a_name_with_two_addresses_is_two_servers() -> None:
    one = ScriptedTriton()
    other = ScriptedTriton(port=one.port, host="127.0.0.2")
    try:
        with (
            naming("translate.test", ["127.0.0.1", "127.0.0.2"]) as name_server,
            Translator(f"dns://{name_server}/translate.test:{one.port}") as translator,
        ):
            deadline = time.monotonic() + 120  # the second connection is made while the first is used already
            while not (one.received and other.received):
                assert time.monotonic() < deadline
                translator.translate("hi")
            other.stop()
            assert [translator.translate(f"t{number}").text for number in range(10)] == [f"T{n}" for n in range(10)]
    finally:
        one.stop()
        other.stop()


def test_a_connection_that_died_silently_is_found_out_by_keepalive(triton: ScriptedTriton) -> None:
    cable, once = Cable(triton.port), RetryPolicy.never()
    with cable.plugged() as address, Translator(address, retry=once, keepalive_s=0.2, timeout_s=120) as translator:
        assert translator.translate("hi").text == "HI"
        cable.cut()
        with pytest.raises(TransportError):  # before its deadline
            translator.translate("never received")


def test_requests_to_a_lost_server_are_answered_by_another(both: tuple[ScriptedTriton, ScriptedTriton]) -> None:
    gone, well = both
    with Translator([server.url for server in both]) as translator:
        translator.translate("hi")
        gone.stop()
        assert [translator.translate(f"t{number}").text for number in range(10)] == [f"T{number}" for number in range(10)]
    assert len(well.received) >= 10


def test_a_hung_server_is_left_out_within_seconds(both: tuple[ScriptedTriton, ScriptedTriton]) -> None:
    hung, _ = both
    with Translator([server.url for server in both], timeout_s=120) as translator:
        translator.translate(["warm both"])
        translator.translate(["connections up"])
        hung.gate.clear()
        assert [translator.translate(f"t{number}").text for number in range(20)] == [f"T{number}" for number in range(20)]
        assert len(hung.received) <= 3  # the one that found out, and the warm-up


def test_a_server_that_comes_back_is_used_again(both: tuple[ScriptedTriton, ScriptedTriton], eventually: Eventually) -> None:
    away, _ = both
    port = away.port
    with Translator([server.url for server in both]) as translator:
        away.stop()
        for _ in range(4):
            translator.translate("hi")
        back = ScriptedTriton(port=port)

        def served_by_it() -> bool:
            translator.translate("hi")
            return bool(back.received)

        eventually(served_by_it)
        back.stop()


def test_an_overloaded_server_passes_the_call_to_the_other_at_once(both: tuple[ScriptedTriton, ScriptedTriton]) -> None:
    busy = Refuse(grpc.StatusCode.UNAVAILABLE, "OVERLOADED retry_after_ms=60000: the queue is full")
    with Translator([server.url for server in both], timeout_s=5) as translator:
        both[0].answers.append(busy)
        assert translator.translate("hi").text == "HI"
    assert len(both[1].received) == 1


def test_the_async_translator_leaves_a_hung_server_out_too(both: tuple[ScriptedTriton, ScriptedTriton]) -> None:
    async def main() -> list[str]:
        async with AsyncTranslator([server.url for server in both], timeout_s=120) as translator:
            await translator.translate("warm")
            await translator.translate("warm")
            both[0].gate.clear()
            return [one.text for one in await asyncio.gather(*(translator.translate(f"t{n}") for n in range(20)))]

    assert asyncio.run(main()) == [f"T{number}" for number in range(20)]


def test_a_slow_server_that_lives_is_waited_for(both: tuple[ScriptedTriton, ScriptedTriton]) -> None:
    def slowly(request: object, context: object) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
        time.sleep(2.5)  # longer than a silence that makes the client ask whether the server lives
        from fake_triton import translated

        return translated(["slow"])

    for server in both:
        server.answers.append(slowly)
    with Translator([server.url for server in both], timeout_s=120) as translator:
        assert translator.translate("slow").text == "SLOW"
    assert sum(len(server.received) for server in both) == 1


def test_a_hint_past_the_deadline_is_not_waited_for(triton: ScriptedTriton) -> None:
    triton.answers.append(Refuse(grpc.StatusCode.UNAVAILABLE, "OVERLOADED retry_after_ms=60000: the queue is full"))
    began_at = time.monotonic()
    with Translator(triton.url, timeout_s=50) as translator, pytest.raises(Overloaded):
        translator.translate("hi")
    assert time.monotonic() - began_at < 40


def test_a_hint_is_waited_for(triton: ScriptedTriton) -> None:
    triton.answers.append(Refuse(grpc.StatusCode.UNAVAILABLE, "OVERLOADED retry_after_ms=300: the queue is full"))
    began_at = time.monotonic()
    with Translator(triton.url, timeout_s=60) as translator:
        translator.translate("hi")
    assert time.monotonic() - began_at >= 0.3


def test_each_attempt_sends_the_remaining_time(triton: ScriptedTriton) -> None:
    triton.answers.append(Refuse(grpc.StatusCode.UNAVAILABLE, "OVERLOADED retry_after_ms=300: the queue is full"))
    with Translator(triton.url, timeout_s=60) as translator:
        translator.translate("hi")
    first, second = (request.options["timeout_ms"] for request in triton.received)
    assert first - second >= 300


def test_a_budget_bounds_the_retries_of_all_calls_together(triton: ScriptedTriton) -> None:
    triton.answers.extend([OVERLOADED] * 1000)
    policy = RetryPolicy(max_attempts=4, budget=10.0)
    with Translator(triton.url, retry=policy) as translator:
        for _ in range(50):
            with pytest.raises(Overloaded, match="queue"):
                translator.translate("hi")
    assert len(triton.received) == 50 + 10


def test_a_server_that_is_down_is_a_transport_error_with_a_remedy(triton: ScriptedTriton, eager: RetryPolicy) -> None:
    triton.stop()
    with Translator(triton.url, retry=eager) as translator, pytest.raises(TransportError, match="dragoman serve"):
        translator.translate("hi")


def test_a_server_that_comes_up_within_the_time_is_reached(triton: ScriptedTriton) -> None:
    port = triton.port
    triton.stop()
    late: list[ScriptedTriton] = []
    timer = threading.Timer(1.0, lambda: late.append(ScriptedTriton(port=port)))
    timer.start()
    with Translator(f"127.0.0.1:{port}", timeout_s=120) as translator:
        assert translator.translate("hi").text == "HI"
    late[0].stop()


def test_ctrl_c_cancels_the_work_in_the_server(triton: ScriptedTriton) -> None:
    triton.answers.append(until_cancelled)

    def interrupt() -> None:
        while not triton.received:
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with Translator(triton.url) as translator:
        with pytest.raises(KeyboardInterrupt):
            translator.translate("hi", timeout_s=60)
        assert triton.received[0].cancelled.wait(120)


def test_closing_ends_the_calls_of_other_threads(triton: ScriptedTriton) -> None:
    triton.answers.append(until_cancelled)
    translator = Translator(triton.url)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            translator.translate("hi", timeout_s=60)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not triton.received:
        time.sleep(0.01)
    translator.close()
    thread.join(120)
    assert [type(error).__name__ for error in errors] == ["Cancelled"]


def test_a_deadline_is_kept_through_all_retries(triton: ScriptedTriton) -> None:
    triton.stop()
    began_at = time.monotonic()
    with Translator(triton.url, retry=RetryPolicy.patient()) as translator, pytest.raises(DeadlineExceeded):
        translator.translate("hi", timeout_s=1.0)
    assert time.monotonic() - began_at < 30  # patience lasts for minutes


def test_lines_on_a_hung_server_are_translated_by_the_other(both: tuple[ScriptedTriton, ScriptedTriton]) -> None:
    lines = [f"t{number}" for number in range(60)]
    window = Window(batch_size=2, in_flight=6, held=6)
    with Translator([server.url for server in both]) as translator:
        results = translator.translate_lines(lines, window=window)
        found = [next(results).text for _ in range(4)]
        both[0].gate.clear()
        found += [one.text for one in results]
    assert found == [line.upper() for line in lines]


def test_a_stream_goes_to_the_server_that_lives(
    both: tuple[ScriptedTriton, ScriptedTriton], eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.client.transport.SILENCE_S", 0.1)
    with Translator([server.url for server in both]) as translator:
        translator.translate("warm")
        translator.translate("warm")
        both[0].gate.clear()
        eventually(lambda: translator._transport.servers.silent_s(0) > 0.1)
        for _ in range(3):
            assert "".join(translator.stream("hi", timeout_s=60)) == "Wo ist der Bahnhof?"
    assert [request.model for request in both[0].received] == ["translate"]


def test_when_all_were_down_a_stream_is_tried_all_the_same(both: tuple[ScriptedTriton, ScriptedTriton]) -> None:
    with Translator([server.url for server in both]) as translator:
        for server in (0, 1):
            translator._transport.servers.mark_down(server)
        assert "".join(translator.stream("hi")) == "Wo ist der Bahnhof?"
