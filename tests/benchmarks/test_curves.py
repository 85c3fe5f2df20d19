"""Pictures of curves: means over seeds at the right places, nothing invented where a seed has no point."""

import xml.etree.ElementTree as ET

import pytest

from benchmarks.curves import draw, over_seeds, picture
from edge_sdk.errors import UsageError

SVG = "{http://www.w3.org/2000/svg}"


def curve(*values, every=5, cost=2.0):
    return [{"round": every * k, "cost": cost * every * k, "value": v} for k, v in enumerate(values, start=1)]


def test_means_and_ranges_are_of_rounds_that_all_seeds_have():
    found = over_seeds([curve(0.5, 0.7, 0.9), curve(0.7, 0.7, cost=4.0)], "cost")
    assert found == [(15.0, pytest.approx(0.6), 0.5, 0.7), (30.0, pytest.approx(0.7), 0.7, 0.7)]
    assert [x for x, *_ in over_seeds([curve(0.5, 0.7)], "round")] == [5.0, 10.0]


def test_a_picture_has_each_row_in_both_charts_and_its_name_once(tmp_path):
    rows = {"Fed<Avg>": [curve(0.5, 0.7), curve(0.6, 0.9)], "alone": [[]], "FedAL": [curve(0.2, 0.4)]}
    draw(tmp_path / "curves.svg", rows, "MB")
    root = ET.parse(tmp_path / "curves.svg").getroot()
    lines = root.findall(f".//{SVG}polyline")
    names = [t.text for t in root.findall(f"{SVG}text")]
    assert names == ["Fed<Avg>", "FedAL"] and len(lines) == 2 * len(names)
    assert len({line.get("stroke") for line in lines}) == len(names)
    heights = [[float(p.split(",")[1]) for p in line.get("points").split()] for line in lines]
    assert all(first > last for first, last in heights)  # accuracy rises, so pixels from the top fall
    assert heights[:2] == heights[2:]  # the same values in both
    titles = {t.text for t in root.iter(f"{SVG}title")}
    assert {"Fed<Avg>, 5: 55%", "Fed<Avg>, 20: 80%", "FedAL, 20: 40%"} <= titles


def test_nothing_to_draw_is_said():
    with pytest.raises(UsageError, match="no curve"):
        picture({"alone": [[]], "one point": [curve(0.5)]}, "MB")
