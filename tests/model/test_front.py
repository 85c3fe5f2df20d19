"""The front of a bundle on a device: computed once for bound samples, within its limit, and never with other bits."""

import logging
import re
import weakref

import numpy as np
import pytest
import torch

from edge_sdk.errors import UsageError
from edge_sdk.model import front
from edge_sdk.model.bundle import BundleError, parse
from edge_sdk.model.manifest import FROM_FRONT, FRONT
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.zoo.features import FeatureNetwork
from edge_sdk.replay.planning.bundles import find_shipped_bundle
from edge_sdk.tools.bundle_commands import describe, format_cost, verify
from edge_sdk.tools.profiling.step_cost import measure
from tests.model.bundle_files import repacked

COUNT = 70
RANDOM = np.random.default_rng(2)
X, Y = RANDOM.standard_normal((COUNT, 3, 16)).astype(np.float32), RANDOM.integers(0, 4, COUNT)


@pytest.fixture(scope="module")
def bundle():
    torch.manual_seed(1)
    net = FeatureNetwork((3, 16), 4, 8).eval()
    return parse(compile_module(net, Spec("features", (3, 16), 4), search=1).data)


@pytest.fixture
def computed(monkeypatch):
    """Numbers of samples whose front was computed, call by call."""
    found, compute = [], front.compute_front

    def counting(model, rows):
        found.append(len(rows))
        return compute(model, rows)

    monkeypatch.setattr(front, "compute_front", counting)
    return found


def answers(model, bound):
    """What training and judging come to."""
    theta = model.theta0 + np.float32(0.01)
    loss, grad = model.grad_fn(bound, Y)(theta, np.arange(20))
    return loss, grad.tobytes(), model.score(bound, Y)(theta), model.predict_fn(bound)(theta).tobytes()


def test_all_that_is_bound_to_samples_shares_one_front(bundle, computed):
    model = Model(bundle)
    bound = model.bind(X)
    assert model.bind(bound) is bound and computed == []
    assert [answers(model, bound) for _ in range(3)] == [answers(model, bound)] * 3
    assert computed == [COUNT]


def test_steps_run_the_graph_behind_the_front_alone(bundle):
    model = Model(bundle)
    step = model.grad_fn(X, Y)
    step(model.theta0)
    model._sessions = {name: s for name, s in model._sessions.items() if name == f"loss_grad{FROM_FRONT}"}
    step(model.theta0, np.arange(5))
    assert list(model._sessions) == [f"loss_grad{FROM_FRONT}"]


def test_a_front_above_the_limit_is_not_kept_and_changes_nothing(bundle, computed, caplog):
    model = Model(bundle)
    wanted = answers(model, X)
    computed.clear()
    model.kept_limit = COUNT * model.front_bytes - 1
    with caplog.at_level(logging.INFO):
        bound = model.bind(X)
        assert answers(model, bound) == answers(model, bound) == wanted
    assert computed == [] and [bound.keeps] == [False]
    assert len(re.findall(f"the front of {COUNT} samples takes {COUNT * model.front_bytes} bytes", caplog.text)) == 1


def test_of_samples_that_come_in_parts_only_the_front_is_kept(bundle, computed):
    model = Model(bundle)
    whole = model.grad_fn(X, Y)
    parts = front.bind_parts(model, (X[a:b] for a, b in ((0, 9), (9, 10), (10, COUNT))), COUNT, "loss_grad")
    assert computed == [9, 1, front.FRONT_BATCH, COUNT - 10 - front.FRONT_BATCH]
    assert len(parts) == COUNT and not hasattr(parts, "rows")
    for rows in (None, np.array([3, 69, 9, 9])):
        (loss, grad), wanted = model.grad_fn(parts, Y)(model.theta0, rows), whole(model.theta0, rows)
        assert loss == wanted[0] and grad.tobytes() == wanted[1].tobytes()
    with pytest.raises(UsageError, match="graph 'vjp' begins with the data, and only its front was kept"):
        parts.choose("vjp")
    for count in (COUNT - 1, COUNT + 1):
        with pytest.raises(UsageError, match=f"the {count} that were said|{COUNT} samples in the parts, {count} were"):
            front.bind_parts(model, [X], count, "loss_grad")


