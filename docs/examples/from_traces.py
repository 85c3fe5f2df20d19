"""A folder of recordings, one file for each person, to a comparison and a page to look at."""

import sys
from pathlib import Path
from typing import Any

import edge_sdk as auscult

folder = sys.argv[1] if len(sys.argv) > 1 else auscult.Fleet.synthetic(devices=6, minutes=6).data
data = auscult.Fleet.from_traces(folder, window=64, stride=32)
print(data)

play: dict[str, Any] = dict(rounds=20, hospitals=2)
together = auscult.simulate(data, name="recommended", **play)
plain = auscult.simulate(data, "fedavg", plain=True, name="plain FedAvg", **play)
found = auscult.compare(plain, together)
print(found)
Path("comparison.html").write_text(f"<!doctype html><meta charset='utf-8'>{found._repr_html_()}")
print("report", together.save("recommended") / "report.html")
