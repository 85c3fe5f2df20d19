"""The table of networks that nobody here wrote: one command prints all of it, from several runs."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import foreign

ERRORS = {"parameters": 1234, "compile_s": 2.5, "kB": 45.0, "float64": 1e-9, "rounding": 1.25, "one_draw": 7.0}
TIMES = {"load_s": 0.5, "ms": 3.0, "torch_ms": 6.0, "ratio": 0.52, "MB": 80.0}


def print_table(monkeypatch, capsys, file, rows):
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    monkeypatch.setattr(sys, "argv", ["foreign.py", "EEGNet", "TIDNet", "--table", "--json", str(file)])
    assert foreign.main() == 0
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()]


def test_errors_and_times_of_two_runs_are_one_row_under_one_head(monkeypatch, capsys, tmp_path):
    rows = [
        {"name": "EEGNet", "part": "errors", **ERRORS},
        {"name": "EEGNet", "part": "times", **TIMES},
        {"name": "TIDNet", "part": "errors", **ERRORS},
        {"name": "TIDNet", "part": "times", "error": "more than 600 s of a processor"},
    ]
    head, line, first, second = print_table(monkeypatch, capsys, tmp_path / "rows.json", rows)
    assert len(head) == len(line) == len(first) == len(second)
    told = dict(zip(head, first, strict=True))
    assert told["network"] == "EEGNet" and told["parameters"] == "1,234" and told["worst"] == "7"
    assert told["ms"] == "3.0" and told["torch ms"] == "6.0" and told["ratio"] == "0.52" and told["MB"] == "80"
    assert dict(zip(head, second, strict=True)) == told | {"network": "TIDNet"} | dict.fromkeys(
        ("load s", "ms", "torch ms", "ratio", "MB"), "-"
    )
