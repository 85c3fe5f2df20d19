"""A wrist that says when something unusual happens, trained without any label.

A network learns to reconstruct what its wearers do, on their devices; where its error is above a threshold of the
device's own, something is unusual. Nobody has labelled anything: the column `event` of these generated recordings is
only looked at to say beside an alarm what really happened.
"""

import csv

import edge_sdk as auscult
from edge_sdk.cli import main as command

if __name__ == "__main__":
    for line in (
        "traces synth falls --kind falls --devices 4 --minutes 8",
        "replay falls --task reconstruction --hospitals 1 --method fedavg --set eta_l=0.3 --rounds 20 --out alarms",
    ):
        if code := command(line.split()):
            raise SystemExit(code)

    where = "alarms/devices/falls-01"  # what the device has learned; without `start` it calls nobody
    device = auscult.Device(
        "falls-01", hospital="hospital-1", broker="mqtt://127.0.0.1", bundle="alarms/model.bundle", directory=where
    )
    predictions, seen, began, alarms, model = device.predictions(), 0, 1_700_000_000.0, 0, ""
    with open("falls/falls-01.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for number, row in enumerate(rows):  # in place of a sensor
        device.observe([float(row[axis]) for axis in ("ax", "ay", "az")], time=began + number / 32)
        if number % 320 == 319:
            seen, before = sum(device.count_windows().values()), seen
            for one in (next(predictions) for _ in range(seen - before)):
                model = one.model
                if one.is_alarm and one.time is not None:
                    alarms, last = alarms + 1, round((one.time - began) * 32)
                    event = next((r["event"] for r in rows[last - 63 : last + 1] if r["event"]), "nothing")
                    print(f"{last / 32:6.0f} s: error {one.score:.3f}, threshold {one.threshold:.3f}: {event} noted")
    print(f"{alarms} alarms in {seen} windows by the {model} model")
    device.close()
