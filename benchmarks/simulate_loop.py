"""The floor of the race in simulate.py: a plain loop in numpy, and in as many processes as the others have.

python benchmarks/simulate_loop.py [--clients 1000] [--cohort 50] [--rounds 40] [--ranks 2]

It has no roles, messages, checks, exact sums, states or files, and none of its clients can fail: each process trains
its part of a round's cohort, adds the models up and sends the sum through a pipe to the first, which sends the mean
back.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import time

import numpy as np
import simulate_data

WARM = 2


def play(rank: int, pipes: list, args: argparse.Namespace) -> tuple[float, float]:
    """The rounds of one process; returns seconds and seconds of its core, after the first rounds.

    Args:
        pipes: the first process: to each of the others; another: to the first.
    """
    work = importlib.import_module(simulate_data.WORKS[args.model])
    (x, y), model, random = work.pool(), work.initial(), np.random.default_rng(7)
    held = [work.rows_of(client) for client in range(args.clients)]
    began = (0.0, 0.0)
    for round in range(args.rounds):
        if round == WARM:
            began = time.perf_counter(), time.process_time()
        total = [np.zeros_like(part) for part in model]
        for client in random.permutation(args.clients)[: args.cohort][rank :: args.ranks]:
            rows = held[client]
            for mine, part in zip(total, work.train(model, x[rows], y[rows], round), strict=True):
                mine += part
        model = exchange(rank, pipes, total, args.cohort)
    return time.perf_counter() - began[0], time.process_time() - began[1]


def exchange(rank: int, pipes: list, total: list, cohort: int) -> list:
    """The mean of all that the processes have added up, on each of them."""
    if rank:
        send(pipes[0], total)
        return receive(pipes[0], total)
    for pipe in pipes:
        for mine, part in zip(total, receive(pipe, total), strict=True):
            mine += part
    model = [part / np.float32(cohort) for part in total]
    for pipe in pipes:
        send(pipe, model)
    return model


def send(pipe, parts: list) -> None:  # type: ignore[no-untyped-def]
    pipe.send_bytes(b"".join(part.tobytes() for part in parts))


def receive(pipe, like: list) -> list:  # type: ignore[no-untyped-def]
    flat, ends = np.frombuffer(pipe.recv_bytes(), np.float32), np.cumsum([part.size for part in like])
    return [part.reshape(one.shape) for part, one in zip(np.split(flat, ends[:-1]), like, strict=True)]


def play_other(rank: int, pipe, args: argparse.Namespace) -> None:  # type: ignore[no-untyped-def]
    _, spent = play(rank, [pipe], args)
    pipe.send_bytes(json.dumps(spent).encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--cohort", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--model", choices=simulate_data.WORKS, default="mlp")
    args = parser.parse_args()
    pipes = []
    for rank in range(1, args.ranks):
        pipe, theirs = multiprocessing.Pipe()
        multiprocessing.Process(target=play_other, args=(rank, theirs, args), daemon=True).start()
        pipes.append(pipe)
    seconds, spent = play(0, pipes, args)
    spent += sum(json.loads(pipe.recv_bytes()) for pipe in pipes)
    answers = args.cohort * (args.rounds - WARM)
    print(json.dumps({"rate": answers / seconds, "cpu_ms": 1000 * spent / answers}), flush=True)


if __name__ == "__main__":
    main()
