"""A month of nights on four boards, in virtual time: what it costs each board, and how far the model gets.

python benchmarks/month.py [--days 30] [--devices 8] [--rounds 120]      about two minutes on one core

Generated wrists (nobody's recordings) with generated nights on a charger; every device trains only while it charges, at
night, cool, and for at most so many joules a day. The same is played without a budget, for comparison.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from edge_sdk.hardware.boards.emulation import parse_boards
from edge_sdk.nodes.policy.budget import TrainingBudget
from edge_sdk.replay.days import Days, days_lines, play_days
from edge_sdk.replay.planning.plan import Replay
from edge_sdk.replay.traces.nights import write_nights
from edge_sdk.replay.traces.synth import write_traces

BOARDS = "raspberry-pi-zero-2w=0.02,raspberry-pi-3b-plus=0.03,raspberry-pi-4,raspberry-pi-5"
BUDGET = TrainingBudget(
    charging=True, min_battery=0.3, max_celsius=50.0, hours=("21:00-08:00",), calm=600.0, joules=7.0
)


def play(traces: Path, out: Path, options: argparse.Namespace, budget: TrainingBudget) -> dict[str, Any]:
    """Plays the month with this budget."""
    job = Replay(
        data=traces,
        out=out,
        hospitals=2,
        rounds=options.rounds,
        seed=7,
        boards=parse_boards(BOARDS),
        link={"rate": 250_000.0, "latency": 0.03},
    )
    return play_days(Days(job=job, days=options.days, budget=budget), print)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, value in (("days", 30), ("devices", 8), ("rounds", 120)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        traces = Path(folder) / "traces"
        made = write_traces(traces, devices=options.devices, seed=7, minutes=3)
        write_nights(traces, tuple(one.device for one in made), options.days, 7)
        found = {
            "with the budget": play(traces, Path(folder) / "budget", options, BUDGET),
            "without": play(traces, Path(folder) / "free", options, replace(TrainingBudget(), calm=0.0)),
        }
    for name, result in found.items():
        rounds = sum(row["kind"] == "round" for row in result["rounds"])
        took = f"{rounds} rounds in {result['days']:.1f} days, {result['wall_seconds']:.0f} s"
        print(f"\n{name}: {took}; {result['accuracy']}")
        print(days_lines(result))
    print(json.dumps({name: result["boards"]["rows"] for name, result in found.items()}))


if __name__ == "__main__":
    main()
