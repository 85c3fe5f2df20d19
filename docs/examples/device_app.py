"""A device's application, here without a network: readings as they come, a prediction, and a label hours later.

With `device.start()` it also takes part in the runs that its hospital offers; docs/your-app.md goes on from there.
"""

import csv
from collections import deque

import numpy as np

import edge_sdk as auscult
from edge_sdk.replay.planning.bundles import find_shipped_bundle

wrist = find_shipped_bundle("wrist.bundle") or "wrist.bundle"  # a network for the accelerometer of a wrist, 32 Hz
recording = f"{auscult.Fleet.synthetic(devices=1, minutes=6).data}/synth-01.csv"  # in place of a sensor

device = auscult.Device("watch-7", hospital="north", broker="mqtt://127.0.0.1", bundle=wrist, directory="watch-7")
window: deque[list[float]] = deque(maxlen=64)
began = 1_700_000_000.0
with open(recording, newline="") as file:
    rows = list(csv.DictReader(file))
for number, row in enumerate(rows):
    reading = [float(row[axis]) for axis in ("ax", "ay", "az")]
    window.append(reading)
    device.observe(reading, time=began + number / 32)  # never waits
    if number % 320 == 0:
        device.flush()  # a file is faster than a sensor
device.flush()

now = device.predict(np.array(window, np.float32).T)[0]
print("predicted", now.label, round(now.probability, 2), "by the model", now.model)
ended, activity = began + (len(rows) - 1) / 32, rows[-1]["activity"]
print("labelled", device.label(activity, ended - 20, ended), "windows as", activity)
device.close()