def test_a_part_is_given_up_before_the_next_one_is_made(bundle):
    made, half = [], COUNT // 2

    def make(begin):
        assert not [one for one in made if one() is not None]
        found = X[begin : begin + half].copy()
        made.append(weakref.ref(found))
        return found

    front.bind_parts(Model(bundle), (make(begin) for begin in (0, half)), COUNT, "loss_grad")
    assert len(made) == 2


def test_samples_in_parts_are_kept_whole_where_their_front_is_not(bundle, computed):
    model = Model(bundle)
    model.kept_limit = COUNT * model.front_bytes - 1
    assert front.bind_parts(model, [X[:9], X[9:]], COUNT, "loss_grad").rows.tobytes() == X.tobytes()
    assert front.bind_parts(Model(bundle), [X[:9], X[9:]], COUNT, "vjp").rows.tobytes() == X.tobytes()
    assert computed == []


def test_a_machine_that_rounds_otherwise_begins_with_the_data(bundle, monkeypatch, caplog):
    wanted = answers(Model(bundle), X)
    monkeypatch.setattr(front, "is_same", lambda some, others: False)
    model = Model(bundle)
    assert not model.has_front and "features: its front is computed in each step" in caplog.text
    assert answers(model, X) == wanted


def test_without_golden_vectors_there_is_no_front(bundle):
    model = Model(bundle, check=False)
    assert not model.has_front and not model.bind(X).keeps


def test_a_bundle_without_a_front_works_as_before(bundle):
    wanted = answers(Model(bundle), X)
    graphs = {name: entry for name, entry in bundle.manifest["graphs"].items() if "front" not in name}
    plain = Model(parse(repacked(bundle, {"front": [], "graphs": graphs})))
    assert not plain.has_front and answers(plain, X) == wanted


def test_what_is_kept_can_be_read(bundle, tmp_path):
    model = Model(bundle)
    kept = model.front(X)
    assert kept.dtype == np.float32 and kept.nbytes == COUNT * model.front_bytes
    assert f"front computed once for each sample, {model.front_bytes} bytes of which are kept" in describe(bundle)
    (tmp_path / "a.bundle").write_bytes(repacked(bundle))
    assert "golden vectors pass" in verify(tmp_path / "a.bundle")
    assert re.search(r"training step \d+\.\d+ ms behind a front of", format_cost(measure(tmp_path / "a.bundle", 4)))
    with pytest.raises(UsageError, match="has no graph 'front'"):
        Model(find_shipped_bundle("wrist.bundle"), check=False).front(X)


def test_no_samples_have_an_empty_front(bundle):
    model = Model(bundle)
    assert model.front(X[:0]).shape == (0, model.front_bytes // 4)
    assert model.predict_fn(X[:0])(model.theta0).shape == (0, 4)


VALUE = {"name": "front.0", "shape": [52], "dtype": "float32"}


@pytest.mark.parametrize(
    "entries",
    [
        "front",
        [1],
        [{**VALUE, "name": "x"}],
        [{**VALUE, "dtype": "float16"}],
        [{**VALUE, "shape": ["B"]}],
        [{**VALUE, "shape": [0]}],
        [{**VALUE, "shape": [1 << 20]}],
        [{}],
    ],
)
def test_a_manifest_that_lists_another_front_is_refused(bundle, entries):
    with pytest.raises(BundleError, match="front"):
        parse(repacked(bundle, {"front": entries}))


def test_a_front_that_nothing_begins_behind_is_refused(bundle):
    graphs = {k: v for k, v in bundle.manifest["graphs"].items() if k != f"loss_grad{FROM_FRONT}"}
    with pytest.raises(BundleError, match="has a graph loss_grad"):
        parse(repacked(bundle, {"graphs": graphs}))
    with pytest.raises(BundleError, match="the graph front gives"):
        parse(repacked(bundle, {"graphs": {k: v for k, v in graphs.items() if k != FRONT}}))
