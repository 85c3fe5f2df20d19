"""The aggregator's regularisers: literal formulas, finite differences, memory, and what settings make of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from aggregator.private_model import table as private
from aggregator.private_model.checkpoint import ModelOutputs, Watcher, checkpoint, named, said_of
from aggregator.private_model.crd import Crd, CrdOptions, in_batch
from aggregator.private_model.regulariser import ComparedBatch, Distilled, KdOptions, SquaredDistance, Stateless, kd
from aggregator.private_model.torch_graph import TorchGraph
from edge_sdk.contract.loopback import Loopback
from edge_sdk.contract.round import Policy
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.augfl.method import AUGFL
from edge_sdk.methods.shared.evaluation import evaluated
from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.nodes.private_table import Private
from edge_sdk.wire.codec.codec import Codec
from models.bundle.compile import compile_module
from models.ir.spec import Spec

SAMPLES, INPUTS, CLASSES, TEACHER, STUDENT = 23, 5, 3, 6, 4


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(INPUTS, STUDENT), nn.Linear(STUDENT, CLASSES)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


class Teacher(nn.Module):
    def __init__(self, width=TEACHER):
        super().__init__()
        self.body, self.head = nn.Linear(INPUTS, width), nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


@pytest.fixture(scope="module")
def bundle():
    torch.manual_seed(0)
    return parse(compile_module(Student().eval(), Spec("student", input=(INPUTS,), classes=CLASSES)).data)


@pytest.fixture(scope="module")
def teacher():
    torch.manual_seed(1)
    return Teacher().eval()


RNG = np.random.default_rng(0)
X = RNG.normal(size=(SAMPLES, INPUTS)).astype(np.float32)
LABELS = RNG.integers(0, CLASSES, SAMPLES)


def distilled(bundle, teacher, loss, every="pass", weight=0.7, batch=8):
    """In float64."""
    student = TorchGraph(bundle, dtype=torch.float64)
    x, y = torch.tensor(X, dtype=torch.float64), torch.tensor(LABELS)
    said = said_of(teacher.double(), "", x, 8)
    first = student(student.constant(bundle.theta0), x[:8])[0]
    made = loss(said, y, first) if callable(loss) else loss
    return Distilled(student, said, made, x, y, weight=weight, batch=batch, every=every, seed=3)


def crd_of(**options):
    return lambda said, y, first: Crd(CrdOptions(**options), said, y, first, 5)


LOSSES = {
    "crd, frozen heads": crd_of(heads="frozen", dim=3, tau=0.5, constant="data"),
    "crd, trained heads": crd_of(heads="trained", dim=3, tau=0.5),
    "crd, other classes": crd_of(heads="frozen", dim=3, tau=0.5, others="class"),
    "crd, bank": crd_of(heads="frozen", dim=3, tau=0.5, negatives="bank", count=15, constant="data"),
    "crd, bank, trained": crd_of(heads="trained", dim=3, tau=0.5, negatives="bank", count=15, others="class"),
    "kd": kd(KdOptions(temperature=2.0)),
    "own": Stateless(lambda batch: (batch.student.logits - batch.teacher.logits).square().mean()),
}


# Formulas -------------------------------------------------------------------------------------------------------
def literal_crd(c, s, tau, samples):
    """As the paper prints it: h, its logarithms, one pair after the other."""
    u = c @ s.T / tau
    q = (len(u) - 1) / samples
    h = np.exp(u) / (np.exp(u) + q)
    return np.mean(
        [-np.log(h[j, j]) - sum(np.log(1 - h[j, i]) for i in range(len(u)) if i != j) for j in range(len(u))]
    )


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_contrast_is_as_the_paper_prints_it():
    rng = np.random.default_rng(3)
    c, s = unit(rng.normal(size=(7, 4))), unit(rng.normal(size=(7, 4)))
    found = in_batch(torch.tensor(c), torch.tensor(s), None, 0.3, 1 / 50)
    assert abs(found.item() - literal_crd(c, s, 0.3, 50)) < 1e-10


def test_its_derivatives_are_those_of_the_logits():
    """d/du_pos = -(1 - h_pos), d/du_neg = h_neg; and it does not overflow where h does."""
    rng = np.random.default_rng(4)
    c = torch.tensor(unit(rng.normal(size=(5, 4))))
    s = torch.tensor(unit(rng.normal(size=(5, 4))), requires_grad=True)
    (slope,) = torch.autograd.grad(in_batch(c, s, None, 0.3, 1 / 50), s)
    u = (c @ s.T / 0.3).detach().numpy()
    h = 1 / (1 + np.exp(-(u - np.log(4 / 50))))
    du = (h - np.eye(5)) / 5
    assert np.abs(slope.numpy() - du.T @ c.numpy() / 0.3).max() < 1e-12
    assert torch.isfinite(in_batch(c, -c, None, 1e-4, 1 / 50))


def test_a_pass_is_the_mean_over_all_samples(bundle, teacher):
    """Teacher anchors, batches in an order of their own, heads as they were drawn; in numpy."""
    r = distilled(bundle, teacher, LOSSES["crd, frozen heads"], batch=23)
    theta = bundle.theta0.astype(np.float64)
    head_c, head_s = (tuple(p.numpy() for p in h) for h in heads(r.loss.frozen, 3))
    with torch.no_grad():
        c, s = r.teacher.features.numpy(), r.student(torch.tensor(theta), r.x)[0].numpy()
    wanted = literal_crd(unit(c @ head_c[0].T + head_c[1]), unit(s @ head_s[0].T + head_s[1]), 0.5, SAMPLES)
    assert abs(r(theta, 0, r.first()).value - 0.7 * wanted) < 1e-10


def test_the_other_constant_begins_at_one_in_n_plus_1(bundle, teacher):
    """N mean(e^u) in place of N / |D_s|: then h is 1 / (N + 1) where e^u is its mean."""
    r = distilled(bundle, teacher, crd_of(heads="frozen", dim=3, tau=0.5), batch=8)
    head_c, head_s = (tuple(p.numpy() for p in h) for h in heads(r.loss.frozen, 3))
    s = r.student(torch.tensor(bundle.theta0.astype(np.float64)), r.x)[0].numpy()
    c, s = unit(r.teacher.features.numpy() @ head_c[0].T + head_c[1]), unit(s @ head_s[0].T + head_s[1])
    e = np.exp(c[:8] @ s[:8].T / 0.5)
    mean = e[~np.eye(8, dtype=bool)].mean()
    assert abs(r.loss.unit - mean) < 1e-12
    assert abs(mean / (mean + 7 * r.loss.unit) - 1 / 8) < 1e-12
    assert abs(in_batch(torch.tensor(c[:8]), torch.tensor(s[:8]), None, 0.5, mean)
               - literal_crd(c[:8], s[:8], 0.5, 1 / mean)) < 1e-10  # fmt: skip


def heads(vector, dim):
    from aggregator.private_model.crd import heads_in

    return heads_in(vector, TEACHER, STUDENT, dim)


def test_softened_outputs(bundle, teacher):
    r = distilled(bundle, teacher, LOSSES["kd"])
    theta = bundle.theta0.astype(np.float64)
    with torch.no_grad():
        z = r.student(torch.tensor(theta), r.x)[1].numpy()
    p, q = (np.exp(v / 2) / np.exp(v / 2).sum(1, keepdims=True) for v in (r.teacher.logits.numpy(), z))
    assert abs(r(theta, 0, r.first()).value - 0.7 * 4 * (p * np.log(p / q)).sum(1).mean()) < 1e-12


# Gradients ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("every", ["pass", "batch"])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_by_finite_differences(bundle, teacher, name, every):
    """With frozen memory: one batch, so that nothing is learnt between value and value."""
    r = distilled(bundle, teacher, LOSSES[name], every, batch=SAMPLES if every == "pass" else 9)
    theta = bundle.theta0.astype(np.float64)
    at = r(theta, 4, r.first())
    step = 1e-6
    for i in np.random.default_rng(2).choice(len(theta), 12, replace=False):
        e = step * np.eye(len(theta))[i]
        slope = (r(theta + e, 4, r.first()).value - r(theta - e, 4, r.first()).value) / (2 * step)
        assert abs(slope - at.gradient[i]) < 1e-6 * max(1, abs(slope))


@pytest.mark.parametrize("name", LOSSES)
def test_the_same_for_the_same_arguments(bundle, teacher, name):
    theta = bundle.theta0.astype(np.float64)
    for every in ("pass", "batch"):
        a, b = (distilled(bundle, teacher, LOSSES[name], every) for _ in range(2))
        one, two = a(theta, 2, a.first()), b(theta, 2, b.first())
        a(theta + 1, 2, a.first())
        again = a(theta, 2, a.first())
        for other in (two, again):
            assert one.value == other.value and np.array_equal(one.gradient, other.gradient)
            assert np.array_equal(one.memory, other.memory)


def test_nothing_flows_into_the_teacher(bundle, teacher):
    r = distilled(bundle, teacher, LOSSES["crd, trained heads"])
    r(bundle.theta0.astype(np.float64), 0, r.first())
    assert not r.teacher.features.requires_grad
    module = private.loaded(Private(weight=0.0, model=save(teacher), architecture=f"{__file__}:Teacher"), "cpu")
    assert not any(p.requires_grad for p in module.parameters()) and not module.training


def save(module, directory=None):
    import tempfile

    path = Path(directory or tempfile.mkdtemp()) / "model.pt"
    torch.save(module.float().state_dict(), path)
    return path


# Memory ---------------------------------------------------------------------------------------------------------
def test_trained_heads_go_down_their_own_gradient(bundle, teacher):
    r = distilled(bundle, teacher, LOSSES["crd, trained heads"], batch=SAMPLES)
    theta, memory = bundle.theta0.astype(np.float64), r.first()
    assert len(memory) == 3 * (TEACHER + STUDENT + 2)
    found = r(theta, 0, memory)
    for i in (0, 7, 20, 33):
        e = 1e-6 * np.eye(len(memory))[i]
        slope = (r(theta, 0, memory + e).value - r(theta, 0, memory - e).value) / 2e-6 / 0.7
        assert abs(memory[i] - 0.01 * slope - found.memory[i]) < 1e-8
    values = []
    for t in range(60):
        pull = r(theta, t, memory)
        memory, values = pull.memory, [*values, pull.value]
    assert values[-1] < values[0]


def test_a_bank_follows_the_student(bundle, teacher):
    r = distilled(bundle, teacher, LOSSES["crd, bank"])
    theta, memory = bundle.theta0.astype(np.float64), r.first()
    assert len(memory) == SAMPLES * 3
    for t in range(40):
        memory = r(theta, t, memory).memory
    w, b = heads(r.loss.frozen, 3)[1]
    s = unit(r.student(torch.tensor(theta), r.x)[0].numpy() @ w.numpy().T + b.numpy())
    assert np.abs(memory.reshape(-1, 3) - s).max() < 1e-6


def test_features_without_heads(bundle):
    torch.manual_seed(2)
    r = distilled(bundle, Teacher(STUDENT), crd_of(dim=0, tau=0.5))
    assert len(r.first()) == 0 and np.isfinite(r(bundle.theta0.astype(np.float64), 0, r.first()).value)
    with pytest.raises(UsageError, match="need heads"):
        distilled(bundle, Teacher(), crd_of(dim=0))


# In a run -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["crd, bank, trained", "kd"])
def test_a_run_with_it_survives_any_restart(bundle, teacher, tmp_path, name):
    """What it has learnt is in the aggregator's state: every state through bytes, and a new regulariser at each call,
    as after a restart, give the same model bit for bit. And it is in no message."""
    options = {"heads": "trained", "dim": 3, "tau": 0.5, "negatives": "bank", "count": 15} if "crd" in name else {}
    settings = files(tmp_path, teacher, regulariser=name.partition(",")[0], options=options, every="batch")
    once = private.regulariser_of(settings, bundle, 3, "cpu")
    plain, trace = played(bundle, lambda: once)
    again, _ = played(bundle, lambda: private.regulariser_of(settings, bundle, 3, "cpu"), restarts=True)
    assert np.array_equal(plain.model.values, again.model.values) and np.array_equal(plain.memory, again.memory)
    assert (len(plain.memory) > 0) == ("crd" in name)
    codec = Codec(evaluated(AUGFL).messages, layout=bundle.layout)
    sent = b"".join(codec.encode(m) for _, _, m in trace.crossed)
    with torch.no_grad():
        said = [p.numpy() for p in private.loaded(settings, "cpu").parameters()]
    secrets = [plain.memory, X, *said]
    assert bundle.theta0[:16].tobytes() in sent
    assert not any(s.ravel()[i : i + 4].tobytes() in sent for s in secrets for i in range(0, s.size - 3, 4))


def played(bundle, regulariser, restarts=False):
    """The aggregator's last state, and what happened: three devices, evaluations between."""
    model, tree, rng = Model(bundle, check=False), {"h": ("a", "b", "c")}, np.random.default_rng(1)
    common = dict(rounds=5, layout=bundle.layout, theta0=bundle.theta0, settings=AUGFL.settings(alpha=0.1))
    first = regulariser()
    top = {"regulariser": lambda *at: regulariser()(*at), "memory": first.first()}
    envs = {"aggregator": AUGFL.env(**common, sizes={"h": 3}, **top)}
    envs["h"] = AUGFL.env(**common, sizes=dict.fromkeys("abc", 1))
    for d in "abc":
        x, y = rng.normal(size=(6, INPUTS)).astype(np.float32), rng.integers(0, CLASSES, 6)
        envs[d] = AUGFL.env(**common, grad_fn=model.grad_fn(x, y), samples=6, score=model.score(x, y))
    method = evaluated(AUGFL, every=2)
    if restarts:
        codec = Codec([method.aggregator.state, *method.messages], layout=bundle.layout, finite=False)
        method = replace(method, aggregator=restarted(method.aggregator, codec))
    net = Loopback(method, tree, envs, {"aggregator": Policy(quorum=1)})
    trace = net.run()
    return net.nodes["aggregator"].record.state.inner, trace


