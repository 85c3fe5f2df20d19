"""What results show: tables, curves, LaTeX, comparisons, files; and the bar on the way there."""

from __future__ import annotations

import io
import re
import sys
import types
from html.parser import HTMLParser

import pytest

import edge_sdk as auscult
from edge_sdk.research.comparisons import frames
from edge_sdk.research.comparisons.latex import differences_table, error, escaped
from edge_sdk.research.comparisons.results import ABOUT, Results
from edge_sdk.research.runs.progress import TerminalBar, line_of, make_bar, said_last

pytest.importorskip("torch", reason="a network is compiled")


class Balanced(HTMLParser):
    """Whether all elements end where they must."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br", "line", "circle"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("line", "circle"):
            assert self.open.pop() == tag


def check_html(text):
    reader = Balanced()
    reader.feed(text)
    assert not reader.open
    assert "<script" not in text and "http" not in text


def test_a_run_says_what_it_has_reached(ditto):
    text = repr(ditto)
    assert text.startswith("ditto: 4 devices, 3 rounds, 2 seeds")
    assert re.search(r"personalised +\d+\.\d%", text)
    mean = sum(r["accuracy"]["personalised"] for r in ditto.results) / 2
    assert ditto.accuracy["personalised"] == pytest.approx(mean)


def test_a_notebook_shows_a_table_and_curves(ditto, fedavg):
    html = ditto._repr_html_()
    check_html(html)
    assert html.count("<svg") == 2 and "<table>" in html and "personalised" in html
    assert "body{" not in html  # no rule is for the page around it
    compared = auscult.compare(ditto, fedavg)._repr_html_()
    check_html(compared)
    assert "Against ditto, paired over devices" in compared


def test_tables_are_tidy(ditto, monkeypatch):
    kept = types.SimpleNamespace(DataFrame=list)
    monkeypatch.setitem(sys.modules, "pandas", kept)
    rows = ditto.frame()
    assert {(row["seed"], row["device"]) for row in rows if row["model"] == "personalised"} == {
        (seed, device) for seed in (0, 1) for device in ditto.devices
    }
    one = next(row for row in rows if row["model"] == "personalised")
    assert one["accuracy"] == ditto.results[0]["devices"][0]["metrics"]["personalised"]["accuracy"]
    curves = ditto.curves()
    assert {row["round"] for row in curves if row["model"] == "global"} == {0, 1, 2, 3}
    assert all(0 <= row["accuracy"] <= 1 for row in curves)
    assert {row["model"] for row in curves} == {"global", "personalised"}
    judged = {row["model"]: row["accuracy"] for row in curves if (row["part"], row["seed"]) == ("test", 0)}
    assert judged == pytest.approx(ditto.results[0]["accuracy"])


def test_without_a_library_for_tables_it_says_which(monkeypatch):
    monkeypatch.setattr(frames, "importlib", types.SimpleNamespace(import_module=missing))
    with pytest.raises(auscult.UsageError, match="pip install pandas"):
        frames.as_frame([])


def missing(name):
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_a_single_device_has_no_interval():
    """Its own difference stood there twice, as if nothing were unsure."""
    one = {"mean": 0.25, "low": 0.25, "high": 0.25, "devices": 1}
    assert "25.0$ & -- & 1" in differences_table({"run": {"personalised": one}}, "first")
    assert " & -- & 1" in differences_table({"run": {"personalised": {**one, "than": 0.5}}}, "first")
    assert " & -- & 1" in differences_table({"run": {"personalised": {"rate": one}}}, "first")


def test_latex(ditto, fedavg):
    table = ditto.latex()
    assert table.startswith("\\begin{tabular}{lrrr}") and table.endswith("\\end{tabular}")
    assert re.search(r"personalised & \d+\.\d( \$\\pm\$ \d+\.\d)? & ", table)
    both = auscult.compare(a_b=ditto, fedavg=fedavg).latex()
    assert "against a\\_b, points" in both and "fedavg & personalised & $" in both
    assert escaped("50 % & x_1") == "50 \\% \\& x\\_1"


def test_errors_have_one_number_of_decimals_and_a_sign_of_mathematics():
    errors = {"mae": {"mean": 5.81, "sd": 0.156}, "bias": {"mean": -1.639, "sd": 0.4661}}
    assert error(errors, "mae") == r"5.81 $\pm$ 0.16" and error(errors, "bias") == r"$-1.64$ $\pm$ 0.47"


def test_a_comparison_pairs_devices(ditto, fedavg):
    found = auscult.compare(ditto, fedavg).differences["fedavg"]["personalised"]

    def mean(run):
        devices = [d["metrics"]["personalised"]["accuracy"] for r in run.results for d in r["devices"]]
        return sum(devices) / len(devices)

    assert found["devices"] == 4 and found["mean"] == pytest.approx(mean(fedavg) - mean(ditto))
    assert auscult.compare(ditto, ditto).differences["ditto (2)"]["personalised"]["mean"] == 0.0


def test_what_cannot_be_compared_is_named(ditto):
    with pytest.raises(auscult.UsageError, match="1 result; two or more"):
        auscult.compare(ditto)
    with pytest.raises(auscult.UsageError, match="str is no result"):
        auscult.compare(ditto, "fedavg")
    others = [{**r, "devices": [{**d, "device": "x" + d["device"]} for d in r["devices"]]} for r in ditto.results]
    with pytest.raises(auscult.UsageError, match="no device in common"):
        auscult.compare(ditto, Results("other", others, ditto.directories))


def test_what_runs_have_otherwise_is_told_before_they_are_compared(ditto, fedavg):
    """Devices are paired by their names: two fleets, or two seeds of a data set, have the same ones."""
    assert auscult.compare(ditto, ditto).found["circumstances"] == []
    assert "not alike" not in str(auscult.compare(ditto, ditto)) + auscult.compare(ditto, ditto).latex()
    made = {**ditto.results[0]["made"], "data": "0" * 64}
    others = [{**ditto.results[0], "made": made, "data": {**ditto.results[0]["data"], "held_out": 0.3}, "rounds": 7}]
    others = [{**one, "gradients": fedavg.summary["gradients"]} for one in others]
    found = auscult.compare(fedavg, Results("mine", others, ditto.directories[:1]))
    told = (
        "not alike: mine: other data than fedavg, so that devices of one name need not be the same, "
        "held_out = 0.3 where fedavg has its default, seed 0 where fedavg has 0, 1, rounds 7 where fedavg has 3"
    )
    assert str(found).startswith(f"{told}\n") and found.latex().startswith(f"% {told}\n")
    check_html(found._repr_html_())
    assert told in found._repr_html_()


def test_a_run_of_several_seeds_is_not_said_to_have_reached_nothing(ditto, fedavg):
    one = Results("one", ditto.results[:1], ditto.directories[:1])
    text = str(auscult.compare(one, fedavg))
    head = text.split("reached after what was sent\n")[1].splitlines()[0]
    assert head.split() == ["one"]


def test_what_is_saved_comes_back(ditto, tmp_path):
    folder = ditto.save(tmp_path / "study")
    again = auscult.load(folder)
    assert again.name == "ditto" and again.results == ditto.results and again.seeds == [0, 1]
    x = pytest.importorskip("numpy").zeros((2, 30), "float32")
    for seed in (0, 1):
        ours, theirs = (run.devices_of(seed)["h1-1"].predict(x).probabilities for run in (ditto, again))
        assert (ours == theirs).all()
    assert (folder / "report.html").is_file()
    with pytest.raises(auscult.UsageError, match="is not empty"):
        ditto.save(folder)
    with pytest.raises(auscult.UsageError, match="no result"):
        auscult.load(tmp_path)
    for text in ("{}", "7", "[" * 100_000):
        (folder / ABOUT).write_text(text)
        with pytest.raises(auscult.UsageError, match=f"{ABOUT}: no name of a run"):
            auscult.load(folder)


def test_devices_by_their_names(ditto):
    with pytest.raises(KeyError, match="no device h1-3; perhaps h1-"):
        ditto.devices["h1-3"]
    with pytest.raises(auscult.UsageError, match="no run with seed 5; there are 0, 1"):
        ditto.devices_of(5)
    device = ditto.devices["h1-1"]
    assert {"personal", "global"} <= {*device.models} and repr(device).startswith("device h1-1: ")


def test_the_bar_tells_how_far_all_runs_are():
    assert line_of([(0, 0), (0, 0)]) == "starting"
    assert line_of([(10, 10), (5, 10)]) == f"[{'#' * 22}{'.' * 8}] 15 of 20 rounds, 1 of 2 runs are over"
    assert line_of([(3, 10)]) == f"[{'#' * 9}{'.' * 21}] 3 of 10 rounds"


def test_the_bar_says_what_is_done_where_no_round_is_played(tmp_path):
    """Trials of networks before the first, and neighbours after the last, take longer than short runs do."""
    log = tmp_path / "run.log"
    assert said_last(log) == ""
    log.write_text("trying networks: features\n round  devices\n     1        4   1.4238\n\n")
    assert said_last(log) == "trying networks: features" == line_of([(0, 0)], said_last(log))
    assert line_of([(3, 10)], "trying networks").endswith("3 of 10 rounds")
    assert line_of([(10, 10)], "all data in one place").endswith("10 of 10 rounds; all data in one place")
    assert line_of([(0, 0)], "x" * 500) == "x" * 60 + "..."


def test_a_shorter_line_covers_the_one_before():
    file = io.StringIO()
    bar = TerminalBar(file)
    bar.show([(0, 0)], "a long sentence")
    bar.show([(0, 0)], "short")
    assert file.getvalue() == "\ra long sentence\rshort" + " " * 10


def test_a_bar_on_a_terminal_leaves_nothing_behind():
    file = io.StringIO()
    bar = TerminalBar(file)
    bar.show([(1, 2)])
    bar.show([(1, 2)])
    bar.close()
    assert file.getvalue().count("1 of 2") == 1 and file.getvalue().endswith("\r")


def test_a_bar_in_a_notebook(monkeypatch):
    shown = []

    class Handle:
        def update(self, data, raw):
            shown.append(data["text/plain"])

    display = types.SimpleNamespace(display=lambda data, raw, display_id: Handle())
    shell = types.SimpleNamespace(kernel=1)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell, display=display))
    bar = make_bar()
    bar.show([(1, 2)])
    bar.close()
    assert shown[0].endswith("1 of 2 rounds") and shown[-1] == ""


def test_a_run_whose_training_diverged_says_so_before_anything_else():
    """Devices drop what has diverged, so the result is the model that the run began with."""
    data = auscult.Fleet.dataset("breast-cancer", devices=1)
    given = dict(rounds=2, plain=True, neighbours=0, progress=False)
    lost = auscult.simulate(data, "fedavg", settings={"eta_l": 1e9}, **given)
    assert "In 2 of 2 rounds no device's training counted" in str(lost) and lost.verdict.startswith("In 2 of 2 rounds")
    assert "training counted" not in str(auscult.simulate(data, "fedavg", **given))
