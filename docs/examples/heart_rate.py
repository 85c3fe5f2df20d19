"""A network that predicts a number: the heart rate of eight seconds of a wrist's pulse and movement, in bpm.

From recordings (here generated ones, with what a chest strap would say) to mean absolute errors in bpm, and to a device
that predicts with its own model, with an interval that the truth lies in about nine times in ten.
"""

import json
import math
from pathlib import Path

import torch
from torch import nn

import edge_sdk as auscult
from edge_sdk.cli import main as command
from edge_sdk.data.traces.read import read_trace


class Pulse(nn.Module):
    """Windows (4 channels, 256 readings at 32 Hz), by their spectra from 30 to 220 per minute."""

    def __init__(self) -> None:
        super().__init__()
        phase = 2 * math.pi * (torch.arange(256) / 32)[:, None] * (torch.arange(30, 221, 5) / 60)
        window = torch.hann_window(256)[:, None] / 64
        self.register_buffer("cos", torch.cos(phase) * window, persistent=False)
        self.register_buffer("sin", torch.sin(phase) * window, persistent=False)
        self.body = nn.Sequential(nn.Linear(4 * 39, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x - x.mean(2, keepdim=True)
        power = (x @ self.cos).square() + (x @ self.sin).square()  # type: ignore[operator]
        return self.head(self.body(torch.log(power + 1e-3).flatten(1) / 4))  # type: ignore[no-any-return]


if __name__ == "__main__":
    asked = "--target heart_rate --unit bpm --window 256 --stride 64 --hospitals 2 --method fedavg"
    size = "--input 4,256 --task value --unit bpm --range 40,180"
    for line in (
        ["traces", "synth", "heart", "--kind", "heart-rate", "--devices", "8"],
        ["bundle", "compile", f"{__file__}:Pulse", *size.split(), "-o", "pulse.bundle"],
        f"replay heart {asked} --bundle pulse.bundle --rounds 150 --out beats".split(),
    ):
        if code := command(line):
            raise SystemExit(code)
    for model, errors in json.loads(Path("beats/result.json").read_text())["values"]["models"].items():
        print(f"{model:14} {errors['heart_rate']['mae']:5.2f} bpm")

    trace = read_trace("heart/heart-01.csv", label=None)
    sensors, truth = trace.values[None, -256:, :4].transpose(0, 2, 1), trace.values[-256:, 4].mean()
    where = "beats/devices/heart-01"  # what the device has learned; without `start` it calls nobody
    device = auscult.Device(
        "heart-01", hospital="hospital-1", broker="mqtt://127.0.0.1", bundle="pulse.bundle", directory=where
    )
    now = device.predict(sensors)[0]
    device.close()
    bpm = now.value
    print(f"{now.model}: {bpm.value:.0f} {bpm.unit}, {bpm.low:.0f} to {bpm.high:.0f}; the strap said {truth:.0f}")
