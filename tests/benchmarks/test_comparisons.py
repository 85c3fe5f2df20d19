"""The comparisons of docs/methods.md on problems of a second: equal work, choices on validation, switches that act."""

import argparse
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from benchmarks import combination, fedal, fedbcd, fleet
from benchmarks.fleet import Fleet
from benchmarks.holders import Holder, Part
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.model.model import Model
from edge_sdk.replay.planning.bundles import compile_network

SETTLING = Settling(batch=0, steps=(0, 3), local_steps=(3, 6), rate=0.01)


@pytest.fixture(scope="module")
def small():
    """Four devices with two classes of 30 numbers: the network of other tests, which is compiled once."""
    model = Model(compile_network("mlp", ["--input", "30", "--classes", "2"], 0, lambda text: None))
    random = np.random.default_rng(0)
    centres = random.normal(size=(2, 30))

    def part(n):
        y = np.arange(n) % 2
        x = (centres[y] + random.normal(size=(n, 30))).astype(np.float32)
        return Part(x, y, np.zeros(n, np.int64))

    return Fleet(model, [Holder(f"d{i}", part(12), part(9), part(15)) for i in range(4)])


# A fleet --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedavg", {"local_epochs": 6}),
        ("scaffold", {"local_steps": 6}),
        ("ditto", {"local_epochs": 3, "personal_epochs": 3}),
        ("fedrep", {"local_epochs": 3, "head_epochs": 3}),
        ("apfl", {"local_epochs": 3}),
        ("fedslr", {"local_epochs": 6, "personal_epochs": 0}),
    ],
)
def test_every_method_computes_the_same_number_of_gradients(small, name, settings):
    played = fleet.play(small, name, {"batch": 0, **settings}, 4, 0, every=2)
    assert played.gradients == 4 * 6
    assert [p.round for p in played.curve] == [2, 4]
    assert 0 < played.curve[0].cost < played.curve[1].cost == played.megabytes


def test_the_evaluation_of_fedbabu_is_not_counted(small):
    played = fleet.play(small, "fedbabu", {"batch": 0, "local_epochs": 6}, 4, 0, every=1)
    assert played.gradients == 4 * 6 and played.own


def test_test_samples_choose_nothing(small):
    """Whatever labels they have, the same candidate is chosen."""
    start = dict.fromkeys(small.fields, small.model.theta0)
    found = []
    for turn in (0, 1):
        holders = [replace(h, test=replace(h.test, y=(h.test.y + turn) % 2)) for h in small.holders]
        some = Fleet(small.model, holders)
        walks = fleet.walks_of(some, SETTLING, 0, start)
        found.append(fleet.settle(some, SETTLING, walks, fleet.walks_of(some, SETTLING, 0, None), start))
    assert found[0].choice == found[1].choice and found[0].right == found[1].right
    assert found[0].personal != found[1].personal


def test_settling_says_how_dense_its_component_is(small):
    start, s = dict.fromkeys(small.fields, small.model.theta0), replace(SETTLING, steps=(3,), local_weights=(0.0,))
    local = fleet.walks_of(small, s, 0, None)
    dense = replace(s, personal="dense")
    assert fleet.settle(small, dense, fleet.walks_of(small, dense, 0, start), local, start).density > 0.9
    sparse = fleet.settle(small, s, fleet.walks_of(small, s, 0, start), local, start)
    assert 0.1 < sparse.density < 0.3  # the head, which is a quarter of this model, is never left out


# FedBCD ---------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def images():
    random = np.random.default_rng(1)
    x, y = random.normal(size=(60, 784)).astype(np.float32), np.arange(60) % 10
    own = {d: (random.normal(size=(32, 784)).astype(np.float32), np.arange(32) % 3) for d in fedbcd.NAMES}
    labels = {d: np.arange(3) for d in fedbcd.NAMES}
    return fedbcd.Data(own, {d: (a[:5], b[:5]) for d, (a, b) in own.items()}, x, y, labels)


