"""A method of your own, in plain functions, beside others on the same data and seeds.

It is Ditto (Li et al., ICML 2021): each device trains the shared model w, and a model v of its own that is held near w.
"""

from typing import Any

import edge_sdk as auscult

OTHERS = [
    "fedavg", "perfedavg", "scaffold", "fedper", "fedrep", "fedbabu", "apfl", "feddyn", "fedala", "fedslr",
]  # fmt: skip


def local(device: Any, w: Any, own: Any) -> Any:
    v = w if own is None else own
    s = device.settings
    return device.sgd(w), device.sgd(v, epochs=s.personal_epochs, near=w, pull=s.nearness)


mine = auscult.method("my-ditto", local=local, settings={"nearness": 0.1, "personal_epochs": 5, "local_epochs": 5})

data = auscult.Fleet.dataset("breast-cancer", devices=3, samples=20)
# Each method by itself, without anything that is recommended beside it, and without the best that a device does alone.
play: dict[str, Any] = dict(rounds=20, seeds=3, plain=True, neighbours=0)
others = [auscult.simulate(data, name, **play) for name in OTHERS]
found = auscult.compare(auscult.simulate(data, mine, **play), *others)
for name, models in found.differences.items():
    if "personalised" in models:
        d = models["personalised"]
        print(f"{name:10} {100 * d['mean']:+5.1f} points [{100 * d['low']:+.1f}, {100 * d['high']:+.1f}] against mine")
