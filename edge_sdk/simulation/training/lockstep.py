"""Calls that go on by turns until each has asked something; then all questions are answered together.

Each call has a thread, of which one goes on at a time, in the order of the calls: nothing depends on chance, and what
they share needs no locks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
        question, answer: what it waits for, and what it is given.
        over: it is done, with `result` or `error`.
    """

    call: Callable[[], Any]
    question: Any = None
    answer: Any = None
    over: bool = False
    abandoned: bool = False
    result: Any = None
    error: BaseException | None = None


class TurnedThread:
    """A thread in which one call after the other goes on, whenever it is let.

    Args:
        pass_on: called when the call asks or is done: somebody else goes on.
    """

    def __init__(self, pass_on: Callable[[], None]) -> None:
        self.pass_on, self.turn = pass_on, threading.Lock()  # a plain lock: a semaphore takes several times as long
        self.turn.acquire()
        self.job: TurnedCall | None = None
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self) -> None:
        while True:
            self.turn.acquire()
            if (job := self.job) is None:
                return
            try:
                if not job.abandoned:
                    job.result = job.call()
            except BaseException as error:  # passed on to whoever runs all of them
                job.error = error
            job.over = True
            self.pass_on()

    def end(self) -> None:
        """Ends the thread, which has no call under way."""
        self.job = None
        self.turn.release()
        self.thread.join()


class Lockstep(Generic[Question, Answer]):
    """Calls that go on by turns until each has asked something or is done; then all questions are answered together.

    Threads are kept for the next calls, and each lets the next one go on by itself: to start a thread, or to wake the
    first one in between, takes as long as a good part of a small client's training.

    Args:
        answer: answers to some questions, in their order.
        most: calls that go on side by side, at most.
    """

    def __init__(self, answer: Callable[[Sequence[Question]], Sequence[Answer]], most: int) -> None:
        self.answer, self.most = answer, most
        self.back = threading.Lock()
        self.back.acquire()
        self.threads: list[TurnedThread] = []
        self.turns: Iterator[TurnedThread] = iter(())
        self.going: TurnedThread | None = None

    def ask(self, question: Question) -> Answer:
        """The answer, for the call that goes on now; outside of `run`, at once."""
        thread = self.going
        if thread is None or thread.job is None:
            return self.answer([question])[0]
        job = thread.job
        job.question = question
        self.pass_on()
        thread.turn.acquire()
        if job.abandoned:
            raise Abandoned
        found: Answer = job.answer
        return found

    def pass_on(self) -> None:
        """Lets the next thread go on, or whoever runs all of them: after the last, and after one that has failed."""
        before = self.going
        failed = before is not None and before.job is not None and before.job.error is not None
        self.going = None if failed else next(self.turns, None)
        (self.back if self.going is None else self.going.turn).release()

    def run(self, calls: Sequence[Callable[[], T]]) -> Iterator[T]:
        """What each call returns, in their order. Raises what the first raises that fails; no other goes on then."""
        left = iter(calls)
        while some := [TurnedCall(call) for call in islice(left, self.most)]:
            self.run_jobs(some)
            yield from (job.result for job in some)

    def run_jobs(self, jobs: Sequence[TurnedCall]) -> None:
        self.threads += [TurnedThread(self.pass_on) for _ in range(len(jobs) - len(self.threads))]
        threads = self.threads[: len(jobs)]
        for thread, job in zip(threads, jobs, strict=True):
            thread.job = job
        try:
            while not all(job.over for job in jobs):
                self.let_go_on([thread for thread, job in zip(threads, jobs, strict=True) if not job.over])
                for job in jobs:
                    if job.error is not None:
                        raise job.error
                self.answer_all([job for job in jobs if not job.over])
        except BaseException:
            self.abandon(threads, jobs)
            raise

    def let_go_on(self, threads: Sequence[TurnedThread]) -> None:
        """Lets the calls of these threads go on, one after the other, each until it asks or is done."""
        self.turns = iter(threads)
        self.pass_on()
        self.back.acquire()

    def abandon(self, threads: Sequence[TurnedThread], jobs: Sequence[TurnedCall]) -> None:
        """Ends all calls that are under way, and all threads."""
        for thread, job in zip(threads, jobs, strict=True):
            if not job.over:
                job.abandoned = True
                self.let_go_on([thread])
        for thread in self.threads:
            thread.end()
        self.threads = []

    def answer_all(self, asked: Sequence[TurnedCall]) -> None:
        if asked:
            for job, answer in zip(asked, self.answer([job.question for job in asked]), strict=True):
                job.answer = answer