@pytest.mark.long
@pytest.mark.parametrize("name", ["FedBCD", "FedBCD-I", "FedAvg"])
def test_a_run_ends_when_its_epochs_are_spent(images, name):
    """FedBCD-I trains without being asked; these epochs count as well."""
    model = Model(compile_network("mlp", ["--input", "784", "--classes", "10"], 0, lambda text: None))
    scheme = fedbcd.SCHEMES[name]
    reached = fedbcd.played(model, images, scheme, scheme.trials[0], 0, 2.0)
    assert 2.0 <= reached.epochs < 6.0 and len(reached.own) == 100
    if name == "FedAvg":
        assert all(x is reached.shared for x in reached.own.values())


# FedAL ----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def outlines(tmp_path_factory):
    """Ten devices' outlines of 14 x 14, and the networks that are dealt to them."""
    random = np.random.default_rng(2)

    def part(n):
        return random.normal(size=(n, *fedal.SHAPE)).astype(np.float32), np.arange(n) % fedal.CLASSES

    names = [d for devices in fedal.tree().values() for d in devices]
    data = fedal.Data({d: part(40) for d in names}, {d: part(10) for d in names}, part(64)[0], part(20))
    return data, fedal.models_of(list(fedal.NETWORKS), tmp_path_factory.mktemp("networks"))


def test_a_curve_ends_at_the_bytes_of_the_run(outlines):
    data, models = outlines
    for trained in (fedal.distilled(data, models, {}, 10, 0), fedal.averaged(data, models[0], 0.1, 4, 0)):
        assert [p.round for p in trained.curve] == list(range(1, len(trained.curve) + 1))
        assert trained.curve[-1].cost == pytest.approx(trained.bytes / 1e3)
        assert trained.curve[0].cost == pytest.approx(trained.bytes / 1e3 / len(trained.curve))


def test_a_row_has_the_settings_of_its_own_trials():
    """The frozen discriminator keeps FedAL's but for its step, and what no row asks for is not tried."""
    asked = []

    class Chosen(fedal.Bench):
        def chosen(self, name):
            asked.append(name)
            return {"of": name, "eta_d": 0.1}

    bench = Chosen(argparse.Namespace(json=None), [])
    assert bench.settings_of("FedAL, frozen discriminator") == {"of": "FedAL", **fedal.FROZEN}
    assert bench.settings_of("FedAvg, equal steps") == {"of": "FedAvg", "eta_d": 0.1}
    assert bench.settings_of("alone") == {} and asked == ["FedAL", "FedAvg"]
    assert {tried for tried in fedal.ROWS.values() if tried} == set(fedal.TRIALS)


# The combination ------------------------------------------------------------------------------------------------
def test_no_effect_of_a_switch_is_mixed_up_with_another_or_with_a_pair():
    """Resolution V: signs of switches and of pairs of switches are orthogonal over the runs."""
    half = combination.half()
    assert len(half) == 16 and frozenset(combination.SWITCHES) in half
    signs = {s: np.array([1 if s in on else -1 for on in half]) for s in combination.SWITCHES}
    pairs = {a + b: signs[a] * signs[b] for a, b in combinations(signs, 2)}
    columns = np.array([*signs.values(), *pairs.values()])
    assert np.array_equal(columns @ columns.T, 16 * np.eye(len(columns)))


def test_first_b_has_more_closes_and_a_step_that_decays_as_far():
    weights = {name: values[0] for name, values in combination.WEIGHTS.items()}
    (_, every), (_, first) = (
        combination.settings_of(on, weights) for on in (combination.NONE, frozenset({"consensus"}))
    )
    longer = first["shared"]["decay"] ** round(combination.LONGER * 30)
    assert longer == pytest.approx(every["shared"]["decay"] ** 30)
    assert first["shared"]["cloud"] == "first-b" and "cloud" not in every["shared"]


def test_an_effect_is_found_beside_a_larger_one():
    """Its interval is of what is left when all five are taken out."""
    random = np.random.default_rng(0)
    found = {
        on: [{"rank": 3.0 * ("prox" in on) + 40.0 * ("consensus" in on) + 0.1 * random.normal()}]
        for on in combination.half()
    }
    mean, low, high = (float(v.strip("[],")) for v in combination.effect(found, "prox", "rank").split())
    assert 2.8 <= low <= mean <= high <= 3.2
    mean, low, high = (float(v.strip("[],")) for v in combination.effect(found, "outputs", "rank").split())
    assert low <= 0 <= high and high - low < 0.4
