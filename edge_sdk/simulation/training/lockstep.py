"""Calls that go on by turns until each has asked something; then all questions are answered together.

Each call has a thread, of which one goes on at a time, in the order of the calls: nothing depends on chance, and what
they share needs no locks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Abandoned(BaseException):
    """Raised in a job that is not to go on, since another has failed."""


@dataclass
class TurnedCall:
    """A call that goes on in a thread, by turns with others.

    Attributes:
        call: what it does.
        turn: released when it may go on.
        question, answer: what it waits for, and what it is given.
        over: it is done, with `result` or `error`.
    """

    call: Callable[[], Any]
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    question: Any = None
    answer: Any = None
    over: bool = False
    abandoned: bool = False
    result: Any = None
    error: BaseException | None = None


class Lockstep(Generic[Question, Answer]):
    """Calls that go on by turns until each has asked something or is done; then all questions are answered together.

    Args:
        answer: answers to some questions, in their order.
        most: calls that go on side by side, at most.
    """

    def __init__(self, answer: Callable[[Sequence[Question]], Sequence[Answer]], most: int) -> None:
        self.answer, self.most = answer, most
        self.back, self.job = threading.Semaphore(0), TurnedCall(lambda: None)
        self.is_running = False

    def ask(self, question: Question) -> Answer:
        """The answer, for the call that goes on now; outside of `run`, at once."""
        if not self.is_running:
            return self.answer([question])[0]
        job = self.job
        job.question = question
        self.back.release()
        job.turn.acquire()
        if job.abandoned:
            raise Abandoned
        found: Answer = job.answer
        return found

    def run(self, calls: Sequence[Callable[[], T]]) -> Iterator[T]:
        """What each call returns, in their order. Raises what the first raises that fails; no other goes on then."""
        left = iter(calls)
        while some := [TurnedCall(call) for call in islice(left, self.most)]:
            self.run_jobs(some)
            yield from (job.result for job in some)

    def run_jobs(self, jobs: Sequence[TurnedCall]) -> None:
        threads = [threading.Thread(target=self.go, args=(job,), daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
        try:
            while waiting := [job for job in jobs if not job.over]:
                for job in waiting:
                    self.let_go_on(job)
                self.answer_all([job for job in jobs if not job.over])
        finally:
            for job in jobs:
                if not job.over:
                    job.abandoned = True
                    self.let_go_on(job, raises=False)
            for thread in threads:
                thread.join()

    def answer_all(self, asked: Sequence[TurnedCall]) -> None:
        if asked:
            for job, answer in zip(asked, self.answer([job.question for job in asked]), strict=True):
                job.answer = answer

    def let_go_on(self, job: TurnedCall, raises: bool = True) -> None:
        """Lets a job go on until it asks or is done. Raises what it raises."""
        self.job, self.is_running = job, True
        job.turn.release()
        self.back.acquire()
        self.is_running = False
        if raises and job.error is not None:
            raise job.error

    def go(self, job: TurnedCall) -> None:
        job.turn.acquire()
        try:
            if not job.abandoned:
                job.result = job.call()
        except BaseException as error:  # passed on to whoever runs all of them
            job.error = error
        job.over = True
        self.back.release()
