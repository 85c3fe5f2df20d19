"""Training steps measured in a child process whose memory is watched, so that the kernel need not kill anything.

The child is a fork, as in `forked.py`. Before it loads the model it tells the kernel to take it first, should memory
end all the same. The parent asks for one batch after the other, smallest first, looks at the child's memory every few
milliseconds, and ends it when it has more than it may.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import fmean
from typing import Any

from edge_sdk.errors import AuscultError
from edge_sdk.hardware.boards.energy import EnergyMeter
from edge_sdk.hardware.boards.forecast import StepCost, expect_peak
from edge_sdk.hardware.boards.memory import read_resident_mb
from edge_sdk.hardware.boards.profile import BoardProfile
from edge_sdk.hardware.probe import peak_memory_mb
from edge_sdk.tools.profiling.forked import name_end, receive, send

LOOK = 0.005
"""Seconds between two looks at the child's memory."""
ENOUGH = 0.25
"""Seconds of steps at least: sensors of power are read every 50 ms, and others use this machine too."""
PATIENCE = 300.0
"""Seconds for one batch."""


class DoesNotFit(AuscultError):
    """The model takes more memory than the board has left."""


def measure_steps(
    bundle: Path, threads: int, batches: Sequence[int], limit_mb: float, profile: BoardProfile, root: Path
) -> list[StepCost]:
    """Measures steps of rising batches, as far as they fit.

    Args:
        bundle: path of the model's bundle.
        threads: of onnxruntime.
        batches: samples of a step, rising.
        limit_mb: memory that the process may have, MiB.
        profile: of the board, for energy where nothing measures it.
        root: directory below which Linux's files are read.

    Returns:
        The cost of each batch that fits; at least one.

    Raises:
        DoesNotFit: the smallest batch already does not fit.
        AuscultError: the child failed, with what it said.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=run_steps, args=(theirs, bundle, threads, profile, root), daemon=True)
    child.start()
    theirs.close()
    costs: list[StepCost] = []
    try:
        for batch in batches:
            if costs and expect_peak(costs, batch) > limit_mb:
                break
            send(ours, batch)
            costs.append(StepCost(**wait_answer(ours, child, limit_mb)))
    except DoesNotFit:
        if not costs:
            raise
    finally:
        child.kill()
        child.join()
        ours.close()
    return costs


def wait_answer(pipe: Pipe, child: Any, limit_mb: float) -> dict[str, Any]:
    """Waits for the child's answer, and ends it when its memory passes the limit."""
    until = time.monotonic() + PATIENCE
    while not pipe.poll(LOOK):
        has = read_resident_mb(child.pid)
        if has is not None and has > limit_mb:
            child.kill()
            raise DoesNotFit(f"a training step takes more than {limit_mb:.0f} MB: it had {has:.0f} when it was ended")
        if time.monotonic() > until:
            raise AuscultError(f"a training step was not over after {PATIENCE:.0f} s")
    try:
        answer = receive(pipe)
    except EOFError:
        child.join(5)
        raise AuscultError(f"the process that measures {name_end(child.exitcode or 0)}") from None
    if "failed" in answer:
        raise AuscultError(f"a step could not be measured: {answer['failed']}")
    return dict(answer)


def run_steps(pipe: Pipe, bundle: Path, threads: int, profile: BoardProfile, root: Path) -> None:
    """The child: loads the model, and answers each batch that it is asked for with the cost of a step."""
    with suppress(OSError):  # may be forbidden; then the parent's look is all the protection there is
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        for answer in measure_batches(pipe, bundle, threads, profile, root):
            send(pipe, answer)
    except EOFError:
        pass
    except Exception as error:  # the parent tells it: a child's traceback would be nobody's
        send(pipe, {"failed": f"{type(error).__name__}: {error}"[:300]})


def measure_batches(
    pipe: Pipe, bundle: Path, threads: int, profile: BoardProfile, root: Path
) -> Iterator[dict[str, Any]]:
    """Measures one batch after the other, as `pipe` asks for them."""
    from edge_sdk.model.model import Model  # loads onnxruntime at its first graph: here and not in the parent
    from edge_sdk.tools.profiling.step_cost import time_runs

    model: Model | None = None
    while True:
        batch = receive(pipe)
        model = model or Model(bundle, threads=threads)
        time_runs(model, "loss_grad", batch)  # the first runs fill caches
        with EnergyMeter(profile, threads, root) as meter:
            times: list[float] = []
            while sum(times) < ENOUGH:
                times += time_runs(model, "loss_grad", batch)
        joules = None if meter.energy.joules is None else meter.energy.joules / len(times)
        yield {
            "threads": threads,
            "batch": batch,
            "seconds": fmean(times),  # not the median: a round takes the sum of its steps, slow ones among them
            "peak_mb": peak_memory_mb(),
            "joules": joules,
            "source": meter.energy.source,
        }
