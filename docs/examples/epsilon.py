"""Noise in uploads: what an epsilon costs in accuracy, with sums that no hospital looks into."""

from typing import Any

import edge_sdk as auscult

data = auscult.Fleet.dataset("breast-cancer", devices=40, samples=10)
play: dict[str, Any] = dict(rounds=20, seeds=3, plain=True, neighbours=0, hospitals=1)
runs = [auscult.simulate(data, "fedavg", name="no noise", **play)]
for epsilon in (1000, 100, 10):
    privacy = {"clip": 0.3, "epsilon": epsilon}  # the length of an upload, and what the whole run may tell of a device
    runs.append(auscult.simulate(data, "fedavg", name=f"epsilon {epsilon}", privacy=privacy, **play))
found = auscult.compare(*runs)
for name, models in found.differences.items():
    d = models["global"]
    print(f"{name:12} {100 * d['mean']:+5.1f} points [{100 * d['low']:+.1f}, {100 * d['high']:+.1f}]")
