"""Sets of labels that a device gives its own windows: probabilities of sets by their definition, and a fleet's run."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="bundles are compiled here")

from edge_sdk.algebra.ensemble import log_probabilities
from edge_sdk.contract.loopback import Loopback
from edge_sdk.contract.run import Run
from edge_sdk.data.samples import Unlabelled
from edge_sdk.errors import UsageError
from edge_sdk.methods.settling.labelling import label
from edge_sdk.methods.settling.self_training import LabelChoice
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.configuration.assembly import check_bundle, make_env, method_of
from edge_sdk.nodes.kernels.own_windows import from_bits, to_bits
from tests.label_sets import FINDINGS, compile_findings, draw, samples
from tests.nodes.device.output_tasks import make_device, make_run

SETTLE = {
    "label_times": 1,
    "label_every": 4,
    "label_weights": [0],
    "label_smooth": 1,
    "steps": [0],
    "local_steps": [20],
}
DEVICES = {"a1": 1, "a2": 2, "b1": 3}
LOOSE = 200


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_findings(tmp_path_factory.mktemp("findings") / "findings.bundle")


def run_of(bundle: Path, **more: object) -> Run:
    return make_run(
        bundle,
        FINDINGS.names,
        {"rounds": 12, "seed": 1, "settings": {"eta_l": 0.5, "local_epochs": 8}, "settle": SETTLE, **more},
    )


def env_of(bundle: Path, folder: Path, name: str, run: Run):
    """A device with 40 labelled samples, and 200 that nobody has labelled, in ten recordings."""
    seed = DEVICES[name]
    device = make_device(bundle, folder / name, [samples(40, seed), samples(60, seed + 10), samples(60, seed + 20)])
    loose = Unlabelled(draw(LOOSE, seed + 30)[0], np.repeat(np.arange(10), LOOSE // 10))
    device.train_on(samples(40, seed), samples(60, seed + 10), samples(60, seed + 20), loose)
    return device.part.env(run)


def test_what_a_model_says_of_a_set_is_its_probability_among_those_that_the_device_knows(
    bundle: Path, tmp_path: Path
) -> None:
    env = env_of(bundle, tmp_path, "a1", run_of(bundle))
    theta = np.random.default_rng(0).normal(size=env.layout.size).astype(np.float32)
    outputs, own = env.validation.logits(theta).astype(np.float64), env.own
    p = 1 / (1 + np.exp(-outputs))
    known = sorted({tuple(row) for row in from_bits(own.sets, 3).tolist()}, key=lambda row: to_bits(np.array([row]))[0])
    literal = np.stack([np.prod(np.where(np.array(one) > 0, p, 1 - p), 1) for one in known], 1)
    literal /= literal.sum(1, keepdims=True)
    np.testing.assert_allclose(np.exp(log_probabilities(own.judged.logits(theta))), literal, rtol=1e-5)
    labels = [tuple(row) for row in env.validation.labels.tolist()]
    assert [known[code] if code >= 0 else None for code in own.judged.labels] == [
        row if row in known else None for row in labels
    ]


def test_sets_are_whole_numbers_and_back() -> None:
    every = np.array([*product((0, 1), repeat=5)], np.float32)
    assert len({*to_bits(every).tolist()}) == 32
    np.testing.assert_array_equal(from_bits(to_bits(every), 5), every)
    most = np.ones((1, 62), np.float32)
    np.testing.assert_array_equal(from_bits(to_bits(most), 62), most)


def test_a_fleet_labels_its_own_windows_with_sets_that_are_right(bundle: Path, tmp_path: Path) -> None:
    run = run_of(bundle)
    check_bundle(run, read_bundle(bundle), "device")
    envs = {name: env_of(bundle, tmp_path, name, run) for name in DEVICES}
    device, tree = envs["a1"], {"a": ("a1", "a2"), "b": ("b1",)}
    for parent, sizes in (("a", {"a1": 1, "a2": 1}), ("b", {"b1": 1}), ("cloud", {"a": 2, "b": 1})):
        envs[parent] = make_env(run, device.layout, device.theta0, sizes=sizes)
    net = Loopback(method_of(run), tree, envs, {}, 0, root="cloud")
    (choice,) = [event for node, event in net.run().told if node == "cloud" and isinstance(event, LabelChoice)]
    assert choice.threshold > 0.5 and choice.right >= Settling.label_precision * choice.sure > 0
    w = net.nodes["cloud"].record.state
    while not hasattr(w, "values"):
        w = getattr(w, "inner", None) if hasattr(w, "inner") else w.model
    options = [(0.0, threshold) for threshold in Settling.label_thresholds]
    given = label(device, Settling(**{k: tuple(v) if isinstance(v, list) else v for k, v in SETTLE.items()}), w.values,
                  options.index((0.0, choice.threshold)))  # fmt: skip
    truth = draw(LOOSE, DEVICES["a1"] + 30)[1]
    said = from_bits(given.labels, 3)
    assert len(given.rows) > 20 and (said == truth[given.rows]).all(1).mean() > 0.85
    fields = device.own.taught(given.rows, given.labels)
    assert fields["samples"] == 40 + len(given.rows)
    loss, _ = fields["grad_fn"](w.values, np.arange(40, fields["samples"]))
    z = device.own.logits(w.values) @ np.linalg.pinv(from_bits(device.own.sets, 3).T)  # outputs, of sums over sets
    z = z[given.rows]
    assert loss == pytest.approx(float((np.maximum(z, 0) - z * said + np.log1p(np.exp(-np.abs(z)))).mean()), rel=1e-3)


@pytest.mark.parametrize(
    ("settle", "said"),
    [({"label_times": 1}, "set label_weights"), ({"label_times": 1, "label_weights": [0], "trees": 5}, "forests tell")],
)
def test_a_forest_is_no_teacher_of_sets(bundle: Path, settle: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=f"task labels: run.settle: .*{said}"):
        check_bundle(run_of(bundle, settle=settle), read_bundle(bundle), "device")
