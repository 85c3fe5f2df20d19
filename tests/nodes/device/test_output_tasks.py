"""What holds of each task but one class: runs that are refused, models that do not predict, methods that learn it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="bundles are compiled here")

from edge_sdk import Samples, UsageError
from edge_sdk.algebra.ensemble import Ensemble
from edge_sdk.contract.run import Run
from edge_sdk.methods import METHODS
from edge_sdk.methods.rollout.plan import Settings as RolloutSettings
from edge_sdk.methods.rollout.plan import find_fault
from edge_sdk.methods.shared.aggregation.scores import check_scores
from edge_sdk.methods.shared.evaluation.evaluation import Finished, Scores
from edge_sdk.methods.shared.evaluation.reports import Models, mean_errors, mean_macro_f1, mean_reconstruction_errors
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.configuration.assembly import check_bundle
from edge_sdk.nodes.evaluation.output_scores import judge_outputs
from edge_sdk.nodes.kernels.rollout import check as check_rollout
from edge_sdk.nodes.kernels.rollout import hash_model
from edge_sdk.nodes.models.last_line import ModelsDeclined
from tests import label_sets, reconstructions, step_values, steps, values
from tests.nodes.device.output_tasks import finish, make_device, make_run, play_fleet

Sums = Mapping[str, float]


SETTLED = {"settle": {"steps": (0, 20), "local_steps": (20, 40), "local_weights": (0.0, 0.5), "rate": 0.01}}


@dataclass(frozen=True)
class Case:
    """A task with a bundle for it.

    Attributes:
        classes: of its runs. compile: writes the bundle into a file.
        parts: a device's samples. thetas: of a good model, a worse one and one that is as good; none: all may predict.
        refused: what a run has, and what is said of it.
        figures: sums of all devices -> how bad their models are. before: sums of a device -> how bad its first one is.
        least: that those must be better by. sentence: what a report says. rounds, rho: of a run.
        biased: methods whose personal slots are the biases. around: what else a run of FedAvg may have.
    """

    classes: tuple[str, ...]
    compile: Callable[[Path], Path]
    parts: Sequence[Samples]
    thetas: Sequence[np.ndarray]
    refused: Sequence[tuple[dict[str, Any], str]]
    figures: Callable[[Sums], Mapping[str, float]]
    before: Callable[[Sums], float]
    least: float
    sentence: str
    samples: int | None = None
    rounds: int = 12
    rho: float = 2.0
    biased: tuple[str, ...] = ("fedbn",)
    around: tuple[dict[str, Any], ...] = ({"uploads": {"bits": 4}}, {"robust": {"rule": "median"}}, SETTLED)

    def run_of(self, bundle: Path, **more: Any) -> Run:
        return make_run(bundle, self.classes, more)


def samples_of_values(seed: int, count: int) -> Samples:
    x, y = values.draw(count, seed)
    return Samples(x, tuple(y.tolist()))


def best_values(seed: int = 0) -> np.ndarray:
    """Parameters of the least squares on what a device trains on."""
    x, y = values.draw(200, seed)
    rows = np.concatenate([x, np.ones((len(x), 1))], 1)
    return np.linalg.lstsq(rows, values.RATE.scaled(y[:, None])[:, 0], rcond=None)[0].astype(np.float32)


LABELS = np.concatenate([6 * np.eye(3).ravel(), np.zeros(3)]).astype(np.float32)
"""Parameters of the linear bundle with which it predicts a finding where its number is above 0."""
WAVES = reconstructions.best_theta()
ALWAYS: list[tuple[dict[str, Any], str]] = [
    ({"settle": {"trees": 9}}, "forests tell classes apart"),
    ({"settle": {"label_times": 1}}, "nothing says how sure|set label_weights"),
    ({"method": "hsgd"}, "method hsgd"),
]
NO_COMPANIONS: tuple[dict[str, Any], str] = ({"method": "fedal", "public": "ab" * 32}, "method fedal")


def tenth_less(sums: Sums) -> dict[str, float]:
    """Errors of the rate in halves of its range, over 0.9: they are to be a tenth below what they are compared with."""
    return {name: e["rate"] / 63 for name, e in values.RATE.mean_errors(mean_errors(sums), ("rate",)).items()}


def minus(f1: Mapping[str, float]) -> dict[str, float]:
    return {name: -one for name, one in f1.items()}


CASES = {
    "value": Case(
        ("rate",),
        lambda path: values.compile_linear(path),
        [samples_of_values(0, 200), samples_of_values(1, 100), samples_of_values(2, 60)],
        [best_values(), best_values() + np.float32(0.2), best_values(5)],
        [
            *ALWAYS,
            NO_COMPANIONS,
            ({"uploads": {"bits": 8, "secret": True}}, "secret sums have no place"),
            ({"classes": ("a", "b")}, "is for a, b, but bundle linear predicts"),
        ],
        tenth_less,
        lambda sums: sums["absolute:0"] / 60,
        0.0,
        "off by",
        samples=180,
        rho=8.0,
    ),
    "labels": Case(
        label_sets.FINDINGS.names,
        lambda path: label_sets.compile_findings(path),
        [label_sets.samples(200), label_sets.samples(100, 1), label_sets.samples(80, 2)],
        [LABELS, -LABELS, 2 * LABELS],
        [
            *ALWAYS,
            NO_COMPANIONS,
            ({"classes": ("af", "pvc")}, "is for af, pvc, but bundle findings predicts several labels"),
            ({"classes": ("pvc", "af", "noise")}, "is for pvc, af, noise, but bundle findings"),
        ],
        lambda sums: minus(mean_macro_f1(sums)),
        lambda sums: -sums["f1"],
        0.05,
        "macro-F1",
        samples=240,
    ),
    "reconstruction": Case(
        reconstructions.NAMES,
        reconstructions.compile_waves,
        [reconstructions.samples(200, 3), reconstructions.samples(100, 20, 1), reconstructions.samples(80, 2, 2)],
        [WAVES, -WAVES * np.float32(3), WAVES],
        [
            *ALWAYS,
            NO_COMPANIONS,
            ({"uploads": {"bits": 8, "secret": True}}, "secret sums have no place for errors"),
            ({"augment": {"scale": 0.1}}, "a changed window would be compared with itself as it was"),
            ({"classes": ("spike", "normal")}, "is for spike, normal, but bundle waves predicts the window itself"),
            ({"classes": ()}, "is for none"),
        ],
        mean_reconstruction_errors,
        lambda sums: sums["reconstruction_error"],
        0.0,
        "reconstruction error",
        around=({"uploads": {"bits": 8}}, {"robust": {"rule": "median"}}),
    ),
    "steps": Case(
        steps.TASK.names,
        steps.compile_steps,
        [steps.samples(60, 0), steps.samples(40, 1), steps.samples(30, 2)],
        [],
        [
            *ALWAYS,
            ({"augment": {"shift": 0.1}}, "a window that is moved in time has something else at its steps"),
            ({"classes": ("walk", "rest", "run")}, "is for walk, rest, run, but bundle steps predicts one class of 3"),
        ],
        lambda sums: minus(mean_macro_f1(sums)),
        lambda sums: -sums["f1"],
        0.0,
        "macro-F1",
        rounds=8,
        biased=("fedbn", "fedper", "fedrep", "fedbabu"),
        around=(SETTLED,),
    ),
    "step_values": Case(
        step_values.TASK.names,
        step_values.compile_step_values,
        [step_values.samples(60, 0), step_values.samples(40, 1), step_values.samples(30, 2)],
        [step_values.best_theta(), step_values.best_theta() + np.float32(0.2), step_values.best_theta()],
        [
            *ALWAYS,
            NO_COMPANIONS,
            ({"uploads": {"bits": 8, "secret": True}}, "secret sums have no place for errors"),
            ({"augment": {"shift": 0.1}}, "a window that is moved in time has something else at its steps"),
            ({"classes": ("level", "rate")}, "is for level, rate, but bundle curves predicts rate"),
        ],
        lambda sums: {m: e["rate"] / 63 for m, e in step_values.TASK.mean_errors(mean_errors(sums), ()).items()},
        lambda sums: sums["absolute:0"] / sums["samples"],
        0.0,
        "off by",
        rounds=8,
        rho=8.0,
        biased=("fedbn", "fedper", "fedrep", "fedbabu"),
    ),
}
WHOLE = [name for name, method in METHODS.items() if method.kernels == "plain"]
"""Methods that docs/methods.md says to take all of these tasks."""


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Task -> its bundle; of values and labels "network" too, with hidden units."""
    folder = tmp_path_factory.mktemp("tasks")
    found = {kind: case.compile(folder / f"{kind}.bundle") for kind, case in CASES.items()}
    found["value network"] = values.compile_linear(folder / "value-network.bundle", hidden=8)
    return found | {"labels network": label_sets.compile_findings(folder / "labels-network.bundle", hidden=8)}


