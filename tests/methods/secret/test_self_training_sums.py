"""Secret sums of what self-training adds up: means of features, and counts of what devices would label."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from edge_sdk.contract.environment.samples import Labelled, OwnWindows
from edge_sdk.errors import PeerError
from edge_sdk.methods.secret.messages.forms import FeatureSumsKind, Flat
from edge_sdk.methods.secret.messages.messages import Masked, MaskedSum, NumberedQuestion
from edge_sdk.methods.settling.counting import Counts
from edge_sdk.methods.settling.self_training import LabelChoice
from edge_sdk.methods.shared.evaluation import evaluation
from edge_sdk.methods.standardising.equations import own_sums
from edge_sdk.methods.standardising.messages import FeatureSums, WithStatistics
from edge_sdk.nodes.configuration.assembly import method_of, settings_of
from tests.methods.problems import DEVICES, PATIENT, play, told
from tests.methods.secret.parties import SIZES, TREE, masks_of, run_of
from tests.methods.secret.test_secret import outcome
from tests.methods.settling.problems import PARTS, network
from tests.methods.test_standardising import LAYOUT, gradient, logits, means

SETTLE = {
    "steps": [0, 5], "local_steps": [5], "batch": 8, "trees": 5, "copies": 0, "statistics": True,
    "label_times": 1, "label_every": 1, "label_thresholds": [0.4], "label_precision": 0.2,
}  # fmt: skip
ENV = SimpleNamespace(layout=LAYOUT)
SIZE = 10


def sums(value: float, devices: int = 1) -> FeatureSums:
    return FeatureSums(np.full(SIZE, round(value * 2**20)), np.arange(SIZE) - 5, devices)


def test_means_add_up_below_zero_too():
    found = opened_of(sums(-1.5), sums(0.25), sums(-3.0))
    assert found.devices == 3 and found.high.tolist() == [round(-4.25 * 2**20)] * SIZE
    assert found.low.tolist() == [3 * (k - 5) for k in range(SIZE)]


def opened_of(*messages):
    kind, form = FeatureSumsKind(), FeatureSumsKind().form(ENV, messages[0])
    flats = [kind.flatten(form, m) for m in messages]
    return kind.restore(form, len(messages), Flat(flats[0].steps, sum(f.words for f in flats)), 3)


def test_means_of_few_devices_open_as_none():
    none = FeatureSums(*np.zeros((2, SIZE), np.int64), 0)
    few = opened_of(sums(2.0), none, none)
    assert (few.high.tolist(), few.low.tolist(), few.devices) == ([0] * SIZE, [0] * SIZE, 0)


def test_what_is_no_such_sum_is_refused():
    with pytest.raises(PeerError, match="means of 9 devices in a sum of 3"):
        opened_of(sums(1.0, 3), sums(1.0, 3), sums(1.0, 3))
    with pytest.raises(ValueError, match="means of 2 features, the model standardises 5"):
        FeatureSumsKind().flatten(FeatureSumsKind().form(ENV, sums(1.0)), FeatureSums(*np.zeros((2, 4), np.int64), 1))


def test_a_device_without_features_sends_as_many_numbers_as_others():
    found = own_sums(SimpleNamespace(layout=LAYOUT, feature_means=None, me="d"))
    assert found.high.size == found.low.size == SIZE and found.devices == 0


# Whole runs -----------------------------------------------------------------------------------------------------
def labelled(part):
    return Labelled(part.y, lambda theta: logits(theta, part.x), lambda: part.x)


def own(train, loose):
    def taught(rows, labels):
        x, y = np.concatenate([train.x, loose.x[rows]]), np.concatenate([train.y, labels])
        return {"grad_fn": gradient(x, y), "samples": len(y)}

    features = lambda copies, random: train.x  # noqa: E731
    recording = np.repeat(np.arange(4), 10)
    return OwnWindows(train.y, features, 40, recording, lambda: loose.x, lambda w: logits(w, loose.x), taught)


def envs(run):
    """Devices that have labelled and unlabelled samples; nodes have their keys where the run is secret."""
    method, settings = method_of(run), settings_of(run)
    common = dict(seed=7, rounds=run.rounds, layout=LAYOUT, settings=settings, outputs=3)
    common |= {"theta0": np.zeros(LAYOUT.size, np.float32)}
    found = {"aggregator": method.env(**common, sizes=SIZES)}
    found |= {h: method.env(**common, sizes=dict.fromkeys(devices, 1)) for h, devices in TREE.items()}
    for i, d in enumerate(DEVICES):
        train, validation, test = PARTS[d]
        loose = network(np.random.default_rng([9, i]), np.unique(train.y), 40)
        found[d] = method.env(
            **common, grad_fn=gradient(train.x, train.y), samples=len(train.y), own=own(train, loose),
            feature_means=lambda x=train.x: means(x), validation=labelled(validation), held_out=labelled(test),
            own_classes=tuple(int(c) for c in np.unique(np.concatenate([train.y, validation.y]))),
            score=lambda theta, t=test: {
                "samples": len(t.y), "correct": int((logits(theta, t.x).argmax(1) == t.y).sum()), "loss": 0.0
            },
        )  # fmt: skip
    if run.uploads.get("secret"):
        found |= {n: replace(found[n], masks=masks_of(n)) for n in ("aggregator", *DEVICES)}
    return found


def test_it_is_the_same_as_in_the_clear_to_the_bit(monkeypatch):
    monkeypatch.setattr(evaluation, "judge_personal", lambda models, sums: {})
    found = []
    for secret in (True, False):
        run = run_of("fedavg", rounds=3, secret=secret, settle=SETTLE)
        net, trace = play(method_of(run), settings_of(run), run.rounds, policies=PATIENT, tree=TREE, envs=envs(run))
        found.append((outcome(net, trace), told(trace, LabelChoice), trace))
    assert found[0][0] == found[1][0]
    (choice,) = found[0][1]
    assert choice.threshold and choice.devices == 5  # the sixth knows one class, and judges nothing
    up = [m for sender, _, m in found[0][2].crossed if sender in DEVICES]
    assert not [m for m in up if isinstance(m, (FeatureSums, Counts))]
    kinds = {m.form.kind for m in up if isinstance(m, Masked)}
    assert {"FeatureSums", "Counts", "Scores"} <= kinds
    down = [m.question for _, to, m in found[0][2].crossed if to in DEVICES and isinstance(m, NumberedQuestion)]
    assert sum(isinstance(m, WithStatistics) for m in down) >= len(DEVICES)
    assert any(isinstance(m, MaskedSum) for _, _, m in found[0][2].crossed)
