"""Files as loggers and spreadsheets write them, to a report: import, check, replay.

Without a folder of your own it makes one up: semicolons, decimal commas and lines above the header beside milliseconds
since 1970, some rows twice. What nobody says is found by looking, and told; `traces/import.toml` keeps it.
"""

import csv
import sys
from datetime import UTC, datetime
from pathlib import Path

import edge_sdk as auscult
from edge_sdk.cli import main as command


def write_as_logger(file: Path, trace: Path, spreadsheet: bool) -> None:
    """Writes a trace (time, ax, ay, az, activity) in one of two dialects."""
    lines = ["Logger 7\nleft wrist\nTime;ax;ay;az;Label\n" if spreadsheet else "time_ms,ax,ay,az,label\n"]
    with trace.open(newline="") as rows:
        for time, *axes, activity in list(csv.reader(rows))[1:]:
            if spreadsheet:
                cells = [time.replace("T", " "), *axes]
                line = ";".join([*(cell.replace(".", ",") for cell in cells), activity])
            else:
                at = datetime.fromisoformat(time).replace(tzinfo=UTC).timestamp()
                line = ",".join([f"{1000 * at:.0f}", *axes, activity])
            lines += [f"{line}\n"] * (2 if len(lines) % 1000 == 0 else 1)
    file.write_text("".join(lines))


def make_up(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    traces = sorted(Path(auscult.Fleet.synthetic(devices=6, minutes=6).data).glob("*.csv"))
    for number, trace in enumerate(traces):
        write_as_logger(folder / f"wearer {number + 1}.csv", trace, spreadsheet=number % 2 == 0)
    return folder


loggers = Path(sys.argv[1]) if len(sys.argv) > 1 else make_up(Path("loggers"))
for line in (
    ["traces", "import", str(loggers), "traces"],
    ["traces", "check", "traces"],
    ["replay", "traces", *["--hospitals", "2", "--rounds", "50", "--out", "logged"]],
):
    if code := command(line):
        raise SystemExit(code)
