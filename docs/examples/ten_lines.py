"""Arrays of some people: does it pay them to learn together?"""

import numpy as np

import edge_sdk as auscult


def record(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Windows of four movements, float (60, 3 channels, 64 readings), and which movement each is."""
    random, y = np.random.default_rng(seed), np.tile(np.arange(4), 15)
    beat = np.sin(np.arange(64) * (y[:, None] + random.uniform(1.3, 1.6)) / 6 + random.uniform(0, 6, (60, 1)))
    return beat[:, None, :] + random.normal(0, 1.5, (60, 3, 64)), y


people = {name: record(seed) for seed, name in enumerate(["ann", "bob", "cem", "dan", "eve", "fay"])}
data = auscult.Fleet.from_arrays(people)
run = auscult.simulate(data)
print(run)
print(run.devices["ann"].predict(people["ann"][0][:8].astype("float32")).labels)
