"""Jobs in threads: whatever ends them, their threads are gone, and a signal is handled where no lock is held."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Any

import pytest

from edge_sdk.replay.nodes import side_by_side
from edge_sdk.replay.nodes.side_by_side import DeferredSignals, play_side_by_side

FOR_EVER = 60.0  # seconds, after which a test has failed


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Those of a shell's foreground, which a process of tests may not have."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    threads = {*threading.enumerate()}
    yield
    assert {*threading.enumerate()} <= threads
    for number, handler in before.items():
        signal.signal(number, handler)


def interrupted(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A signal comes while the main thread holds the lock of a job, and gives it back only if it goes on."""

    def wait_with_a_signal(left: Any, *rest: Any) -> Any:
        (one, *_) = left
        one._condition.acquire()
        signal.raise_signal(number)
        one._condition.release()
        return wait(left, *rest)

    monkeypatch.setattr(side_by_side, "wait", wait_with_a_signal)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_lock_is_held_ends_the_jobs(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    interrupted(monkeypatch, number)
    stopping = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        play_side_by_side({i: lambda: stopping.wait(FOR_EVER) for i in range(2)}, 2, stopping)
    assert stopping.is_set() and signal.getsignal(number) is signal.default_int_handler


def test_what_jobs_return_is_told_by_their_keys() -> None:
    jobs: dict[str, Callable[[], int]] = {"a": lambda: 1, "b": lambda: 2, "c": lambda: 3}
    assert play_side_by_side(jobs, 2, threading.Event()) == {"a": 1, "b": 2, "c": 3}


def test_a_job_that_fails_ends_the_others_and_those_that_have_not_begun_never_do() -> None:
    stopping, begun = threading.Event(), list[str]()

    def fail() -> None:
        raise ValueError("this one")

    def go_on() -> None:
        begun.append("second")
        assert stopping.wait(FOR_EVER)

    jobs = {"first": fail, "second": go_on, "third": lambda: begun.append("third") if not stopping.is_set() else None}
    with pytest.raises(ValueError, match="this one"):
        play_side_by_side(jobs, 2, stopping)
    assert stopping.is_set()


def test_whoever_looks_may_end_all() -> None:
    def look() -> None:
        raise LookupError("enough")

    stopping = threading.Event()
    with pytest.raises(LookupError, match="enough"):
        play_side_by_side({0: lambda: stopping.wait(FOR_EVER)}, 1, stopping, look)


def test_a_second_signal_is_handled_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), DeferredSignals():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_signal_that_is_ignored_or_ends_the_process_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with DeferredSignals():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        signal.raise_signal(signal.SIGINT)


def test_in_another_thread_nothing_is_deferred() -> None:
    found: list[Any] = []

    def enter() -> None:
        with DeferredSignals():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