def restarted(role, codec):
    def through(f):
        def call(*args):
            state, sends = f(*args)
            return codec.decode(codec.encode(state), role.state), sends

        return call

    return replace(role, start=through(role.start), receive=through(role.receive), close=through(role.close))


# From settings --------------------------------------------------------------------------------------------------
def files(directory, teacher, **more):
    np.savez(directory / "data.npz", x=X, y=LABELS)
    given = {"weight": 0.7, "model": save(teacher, directory), "architecture": f"{__file__}:Teacher",
             "data": directory / "data.npz", "batch": 8}  # fmt: skip
    return Private(**{**given, **more})


@pytest.mark.parametrize("kind", ["crd", "kd", f"{__file__}:mine"])
def test_settings_make_a_regulariser(bundle, teacher, tmp_path, kind):
    found = private.regulariser_of(files(tmp_path, teacher, regulariser=kind), bundle, 3, "cpu")
    pull = found(bundle.theta0, 0, found.first())
    assert pull.gradient.dtype == np.float32 and pull.gradient.shape == (bundle.layout.size,)
    assert found.first().dtype == np.float32 and np.isfinite(pull.value) and pull.gradient.any()


def mine(batch: ComparedBatch) -> torch.Tensor:
    return (batch.student.logits - batch.teacher.logits).abs().mean()


