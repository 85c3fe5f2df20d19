"""A method names its family of kernels; the code that runs nodes asks the family, and nobody asks for a method."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from edge_sdk.algebra.vectors import Layout, Slot
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.hsgd.plan import Planned
from edge_sdk.methods.hsgd.settings import Plan
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.methods.shared.evaluation.reports import Event, Models, Progress, Report
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.configuration.assembly import check_bundle, family_of
from edge_sdk.nodes.configuration.kernel_families import FAMILIES

SHIPPED = Path(__file__).parents[3] / "models" / "shipped"


@pytest.mark.parametrize("method", METHODS)
def test_every_method_names_a_family_that_there_is(method: str) -> None:
    assert METHODS[method].kernels in FAMILIES
    assert family_of(Run(id="r", method=method)) is FAMILIES[METHODS[method].kernels]


@pytest.mark.parametrize(
    ("method", "bundle", "public", "said"),
    [
        ("fedavg", "split-breast-cancer", "", "is a split model, and method = 'fedavg' trains a whole one"),
        ("hsgd", "wrist", "", "'hsgd' trains a split model, and bundle wrist is none"),
        ("fedal", "wrist", "", "'fedal': devices compare outputs on public inputs; name their file"),
        ("fedslr+fedal", "wrist", "", "'fedslr\\+fedal': devices compare outputs on public inputs"),
        ("fedslr+fedal", "split-breast-cancer", "0" * 64, "is a split model"),
    ],
)
def test_method_and_bundle_go_together(method: str, bundle: str, public: str, said: str) -> None:
    found = read_bundle(SHIPPED / f"{bundle}.bundle")
    classes = tuple(str(i) for i in range(found.manifest["classes"]))
    run = Run(id="r", method=method, bundle=found.sha256, public=public, classes=classes)
    with pytest.raises(UsageError, match=said):
        check_bundle(run, found, "device")


@pytest.mark.parametrize(("method", "noisy", "fits"), [("fedavg", 1, 0), ("fedbn", 1, 1), ("fedavg", 0, 1)])
def test_running_statistics_leave_no_device_with_noise(method: str, noisy: int, fits: int) -> None:
    """A variance with noise is negative sooner or later, and the model predicts nothing."""
    found = read_bundle(SHIPPED / "wrist.bundle")
    kept = Slot("norm.running_var", (4,), found.layout.size, "norm")
    found = replace(found, layout=Layout((*found.layout.slots, kept)))
    classes = tuple(str(i) for i in range(found.manifest["classes"]))
    privacy = {"clip": 1.0, "noise": 1.0} if noisy else {}
    run = Run(id="r", method=method, bundle=found.sha256, classes=classes, privacy=privacy)
    if fits:
        return check_bundle(run, found, "device")
    with pytest.raises(UsageError, match=r"variances of norm\.running_var negative; compile it with --norm frozen"):
        check_bundle(run, found, "device")


def test_what_goes_into_the_metrics_says_so_itself() -> None:
    """Keys and their order are read by people's scripts."""
    lines = [
        (Progress(1, 2, {"loss": 3.0}), ["kind", "round", "devices", "sums"], "round 1: 2 devices, loss 1.5000"),
        (Report(4, {"devices": 2.0, "global_accuracy": 1.0}), ["kind", "round", "sums", "final", "auc"],
         "evaluation 4: 2 devices, global 50.0%"),
        (Finished(9), ["kind", "round", "shown"], "finished after 9 rounds"),
        (Planned(2, Plan(4, 2, 0.25), inf, 0.5), ["kind", "round", "bound", "limit", "reachable", "P", "Q", "eta"],
         "from round 3 on P = 4, Q = 2, eta = 0.25"),
    ]  # fmt: skip
    for event, keys, sentence in lines:
        assert isinstance(event, Event)
        assert list(json.loads(json.dumps(event.to_metrics(), allow_nan=False))) == keys
        assert event.to_sentence() == sentence
    assert not isinstance(Models(3, {}), Event)
