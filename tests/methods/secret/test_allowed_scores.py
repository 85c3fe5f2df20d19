"""Histograms of a device under a mask: they are in an answer only where the device's own table lets them leave."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.methods.shared.evaluation.evaluation import Report, Scores
from edge_sdk.nodes.configuration.assembly import method_of, settings_of
from edge_sdk.nodes.configuration.mask_tables import DeviceKeys
from edge_sdk.nodes.policy.allow import CLASSES, Allow
from edge_sdk.nodes.policy.score_filter import for_masking
from edge_sdk.nodes.secrets.mask_assignment import for_device
from edge_sdk.nodes.secrets.mask_keys import make_key
from tests.methods.problems import DEVICES, PATIENT, play, told
from tests.methods.secret.among import among_envs, among_run, played
from tests.methods.secret.parties import TREE, envs_for, run_of

SAMPLES = {"samples": 3.0, "correct": 2.0, "loss": 1.0}


def report_of(tables: dict[str, Allow]) -> Report:
    """What a run with secret sums tells at its end, in which each device has such a table."""
    run = run_of(rounds=1)
    envs: Any = envs_for(run)
    for d in DEVICES:
        judged = {"score": lambda theta: SAMPLES, "judge": lambda theta: SAMPLES | {"auc:0:1:9": 1.0, "auc:0:0:2": 2.0}}
        envs[d] = replace(envs[d], **judged, allowed=for_masking(lambda d=d: tables[d]))
    _, transcript = play(method_of(run), settings_of(run), 1, policies=PATIENT, tree=TREE, envs=envs)
    return told(transcript, Report)[-1]


@pytest.mark.parametrize("scores", ["sums", CLASSES])
def test_label_counts_leave_under_a_mask_where_the_holder_lets_them(scores: str) -> None:
    found = report_of({d: Allow(scores=scores) for d in DEVICES})
    assert found.sums["global_correct"] == 12 and found.sums["devices"] == 6
    assert found.sums.get("global_auc:0:1:9", 0.0) == (6 if scores == CLASSES else 0)


@pytest.mark.parametrize("scores", ["sums", CLASSES])
def test_so_they_do_in_a_sum_that_devices_open_among_themselves(scores: str) -> None:
    run = among_run(rounds=1)
    envs: Any = among_envs(run)
    for d in DEVICES:
        judged = {"score": lambda theta: SAMPLES, "judge": lambda theta: SAMPLES | {"auc:0:1:9": 1.0, "auc:0:0:2": 2.0}}
        envs[d] = replace(envs[d], **judged, allowed=for_masking(lambda: Allow(scores=scores)))
    found = told(played(run, envs=envs)[1], Report)[-1]
    assert found.sums["global_correct"] == 12
    assert found.sums.get("global_auc:0:1:9", 0.0) == (6 if scores == CLASSES else 0)


def test_histograms_of_a_few_that_allow_them_are_not_opened_by_themselves() -> None:
    """The fourth allows them, too, but in another hospital's sum, where it would be the only one."""
    found = report_of({d: Allow(scores=CLASSES if d in ("d0", "d1", "d2", "d3") else "sums") for d in DEVICES})
    assert found.sums["devices"] == 6 and found.sums["global_auc:0:1:9"] == 3


def test_a_device_asks_its_table_whenever_it_masks_an_answer(tmp_path: Path) -> None:
    (tmp_path / "aggregator.pub").write_text(f"aggregator {make_key(tmp_path / 'top.key')}\n")
    make_key(tmp_path / "own.key")
    keys = DeviceKeys(key=tmp_path / "own.key", aggregator=tmp_path / "aggregator.pub")
    tables = [Allow(), Allow(scores=CLASSES)]
    allowed = for_device(run_of(), keys, "d0", 2, lambda: tables.pop(0))["allowed"]
    sums = {"samples": 1.0, "devices": 1.0, "global_correct": 1.0, "global_auc:0:1:63": 1.0}
    assert [len(allowed(Scores(1, sums)).sums) for _ in range(2)] == [3, 4]