@pytest.mark.parametrize(
    ("kind", "more", "said"), [(kind, *refused) for kind, case in CASES.items() for refused in case.refused]
)
def test_what_a_task_does_not_allow_is_refused_before_a_run_begins(
    bundles: dict[str, Path], kind: str, more: dict[str, Any], said: str
) -> None:
    file, run = read_bundle(bundles[kind]), CASES[kind].run_of(bundles[kind], **more)
    with pytest.raises(UsageError, match=f"task {kind}: .*{said}"):
        check_bundle(run, file, "device")
    if kind == "reconstruction":
        with pytest.raises(UsageError, match=f"task {kind}: a rollout compares versions by what is right"):
            check_rollout(run, None, file)


@pytest.mark.parametrize("kind", [kind for kind, case in CASES.items() if len(case.thetas)])
def test_worse_models_of_a_run_do_not_predict(bundles: dict[str, Path], kind: str, tmp_path: Path) -> None:
    events, case = list[Any](), CASES[kind]
    device = make_device(bundles[kind], tmp_path, case.parts, events)
    for name, theta in zip(("good", "bad", "as-good"), case.thetas, strict=True):
        finish(device, case.run_of(bundles[kind], id=name), theta)
    declined = [event for event in events if isinstance(event, ModelsDeclined)]
    assert [one.run for one in declined] == ["bad"] and device.part.working.run == "as-good"
    assert declined[0].loss > declined[0].loss_before
    if kind == "labels":
        assert declined[0].loss > 0.8 > 0.2 > declined[0].loss_before, "shares of the labels that are wrong"


