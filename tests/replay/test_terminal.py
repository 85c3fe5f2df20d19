"""Tables on a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from edge_sdk.replay.reports.terminal import device_table


def device(name: str, hospital: str, **more: Any) -> dict[str, Any]:
    accuracy = {"local": 0.5, "global": 0.6, "personalised": 0.7}
    whose = {"device": name, "hospital": hospital}
    return whose | {"samples": 21, "held_out": 9, "classes": 7, "accuracy": accuracy} | more


@pytest.mark.parametrize("names", [("m1", "m2"), ("patient-03-right", "m1"), ("d" * 64, "x")])
@pytest.mark.parametrize("hospital", ["north", "hospital-of-the-whole-north"])
def test_columns_stand_under_their_heads_however_long_names_are(names: tuple[str, str], hospital: str) -> None:
    devices = [device(names[0], hospital, newcomer=True), device(names[1], "h")]
    text = device_table({"devices": devices, "accuracy": devices[0]["accuracy"]})
    head, rule, first, second, _, mean, _ = text.splitlines()
    assert len({len(line) for line in (head, rule, first, second, mean)}) == 1
    for word in ("samples", "held out", "classes", "local", "global", "personal"):
        end = head.index(word) + len(word)
        assert all(line[end - 1] != " " and line[end : end + 1] in ("", " ") for line in (first, second)), word
    assert first.startswith(f"{names[0]} *") and f" {hospital} " in first
