"""A recorder of an ECG, which learns from the marks of a cardiologist: python ecg_beats.py BUNDLE RECORD MARKS SPEED.

Windows of half a second lie within 0.35 s around a beat. The model: auscult bundle compile signal --input 1,64
--classes 2 --class-names normal,ventricular --rate 128 --channels ecg --units mV --stride 16 -o ecg.bundle
"""

import sys
import threading
from pathlib import Path

from edge_sdk import Device, LocalTraining, Recording
from edge_sdk.hardware.sensors.recording import Playback
from edge_sdk.hardware.sensors.sensor import SensorEnded, opened
from edge_sdk.hardware.sensors.wfdb import read_wfdb

bundle, record, marks, speed = sys.argv[1:]
signals = read_wfdb(Path(record))
device = Device(
    "holter-3",
    hospital="north",
    broker="mqtt://127.0.0.1:1883",
    bundle=bundle,
    directory="state/holter-3",
    training=LocalTraining(recording=Recording(sensor_hz=signals.rate_hz)),
)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")  # at once, unlike print: two threads write here
    sys.stdout.flush()


def show() -> None:
    for p in device.predictions(abstain=0.6):
        say(f"{p.time} {p.label or 'unsure'} {p.model}")


with device, opened(Playback(signals, float(speed), start=0.0)) as source:
    threading.Thread(target=show, daemon=True).start()
    for line in Path(marks).read_text().splitlines():
        seconds, kind = line.split()
        device.label(kind, float(seconds) - 0.35, float(seconds) + 0.35)
    try:
        while True:
            for reading in source.read(timeout=1.0):
                device.observe(reading.values, time=reading.time)
    except SensorEnded:
        device.flush()
    say(f"kept: {dict(device.count_windows())}")
    while not device.finished.wait(1.0) and not device.refusal:
        pass  # a run that wants more beats with a mark would be waited for, and here no more come
    say(f"finished: {device.refusal or 'the run is over'}")