def test_float32_agrees_with_float64(bundle, teacher, tmp_path):
    options = {"dim": 3, "tau": 0.5, "heads": "frozen"}
    single = private.regulariser_of(files(tmp_path, teacher, options=options), bundle, 3, "cpu")
    teacher64 = said_of(teacher.double(), "", torch.tensor(X, dtype=torch.float64), 8)
    x, student = torch.tensor(X, dtype=torch.float64), TorchGraph(bundle, dtype=torch.float64)
    first = student(student.constant(bundle.theta0), x[:8])[0]
    loss = Crd(CrdOptions(**options), teacher64, None, first, 3 + private.HEADS)
    double = Distilled(TorchGraph(bundle, dtype=torch.float64), teacher64, loss, x, None, weight=0.7, batch=8, seed=3)
    one, two = single(bundle.theta0, 0, single.first()), double(bundle.theta0.astype(np.float64), 0, double.first())
    assert abs(one.value - two.value) < 1e-5 and np.abs(one.gradient - two.gradient).max() < 1e-5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("kind", ["crd", "kd"])
def test_on_a_gpu_within_rounding(bundle, teacher, tmp_path, kind):
    settings = files(tmp_path, teacher, regulariser=kind)
    here, there = (private.regulariser_of(settings, bundle, 3, device) for device in ("cpu", "cuda"))
    one, two = here(bundle.theta0, 0, here.first()), there(bundle.theta0, 0, there.first())
    assert abs(one.value - two.value) < 1e-4 and np.abs(one.gradient - two.gradient).max() < 1e-4
    assert one.memory.shape == two.memory.shape


