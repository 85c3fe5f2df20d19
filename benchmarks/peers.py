"""What things cost beside peers and floors, in one run, and the tables of the pages that show it.

    python benchmarks/peers.py --flower .flower/bin/python --flower-ray .flower-ray/bin/python --pfl .pfl/bin/python \\
        [--results FILE] [--only NAME ...] [--write]

A step of training beside torch (step.py), rounds of an empty loop beside raw paho and Flower (wire.py), simulated
clients beside a plain numpy loop, pfl-research and Flower (simulate.py), seconds to the first round of a replay
(first_round.py), and where the time of a round and of a simulated answer goes (stages.py, wire_without.py,
simulate_profile.py). They run one after the other, on a machine that should have nothing else to do: the loop alone
takes twelve minutes where a step of the wrist model takes 4 ms. `--results` keeps what was measured; what is in the
file is not measured again. `--write` puts the tables of what was measured, with date and machine, into README.md,
docs/speed.md and docs/simulate.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.trend import describe_machine
from benchmarks.trend_table import put_between
from benchmarks.wire_without import PARTS

ROOT = Path(__file__).parents[1]
Found = dict[str, Any]
"""Name of a benchmark -> what it has printed as JSON; "about": date and machine."""


def run(script: str, *words: str) -> list[str]:
    """The lines that a benchmark prints; what it says beside them is shown."""
    print(f"benchmarks/{script} {' '.join(words)}", file=sys.stderr, flush=True)
    command = [sys.executable, str(ROOT / "benchmarks" / script), *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


BENCHMARKS: Mapping[str, Callable[[argparse.Namespace], Any]] = {
    "step": lambda args: json.loads(run("step.py", "--json")[-1]),
    "loop": lambda args: [json.loads(line) for line in run("wire.py", "--json", "--flower", args.flower)],
    "start": lambda args: json.loads(run("first_round.py", "--blocks", "3", "--json")[-1]),
    "simulate": lambda args: json.loads(run("simulate.py", "--json", *simulators(args))[-1]),
    "million": lambda args: json.loads(
        run("simulate.py", "--json", "--model", "mlp", "--clients", "1000000", "--ours")[-1]
    ),
    "stages": lambda args: run("stages.py"),
    "parts": lambda args: run("wire.py", "--sizes", "10x10k", "--blocks", "5", "--without", *PARTS),
    "profile": lambda args: [json.loads(line) for line in run("simulate_profile.py", "--json") if '"shares"' in line],
}


def simulators(args: argparse.Namespace) -> list[str]:
    return ["--flower", args.flower_ray, "--pfl", args.pfl]


# Tables ------------------------------------------------------------------------------------------------------------
def write_rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *rows))


def tell_step(step: Mapping[str, Any]) -> tuple[str, str]:
    """The ratios to torch as installed and with its memory kept, and the memory of both, in words."""
    shares = [ms["device"] / ms[peer] for ms in step["ms"].values() for peer in ("torch", "torch tuned")]
    memory = step["memory_mb"]
    return f"{min(shares):.2f} to {max(shares):.2f}", f"{memory['device']:.0f} MB; torch {memory['torch']:.0f} MB"


def rates(simulate: Sequence[Mapping[str, Any]], model: str) -> dict[str, float]:
    """Participant -> simulated clients per second."""
    return {row["name"]: row["rate"] for row in simulate if row["model"] == model and row["rate"]}


def tell_rate(by_name: Mapping[str, float]) -> tuple[str, str]:
    """Our best rate, and by how much it is that of the others."""
    ours = max(rate for name, rate in by_name.items() if name.startswith(("auscult", "the same")))
    others = {"plain numpy loop": "of a plain numpy loop", "pfl-research": "x pfl-research", "Flower, Ray": "x Flower"}
    told = [
        f"{ours / by_name[name]:.2f} {words}" if name.startswith("plain") else f"{ours / by_name[name]:.1f} {words}"
        for name, words in others.items()
        if name in by_name
    ]
    return f"{ours:,.0f}", "; ".join(told)


def write_short(found: Found) -> str:
    """The table of README.md, with the rows that were measured."""
    loop = next(size for size in found["loop"] if size["size"] == "10x10k")["ours, full"]
    step, memory = tell_step(found["step"])
    rows = [
        ["a training step of the wrist model (78k parameters), one thread", f"{step} of torch eager's"],
        ["peak memory of a device process that trains", memory],
        [
            "rounds/s of an empty loop, 10 devices x 10,000 floats, saved on both sides before anything leaves",
            f"{loop['rounds_per_second']:.0f}: {loop['of raw paho']:.2f} of raw paho, {loop['of flower']:.1f} x Flower",
        ],
    ]
    if "simulate" in found:
        mlp, wrist = (tell_rate(rates(found["simulate"], model)) for model in ("mlp", "wrist"))
        told = f"{mlp[0]}: {mlp[1]}; {wrist[0]}: {wrist[1]}"
        rows.append(["simulated clients/s, a network of 36k; of 78k parameters", told])
    if "start" in found:
        seconds = {one["devices"]: one["first round"] for one in found["start"]}
        rows.append(["first round of a replay of 4; of 18 devices", f"{seconds[4]:.1f} s; {seconds[18]:.1f} s"])
    return write_rows(("what it costs (`make bench-peers`)", "figure"), rows)


LOOP_GOALS = {"2x10k": (0.45, 3.0), "10x10k": (0.45, 3.0), "50x10k": (0.45, 3.0), "10x1M": (None, 1.5)}
"""Size -> the shares of raw paho's and of Flower's rounds per second that we want."""


def write_loop(found: Found) -> str:
    """The table of docs/speed.md with rounds of the empty loop."""
    rows = list[list[str]]()
    for size in found["loop"]:
        raw, full, normal = size["raw paho"], size["ours, full"], size["ours, normal"]
        wanted = LOOP_GOALS.get(size["size"], (None, None))
        rows.append(
            [
                size["size"].replace("x", " x "),
                *(f"{each['rounds_per_second']:.1f}" for each in (raw, size["flower"], full)),
                *(
                    f"{full[peer]:.2f}{goal(want)}"
                    for peer, want in zip(("of raw paho", "of flower"), wanted, strict=True)
                ),
                f"{normal['of raw paho']:.2f}",
                f"{full['parent_cpu_ms']:.2f}, {full['child_cpu_ms']:.2f}",
            ]
        )
    heads = ["devices x floats", "raw paho, rounds/s", "Flower", "ours", "ours of raw paho", "ours of Flower"]
    return write_rows([*heads, 'the same, `durability = "normal"`', "our CPU ms: parent, a device"], rows)


def goal(wanted: float | None) -> str:
    return f" (goal {wanted:g})" if wanted else ""


def write_simulate(found: Found) -> str:
    """The table of docs/simulate.md."""
    names = dict.fromkeys(row["name"] for row in found["simulate"])
    by = {(row["name"], row["model"]): row for row in found["simulate"]}
    rows = list[list[str]]()
    for name in names:
        told = [by.get((name, model)) for model in ("mlp", "wrist")]
        rows.append([name, *(f"{each[key]:,.0f}" if each else "" for each in told for key in ("rate", "mb"))])
    million = found["million"][0]
    rows.append(["auscult simulate of 1,000,000 clients", f"{million['rate']:,.0f}", f"{million['mb']:,.0f}", "", ""])
    return write_rows(("", "MLP of 36k, clients/s", "MB, all", "wrist network of 78k, clients/s", "MB, all"), rows)


def write_profile(found: Found) -> str:
    """The table of docs/speed.md with what a simulated answer is spent on, in one process."""
    columns = list[dict[str, float]]()
    for profile in found["profile"]:
        total = cpu_us(found["simulate"], "auscult simulate", profile["model"])
        columns.append({part: share * total for part, share in profile["shares"].items()})
        columns[-1] |= {"all": total, "the steps by themselves": min(profile["steps_us"].values())}
        columns[-1]["all of a plain numpy loop"] = cpu_us(found["simulate"], "plain numpy loop", profile["model"])
    parts = dict.fromkeys(part for column in columns for part in column)
    rows = [[part, *(f"{column[part]:.0f}" if column.get(part) else "" for column in columns)] for part in parts]
    return write_rows(("a simulated answer, us of CPU", *(profile["model"] for profile in found["profile"])), rows)


def cpu_us(simulate: Sequence[Mapping[str, Any]], name: str, model: str) -> float:
    """Microseconds of processor time of an answer; 0: this participant has not that network."""
    found = [row["cpu_ms"] for row in simulate if (row["name"], row["model"]) == (name, model)]
    return 1e3 * found[0] if found else 0.0


@dataclass(frozen=True)
class PageTable:
    """A table of a page: what it is written of, and by what."""

    page: str
    needs: tuple[str, ...]
    write: Callable[[Found], str]


TABLES: Mapping[str, PageTable] = {
    "short": PageTable("README.md", ("step", "loop"), write_short),
    "loop": PageTable("docs/speed.md", ("loop",), write_loop),
    "stages": PageTable("docs/speed.md", ("stages",), lambda found: "\n".join(found["stages"])),
    "parts": PageTable("docs/speed.md", ("parts",), lambda found: "\n".join(found["parts"])),
    "profile": PageTable("docs/speed.md", ("profile", "simulate"), write_profile),
    "simulate": PageTable("docs/simulate.md", ("simulate", "million"), write_simulate),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, package in (("flower", "flwr"), ("flower-ray", "flwr[simulation]"), ("pfl", "pfl[pytorch]")):
        parser.add_argument(f"--{name}", required=True, metavar="PYTHON", help=f"of an environment with {package}")
    parser.add_argument("--results", type=Path, metavar="FILE", help="JSON in which what was measured is kept")
    parser.add_argument("--only", nargs="+", choices=tuple(BENCHMARKS), default=tuple(BENCHMARKS), help="(all)")
    parser.add_argument("--write", action="store_true", help="put the tables into the pages")
    args = parser.parse_args()
    found: Found = json.loads(args.results.read_text()) if args.results and args.results.exists() else {}
    found.setdefault("about", f"{time.strftime('%d %B %Y').lstrip('0')}, {describe_machine()}")
    for name in args.only:
        if name not in found:
            found[name] = BENCHMARKS[name](args)
            if args.results:
                args.results.write_text(json.dumps(found))
    for name, table in TABLES.items():
        if missing := [need for need in table.needs if need not in found]:
            print(f"{table.page} keeps its table {name!r}: {', '.join(missing)} not measured", file=sys.stderr)
            continue
        text = f"{table.write(found)}\n\n{found['about']}."
        print(text, end="\n\n")
        if args.write:
            put_between(ROOT / table.page, text, f"peers.py: {name}")


if __name__ == "__main__":
    main()