@pytest.mark.parametrize(
    ("kind", "name", "more"),
    [
        (kind, name, more)
        for kind, case in CASES.items()
        for name, more in [*((name, {}) for name in WHOLE), *(("fedavg", more) for more in case.around)]
    ],
)
def test_a_fleet_learns_by_each_method_that_trains_whole_models(
    bundles: dict[str, Path], kind: str, name: str, more: dict[str, Any], tmp_path: Path
) -> None:
    case, bundle = CASES[kind], bundles.get(f"{kind} network", bundles[kind])
    settings = {"personal_slots": "bias"} if name in case.biased else {"rho": case.rho} if name == "augfl" else {}
    run = case.run_of(bundle, method=name, rounds=case.rounds, seed=1, settings=settings, **more)
    report, device = play_fleet(bundle, run, lambda one: make_device(bundle, tmp_path / one, case.parts))
    check_scores(report.sums, 3)
    assert device.score is not None
    figures, before = case.figures(report.sums), case.before(device.score(device.theta0))
    assert {"test_global", "test_personal"} & {*figures} and case.sentence in report.to_sentence()
    assert min(figures.values()) < before - case.least, "better than the initial model"
    assert case.samples is None or (report.sums["samples"], report.sums["devices"]) == (case.samples, 3)


@pytest.mark.parametrize("kind", ["value", "labels", "steps", "step_values"])
def test_a_device_predicts_with_both_models_as_its_run_has_chosen(
    bundles: dict[str, Path], kind: str, tmp_path: Path
) -> None:
    """Outputs of values, and logits of classes and labels, are averaged; what it is judged by is what it predicts."""
    case, events = CASES[kind], list[Any]()
    device = make_device(bundles[kind], tmp_path, case.parts, events)
    run = case.run_of(bundles[kind])
    random, start = np.random.default_rng(3), device.part.model.theta0
    names = ("global", "personal", "local")
    models = {name: start + random.normal(0, 0.3, start.shape).astype(np.float32) for name in names}
    device.part.assemble(run)
    device.part.receive_event(1, Scores(1, {}))
    device.part.receive_event(1, Models(1, models, Ensemble(0.25)))
    device.part.receive_event(2, Finished(1))
    model, x = device.part.model, case.parts[1].x
    own, local = model.predict(models["personal"], x), model.predict(models["local"], x)
    expected = model.task.shown(0.75 * own + 0.25 * local, x)
    np.testing.assert_allclose(device.predict(x, "personal").rows, expected, rtol=1e-5)
    np.testing.assert_allclose(device.predict(x, "local").rows, model.task.shown(local, x), rtol=1e-5)
    found = judge_outputs(device.part, run)["test"]["personal"]
    judged = model.task.judged(model.targets(device.part.codes(case.parts[1], run), len(x)), 0.75 * own + 0.25 * local)
    assert {key: found[key] for key in judged} == pytest.approx(judged, rel=1e-5)


@pytest.mark.parametrize(
    "kind", [kind for kind, case in CASES.items() if len(case.thetas) and kind != "reconstruction"]
)
def test_a_rollout_compares_two_versions_by_how_right_they_are(
    bundles: dict[str, Path], kind: str, tmp_path: Path
) -> None:
    """A device counts the credits of its task; a version of something else does not suit it."""
    case = CASES[kind]
    good, bad, _ = case.thetas
    device = make_device(bundles[kind], tmp_path, case.parts)
    finish(device, case.run_of(bundles[kind], id="before"), good)
    told = {"id": "roll", "method": "rollout", "classes": case.classes, "settings": {"theta": hash_model(bad)}}
    run = Run(bundle=read_bundle(bundles[kind]).sha256, **told)
    for tier in ("aggregator", "hospital", "device"):
        check_bundle(run, read_bundle(bundles[kind]), tier)
    counts = device.part.assemble(run).env.attempt(np.fromfile(bundles[kind], np.uint8), bad)
    model, held_out = device.part.model, case.parts[1]
    y = model.targets(device.part.codes(held_out, run), len(held_out))
    right = [float(model.task.credits(y, model.predict(theta, held_out.x)).sum()) for theta in (good, bad)]
    assert counts == pytest.approx({"installed": 1, "samples": len(y), "before": right[0], "after": right[1]}, rel=1e-5)
    assert "fell from" in find_fault(RolloutSettings(theta="0"), {"asked": 1.0, **counts})
    other = bundles["labels" if kind != "labels" else "value"]
    unlike = replace(run, bundle=read_bundle(other).sha256, settings={"theta": hash_model(read_bundle(other).theta0)})
    attempt = device.part.assemble(unlike).env.attempt
    assert attempt(np.fromfile(other, np.uint8), read_bundle(other).theta0) == {"unfit": 1.0}