def test_squared_distance(bundle, tmp_path):
    torch.manual_seed(9)
    other = Student()
    found = private.regulariser_of(files(tmp_path, other, regulariser="l2", data=None), bundle, 3, "cpu")
    assert isinstance(found, SquaredDistance)
    theta_p = np.concatenate([p.detach().numpy().ravel() for p in other.parameters()])
    pull = found(bundle.theta0, 0, found.first())
    assert np.allclose(pull.gradient, 2 * 0.7 * (bundle.theta0 - theta_p), atol=1e-6)
    assert abs(pull.value - 0.7 * ((bundle.theta0 - theta_p) ** 2).sum()) < 1e-5
    with pytest.raises(UsageError, match=r"body.weight has shape \(6, 5\), the devices' model has it as \(4, 5\)"):
        private.regulariser_of(files(tmp_path, Teacher(), regulariser="l2"), bundle, 3, "cpu")


def test_lambda_zero_opens_no_file(bundle, monkeypatch):
    monkeypatch.setattr(torch, "load", None)
    nothing = Private(weight=0.0, regulariser="crd", model=Path("/nowhere"), data=Path("/nowhere"))
    assert private.regulariser_of(nothing, bundle, 0, "cpu") is None
    assert private.given(METHODS["augfl"].env, None) == {}


