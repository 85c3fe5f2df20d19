"""Units that are noted beside traces: what a bundle takes in another one, and devices that differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.replay.cohorts.cohort import Cohort
from edge_sdk.replay.cohorts.form import form_cohort
from edge_sdk.replay.planning.bundles import check_fit, choose_bundle
from edge_sdk.replay.traces.synth import write_traces

WRIST = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"  # in g
AXES = ("ax", "ay", "az")


def cohort(folder: Path, *units: str) -> Cohort:
    """Generated traces, of whose axes a recorder has noted these units, device by device."""
    write_traces(folder, devices=len(units), minutes=3)
    noted = {
        f"synth-{k + 1:02}": {"sensor": "iio:x", "channels": AXES, "units": [unit] * 3, "rate_hz": 32}
        for k, unit in enumerate(units)
    }
    (folder / "sensors.json").write_text(json.dumps(noted))
    return form_cohort(str(folder), 1, 0, {})


def test_a_bundle_in_another_unit_is_refused_by_name(tmp_path: Path) -> None:
    found = cohort(tmp_path, "m/s^2", "m/s^2")
    assert found.units == ("m/s^2",) * 3
    with pytest.raises(UsageError, match=r"wrist\.bundle: it takes ax in g, and the trace has it in m/s\^2"):
        check_fit(WRIST, found)


@pytest.mark.parametrize("units", [("g", "g"), ("", ""), ("", "g")])
def test_the_same_unit_and_none_fit(tmp_path: Path, units: tuple[str, str]) -> None:
    check_fit(WRIST, cohort(tmp_path, *units))


def test_without_a_bundle_the_shipped_one_is_taken_only_where_its_unit_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = tmp_path / "compiled.bundle"
    monkeypatch.setattr("edge_sdk.replay.planning.bundles.compile_network", lambda *_: compiled)
    in_g, in_metres = cohort(tmp_path / "g", "g"), cohort(tmp_path / "m", "m/s^2")
    assert choose_bundle(str(tmp_path / "g"), None, in_g, 0, print).samefile(WRIST)
    assert choose_bundle(str(tmp_path / "m"), None, in_metres, 0, print) == compiled


def test_a_bundle_of_another_rate_is_refused_with_what_helps(tmp_path: Path) -> None:
    write_traces(tmp_path, devices=1, minutes=3)
    options = {"rate": 50.0}
    with pytest.raises(UsageError, match=r"wrist\.bundle: it takes 32 Hz, and the trace has 50; --rate 32"):
        check_fit(WRIST, form_cohort(str(tmp_path), 1, 0, options))


def test_a_bundle_of_another_order_of_the_channels_is_refused_with_what_helps(tmp_path: Path) -> None:
    write_traces(tmp_path, devices=1, minutes=3)
    with pytest.raises(
        UsageError, match=r"ax, ay, az, in that order, and the trace has az, ax, ay; --channels ax,ay,az "
    ):
        check_fit(WRIST, form_cohort(str(tmp_path), 1, 0, {"channels": "az,ax,ay"}))


def test_devices_in_different_units_are_refused_and_spellings_are_not(tmp_path: Path) -> None:
    assert cohort(tmp_path / "same", "m/s^2", "m/s2").units == ("m/s^2",) * 3
    with pytest.raises(UsageError, match=r"ax is in m/s\^2 in synth-01 and in g in synth-02"):
        cohort(tmp_path / "mixed", "m/s^2", "g")
