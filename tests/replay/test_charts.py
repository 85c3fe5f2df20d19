"""Charts and reports: data in, text out."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from math import inf, nan

import pytest

from edge_sdk.replay.reports import charts, page, rows, terminal
from edge_sdk.replay.reports.rows import Whisker, bare
from edge_sdk.replay.result import natural

RESULT = {
    "method": "fedslr",
    "rounds": 2,
    "seed": 1,
    "hospitals": 1,
    "broker": "embedded",
    "data": {"name": "a<b>", "generated": True},
    "auc": {},
    "accuracy": {"local": 0.5, "global": 0.25, "personalised": 0.75},
    "devices": [
        {
            "device": "d<1>",
            "hospital": "h",
            "samples": 10,
            "held_out": 5,
            "classes": 2,
            "accuracy": {"local": 0.5, "global": 0.25, "personalised": 0.75},
            "density": 0.125,
            "peak_memory_mb": 80.0,
            "cpu_seconds": 1.5,
        }
    ],
    "bytes": dict.fromkeys(page.HOPS, 1_500_000),
    "seconds": 12.0,
    "memory": {"device_peak_mb": 80.0},
    "density": 0.125,
    "model": {"parameters": 100, "parameters_sent": 40, "ranks": {"w": 3}, "full_ranks": {"w": 8}},
    "settings": {},
    "curve": [
        {"kind": "round", "round": 1, "devices": 1, "sums": {"loss": 2.0}, "bytes": {}, "bytes_so_far": 5, "time": 3.0},
        {
            "kind": "evaluation",
            "round": 1,
            "final": True,
            "sums": {"devices": 1.0, "samples": 5.0, "global_accuracy": 0.25, "personal_accuracy": 0.75},
            "bytes": {},
            "bytes_so_far": 6,
            "time": 4.0,
        },
        {"kind": "finished", "round": 1, "bytes": {}, "bytes_so_far": 6, "time": 4.0},
    ],
}


def test_ticks_are_round_and_inside() -> None:
    ticks = charts.Axis(0.03, 0.97, 0, 100).ticks()
    assert ticks == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert charts.Axis(0, 30, 0, 1).ticks(8) == [0, 5, 10, 15, 20, 25, 30]


def test_an_axis_is_linear() -> None:
    axis = charts.Axis(2.0, 4.0, 100.0, 0.0)
    assert [axis(2.0), axis(3.0), axis(4.0)] == [100.0, 50.0, 0.0]


@pytest.mark.parametrize("points", [[(0, 1.0)], [(0, 0.0), (1, 0.0)], [(0, nan), (1, 2.0)], [(0, 1e9), (1, -1e9)]])
def test_lines_are_svg_whatever_the_data(points: list[tuple[float, float]]) -> None:
    svg = ET.fromstring(charts.lines({"a & b": points}, "x", "y"))
    drawn = [float(v) for c in svg.iter("circle") for v in (c.attrib["cx"], c.attrib["cy"])]
    assert len(drawn) == 2 * sum(y == y for _, y in points) and all(0 <= v <= charts.WIDTH for v in drawn)


def test_nothing_to_draw() -> None:
    assert "nothing to draw" in charts.lines({"a": [(0, nan), (1, inf)]}, "x", "y")
    assert "nothing to draw" in charts.bars([], {}, "y")


def test_every_bar_is_there_and_as_high_as_its_value() -> None:
    svg = ET.fromstring(charts.bars(["p", "q"], {"a": [0.5, 1.0], "b": [nan, 0.25]}, "y", percent=True))
    heights = [float(rect.attrib["height"]) for rect in svg.iter("rect")]
    full = charts.HEIGHT - charts.BOTTOM - charts.TOP
    assert heights == pytest.approx([full / 2, full, full / 4], abs=0.1)


def test_the_page_escapes_names_and_says_what_is_generated() -> None:
    html = page.make_page(RESULT)
    assert "d&lt;1&gt;" in html and "d<1>" not in html
    assert "<b>generated</b>" in html and "3</td><td>8" in html


def test_the_terminal_shows_a_line_per_round_and_a_table() -> None:
    lines = [terminal.round_line(line, began=0.0) for line in RESULT["curve"][:2]]
    assert lines[0].split() == ["1", "1", "2.0000", "-", "-", "0.0", "3.0"]
    assert lines[1].split()[0] == "end" and "25.0%" in lines[1] and "75.0%" in lines[1]
    table = terminal.device_table(RESULT)
    assert "d<1>" in table and table.splitlines()[-1].split() == ["mean", "50.0%", "25.0%", "75.0%"]
    assert "rank     w 3/8" in terminal.summary(RESULT) and "12.5% of the personal" in terminal.summary(RESULT)


def test_the_terminal_says_nothing_of_ranks_and_zeros_where_there_are_none() -> None:
    said = terminal.summary({**RESULT, "density": 0.99, "model": {**RESULT["model"], "ranks": {"w": 8}}})
    assert "rank " not in said and "personal " not in said.replace("personalised", "")


def test_a_row_has_a_dot_and_a_line_over_its_interval() -> None:
    series = {"a": [Whisker(0.5, 0.25, 0.75), bare(nan)], "b": [bare(1.0), Whisker(0.0, 0.0, 0.5)]}
    svg = ET.fromstring(rows.intervals(["p & q", "r" * 40], series, "accuracy", percent=True))
    dots = [float(c.attrib["cx"]) for c in svg.iter("circle")]
    lines = [(float(x.attrib["x1"]), float(x.attrib["x2"])) for x in svg.iter("line") if "stroke" in x.attrib]
    assert len(dots) == 3 and len(lines) == 2
    (low, high), (least, _) = lines
    assert (low + high) / 2 == pytest.approx(dots[0], abs=0.1) and least == pytest.approx(dots[2], abs=0.1)
    assert dots[2] < low < dots[0] < high < dots[1] <= rows.WIDTH
    assert "r" * 40 in [title.text for title in svg.iter("title")], "the whole name is in the tooltip"
    assert len({float(c.attrib["cy"]) for c in svg.iter("circle")}) == 3, "series of one device lie beside each other"


def test_rows_with_losses_have_a_line_at_zero() -> None:
    chart = rows.intervals(["p"], {"a": [Whisker(-2.0, -3.0, -1.0)]}, "points", zero=True)
    (zero,) = [x for x in ET.fromstring(chart).iter("line") if x.attrib.get("class") == "zero"]
    (dot,) = [float(c.attrib["cx"]) for c in ET.fromstring(chart).iter("circle")]
    assert dot < float(zero.attrib["x1"]) <= rows.WIDTH
    assert "nothing to draw" in rows.intervals([], {}, "x")


def test_a_band_lies_behind_its_curve() -> None:
    bands = {"a": [(0, 0.25, 0.75), (1, 0.5, 1.0)], "none": [(0, 0.0, 1.0)]}
    svg = ET.fromstring(charts.lines({"a": [(0, 0.5), (1, 0.75)]}, "x", "y", percent=True, bands=bands))
    (area,) = list(svg.iter("polygon"))
    ys = [float(pair.split(",")[1]) for pair in area.attrib["points"].split()]
    dots = [float(c.attrib["cy"]) for c in svg.iter("circle")]
    assert len(ys) == 4 and ys[0] < dots[0] < ys[3] and ys[1] < dots[1] < ys[2]


def test_shares_have_the_same_axis_in_every_chart() -> None:
    """Half lies at the same height, and at the same distance, whatever else a chart has."""
    curves = [charts.lines({"a": [(0, 0.5), (1, y)]}, "x", "y", percent=True) for y in (0.51, 0.99)]
    dots = [[float(c.attrib["cy"]) for c in ET.fromstring(svg).iter("circle")] for svg in curves]
    assert dots[0][0] == dots[1][0]
    several = [rows.intervals(["p", "q"], {"a": [bare(0.5), bare(y)]}, "x", percent=True) for y in (0.51, 0.99)]
    dots = [[float(c.attrib["cx"]) for c in ET.fromstring(svg).iter("circle")] for svg in several]
    assert dots[0][0] == dots[1][0]


def test_curves_have_their_spread_over_devices_behind_them() -> None:
    """Two devices, right in a quarter and in three quarters of their samples, and a line of a run of before."""
    sums = {"devices": 2.0, "samples": 8.0, "global_accuracy": 1.0, "global_accuracy_squared": 0.625}
    before = {"devices": 2.0, "samples": 8.0, "global_accuracy": 1.0}
    lines = [{"kind": "evaluation", "round": n, "sums": found} for n, found in ((0, before), (1, sums))]
    result = {**RESULT, "curve": lines}
    assert page.accuracy_curves(result)["global model"] == [(0, 0.5), (1, 0.5)]
    assert page.accuracy_bands(result)["global model"] == [(0, 0.5, 0.5), (1, 0.25, 0.75)]
    assert "<polygon" in page.curves(result)


def test_a_model_has_one_colour_on_the_whole_page() -> None:
    colours = {"global model": "var(--c1)", "personalised": "var(--c2)"}
    one = charts.lines({"personalised": [(0, 0.5)]}, "x", "y", colours=colours)
    other = charts.bars(["d"], {"global model": [0.5], "personalised": [0.5]}, "y", colours=colours)
    assert "var(--c2)" in one and "var(--c1)" not in one
    assert [r.attrib["fill"] for r in ET.fromstring(f"<x>{other}</x>").iter("rect")] == ["var(--c1)", "var(--c2)"]
    assert set(page.COLOURS) == set(page.KINDS.values())
    assert len(set(page.COLOURS.values())) == len(page.COLOURS)


def test_the_page_has_statistics_harmed_devices_recall_and_what_was_run() -> None:
    found = {"mean": 0.125, "low": -0.25, "high": 0.5, "devices": 2, "worse": 0.5, "worse_by_a_point": 0.5}
    group = {
        "devices": 2,
        "models": {"local": {"accuracy": 0.5}, "personalised": {"accuracy": 0.625}},
        "against_local": {"personalised": found},
        "against_local_fleet": {},
    }
    device = {**RESULT["devices"][0], "recall": {"local": {"walk": 0.25}, "personalised": {"walk": 1.0}}}
    other = {**device, "device": "worse", "accuracy": {"local": 0.75, "personalised": 0.25}}
    made = {"date": "2026-01-02", "version": "1.2.3", "command": "auscult replay <x>", "bundles": ["abc"]}
    made["processor"] = "Cortex-A72 (aarch64)"
    html = page.make_page(
        {
            **RESULT,
            "devices": [device, other],
            "classes": ["walk", "sit"],
            "statistics": {"all": group},
            "made": made,
            "settings": {"eta_l": 0.5},
        }
    )
    assert "Test samples, all 2 devices" in html and "+12.5 [-25.0, +50.0]" in html and "1 of 2" in html
    assert "worse off than alone by more than a point: worse." in html
    assert "<td class='text'>walk</td><td>2</td><td>25.0%</td>" in html and ">sit</td>" not in html
    for words in ("auscult replay &lt;x&gt;", "1.2.3", "abc", "eta_l = 0.5", "Cortex-A72 (aarch64); others round"):
        assert words in html


def test_devices_are_sorted_as_people_count() -> None:
    names = ["m10", "m2", "f1", "m1", "patient-10-left", "patient-2-left"]
    assert sorted(names, key=natural) == ["f1", "m1", "m2", "m10", "patient-2-left", "patient-10-left"]