def test_methods_are_given_what_they_have_room_for(bundle, tmp_path):
    stateful = private.regulariser_of(files(tmp_path, Teacher()), bundle, 3, "cpu")
    frozen = private.regulariser_of(files(tmp_path, Teacher(), options={"heads": "frozen"}), bundle, 3, "cpu")
    assert set(private.given(METHODS["augfl"].env, stateful)) == {"regulariser", "memory"}
    (smooth,) = private.given(METHODS["fedslr"].env, frozen).values()
    assert np.array_equal(smooth(bundle.theta0), frozen(bundle.theta0, 0, frozen.first()).gradient)
    with pytest.raises(UsageError, match="does not keep what the regulariser learns"):
        private.given(METHODS["fedslr"].env, stateful)
    with pytest.raises(UsageError, match="no room for a regulariser"):
        private.given(METHODS["fedavg"].env, frozen)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"regulariser": "ckd"}, "one of l2, crd, kd, or one's own"),
        ({"weight": -1.0}, "weight = -1"),
        ({"every": "day"}, "pass or batch"),
        ({"batch": 1}, "at least 2"),
        ({"model": None}, "model is missing"),
        ({"data": Path("/nowhere.npz")}, "there is no such file"),
        ({"options": {"tua": 1}}, "tua is no setting, did you mean tau"),
        ({"options": {"tau": 0.0}}, "tau = 0"),
        ({"options": {"heads": "no"}}, "heads = 'no'"),
        ({"features": "neck"}, "no such layer; there are body, head"),
        ({"architecture": ""}, "does not say its architecture"),
        ({"architecture": f"{__file__}:Nobody"}, "has no Nobody"),
        ({"architecture": "nowhere:Net"}, "No module named"),
        ({"architecture": "Net"}, "no such model in the zoo"),
        ({"arguments": {"width": 9}}, "size mismatch"),
    ],
)
def test_mistakes_are_told_by_name(bundle, teacher, tmp_path, change, said):
    with pytest.raises(UsageError, match=said):
        private.regulariser_of(files(tmp_path, teacher, **change), bundle, 3, "cpu")


def test_data_that_does_not_fit(bundle, teacher, tmp_path):
    for arrays, said in (
        ({"x": X[:, :3]}, r"x is float32 \(23, 3\)"),
        ({"y": LABELS}, "x is missing"),
        ({"x": X * np.nan}, "not finite"),
        ({"x": X, "y": LABELS[:4]}, "expected 23 integers"),
    ):
        settings = files(tmp_path, teacher)
        np.savez(tmp_path / "data.npz", **arrays)
        with pytest.raises(UsageError, match=said):
            private.regulariser_of(settings, bundle, 3, "cpu")


class Command:
    def __reduce__(self):
        return (print, ("run",))


def test_checkpoints_cannot_run_code(tmp_path, capsys):
    torch.save({"state": {"a": torch.ones(1)}, "more": Command()}, tmp_path / "bad.pt")
    with pytest.raises(UsageError, match="without running code"):
        checkpoint(tmp_path / "bad.pt")
    assert capsys.readouterr().out == ""
    torch.save({"epoch": 3, "model": {"module.a": torch.ones(2)}}, tmp_path / "public.pt")
    tensors, more = checkpoint(tmp_path / "public.pt")
    assert list(tensors) == ["a"] and more["epoch"] == 3
    (tmp_path / "text.pt").write_text("no")
    with pytest.raises(UsageError, match="without running code"):
        checkpoint(tmp_path / "text.pt")


def test_features_are_seen_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(5, 5)

        def forward(self, x):
            return self.a(self.a(x))

    with pytest.raises(UsageError, match="run 2 times"):
        Watcher(Twice())(torch.zeros(1, 5))
    net = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    assert torch.equal(Watcher(net, "0")(torch.ones(1, 5)).features, torch.ones(1, 5))
    assert named("collections:OrderedDict") is __import__("collections").OrderedDict
    assert isinstance(Watcher(net)(torch.ones(3, 5))[torch.tensor([0, 2])], ModelOutputs)
    assert replace(CrdOptions(), dim=2).dim == 2
