"""Tasks of other packages: the graded one of docs/plugins.md in simulations, compiled bundles and a replay; and tasks
that cannot be used."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.cli import main
from edge_sdk.data.samples import Samples, store_samples
from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.model.tasks.plugged import PLUGINS, find_plugged
from edge_sdk.model.tasks.task import read_task
from tests.docs.pages import blocks, file_name
from tests.installing import Install, installing

PAGE = "docs/plugins.md"
LEVELS = ("none", "mild", "moderate", "severe")
NET = """from torch import nn
class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    with installing(tmp_path / "site", monkeypatch) as put:
        yield put


@pytest.fixture
def grades(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task of the page, installed, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = next(block.text for block in blocks(PAGE) if file_name(block) == "our_task.py")
    install("ordinal", {"task": "grades = our_task:Grades"}, {"our_task.py": text})


def graded(devices: int = 3, count: int = 48) -> dict[str, tuple[Any, Any]]:
    """Windows that shake the more, the higher their grade."""
    random, grade = np.random.default_rng(3), np.arange(count) % len(LEVELS)
    shaken = {f"d{n}": random.normal(size=(count, 1, 12)) + grade[:, None, None] for n in range(devices)}
    return {name: (x.astype(np.float32), np.array(LEVELS)[grade]) for name, x in shaken.items()}


def write_folder(folder: Path) -> Path:
    folder.mkdir()
    for name, (x, y) in graded().items():
        parts = [Samples(x[own], tuple(map(str, y[own]))) for own in (slice(24), slice(24, 36), slice(36, None))]
        store_samples(folder / f"{name}.npz", parts[0], parts[1], parts[2])
    return folder


def compiled(tmp_path: Path, *more: str) -> Path:
    pytest.importorskip("torch", reason="a network is compiled")
    (tmp_path / "net.py").write_text(NET)
    bundle = tmp_path / "graded.bundle"
    given = [f"{tmp_path}/net.py:Net", "--input=1,12", "--task=grades", "--search=0", f"-o={bundle}", *more]
    assert main(["bundle", "compile", *given]) == 0
    return bundle


# What it says -----------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("grades")
def test_a_task_by_its_definition() -> None:
    task = find_plugged("grades:levels=low,middle,high")
    assert task.targets(["low", "high", "middle"], (), "here").tolist() == [[0, 0], [1, 1], [1, 0]]
    assert task.listed(["low", "odd"], ()).tolist() == [True, False]
    sure, y = np.array([[-50.0, -50.0], [50.0, 50.0]]), np.array([[1.0, 1.0], [1.0, 1.0]], np.float32)
    assert task.shown(sure).ravel().tolist() == pytest.approx([0, 2])
    found = task.counts(y, sure)
    assert (found["absolute:0"], found["squared:0"], found["error:0"]) == pytest.approx((2, 4, -2))
    assert task.shown(task.baseline(np.array([[1, 0], [1, 1]], np.float32))).item() == pytest.approx(1.5, abs=1e-5)
    assert task.sample_losses(["high", "low"], np.array([[2.0], [0.5]]), "here").tolist() == [0, 0.5]
    assert task.write("high") == "high"
    with pytest.raises(UsageError, match="label 'odd' is none of task grades:levels=low,middle,high"):
        task.write("odd")
    assert read_task(task.entry(), 0, (2,)) == task != find_plugged("grades")
    assert json.loads(json.dumps(task.entry())) == task.entry()


@pytest.mark.usefixtures("grades")
def test_an_entry_of_another_version_is_refused() -> None:
    entry = find_plugged("grades").entry()
    for wrong in ({"outputs": 4}, {"names": ["step"]}, {"loss": "huber"}, {"settings": {"levels": "a,b"}}):
        with pytest.raises(UsageError, match=r"task grades: the bundle has .* our_task:Grades of ordinal 1\.0 says"):
            read_task({**entry, **wrong}, 0, (3,))
    with pytest.raises(UsageError, match="3 outputs, but an output of shape"):
        read_task(entry, 0, (4,))
    for torn in ({**entry, "more": 1}, {**entry, "settings": ["levels"]}):
        with pytest.raises(UsageError, match="expected kind, loss, names, outputs, settings, units"):
            read_task(torn, 0, (3,))
    with pytest.raises(UsageError, match=r"settings .* expected at most 16 settings"):
        read_task({**entry, "settings": {"levels": "x" * 2000}}, 0, (3,))


# What it is used in -----------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("grades", "warm_runs")
def test_arrays_in_grades_are_simulated(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="a network is compiled")
    import edge_sdk as auscult

    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    data = auscult.Fleet.from_arrays(graded(), task="grades")
    asked: dict[str, Any] = {"settings": {"eta_l": 0.3, "local_epochs": 4}, "progress": False, "workers": 1}
    run = auscult.simulate(data, "fedavg", model=net, rounds=8, **asked)
    told = run.results[0]["values"]
    assert told["task"]["kind"] == "grades" and told["task"]["units"] == ["steps"]
    models = {name: errors["grade"]["mae"] for name, errors in told["models"].items()}
    assert models["mean"] == pytest.approx(1, abs=0.05) and models["global"] < 0.6
    assert {"alone_trees", "alone_linear", "pooled"} <= {*models}
    predicted = run.devices["d1"].predict(graded()["d1"][0][:4])
    assert predicted.values.shape == (4, 1) and predicted.units == ("steps",)
    assert (np.diff(predicted.values[:, 0]) > 0).all()
    assert "grade (steps)" in str(run)


def written(more: str = "") -> Any:
    """The class of the page as a notebook has it, which no other process can import."""
    text = next(block.text for block in blocks(PAGE) if file_name(block) == "our_task.py")
    cells: dict[str, Any] = {"__name__": "__main__"}
    exec(text + more, cells)
    return cells["Grades"]


@pytest.mark.usefixtures("warm_runs")
def test_a_task_of_a_notebook_is_simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a class or as what it makes; what is the same again is taken from the cache, and another class is not."""
    pytest.importorskip("torch", reason="a network is compiled")
    pytest.importorskip("cloudpickle", reason="a task of one's own goes to a process of its own")
    import edge_sdk as auscult

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(PLUGINS, "given", {})
    asked: dict[str, Any] = {"rounds": 1, "plain": True, "neighbours": 0, "progress": False}
    data = auscult.Fleet.from_arrays(graded(2), task=written()(",".join(LEVELS)))
    run = auscult.simulate(data, "fedavg", **asked)
    assert run.results[0]["values"]["task"]["kind"] == "grades" and "grade (steps)" in str(run)
    assert run.devices["d1"].predict(graded(2)["d1"][0][:4]).units == ("steps",)
    monkeypatch.setattr("edge_sdk.research.runs.simulate.play_all", lambda *_: pytest.fail("it is played again"))
    assert auscult.simulate(data, "fedavg", **asked).results == run.results
    again = auscult.Fleet.from_arrays(graded(2), task=written()(",".join(LEVELS)))  # the cell is run again
    assert auscult.simulate(again, "fedavg", **asked).results == run.results
    other = written("\n    def errors(self, y, outputs):\n        return np.abs(y - outputs)[:, :1]\n")
    with pytest.raises(pytest.fail.Exception, match="played again"):
        auscult.simulate(auscult.Fleet.from_arrays(graded(2), task=other), "fedavg", **asked)
    assert repr(data.form().task.own) != repr(again.form().task.own)  # each fleet has its own


@pytest.mark.usefixtures("grades")
def test_what_is_no_task_of_a_notebook_is_told() -> None:
    import edge_sdk as auscult

    class Wide(auscult.OwnTask):
        outputs = 65

    class Needs(auscult.OwnTask):
        def __init__(self, levels: str) -> None: ...

    for task, said in (
        (3, "task is a int: expected its name, a class that is an edge_sdk.OwnTask, or what that makes"),
        (int, "task is int: expected its name"),
        (auscult.OwnTask, "task is OwnTask: expected its name"),
        (
            written(),
            r"there is one of that name, our_task:Grades of ordinal 1\.0; choose another, .* by its name, 'grades'",
        ),
        (Wide, "task wide, which this program has given: outputs = 65, expected 1 to 64"),
        (Needs, r"task needs, which this program has given: TypeError: .* 'levels'"),
    ):
        with pytest.raises(UsageError, match=said):
            auscult.Fleet.from_arrays(graded(2), task=task)
    assert not PLUGINS.given


@pytest.mark.usefixtures("grades")
def test_the_cache_knows_the_package(tmp_path: Path) -> None:
    from edge_sdk.research.runs.simulate import hash_plugins

    bundle, named = compiled(tmp_path), hash_plugins(["simulate", "x", "--task=grades:levels=a,b"])
    assert named and named == hash_plugins(["simulate", "x", f"--bundle={bundle}"])
    with (tmp_path / "site" / "our_task.py").open("a") as file:
        file.write("# another version\n")
    assert hash_plugins(["simulate", "x", "--task=grades"]) != named


@pytest.mark.usefixtures("grades")
def test_a_bundle_is_compiled_shown_and_simulated_by_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = compiled(tmp_path)
    assert main(["bundle", "inspect", str(bundle)]) == 0
    assert "predicts grade (steps) of task grades" in capsys.readouterr().out
    folder, out = write_folder(tmp_path / "data"), tmp_path / "out"
    run = ["simulate", str(folder), "--method=fedavg", f"--bundle={bundle}", "--rounds=2", "--neighbours=0"]
    assert main([*run, f"--out={out}"]) == 0  # the bundle says which task that is
    assert [*json.loads((out / "result.json").read_text())["values"]["models"]["global"]] == ["grade"]
    assert main([*run, f"--out={tmp_path / 'other'}", "--task=grades:levels=none,mild,moderate,worst"]) == 2
    assert "compile it with --task grades:levels=none,mild,moderate,worst" in capsys.readouterr().err
    assert main([*run, f"--out={tmp_path / 'other'}", "--task=grade"]) == 2
    assert "task grade: there are value, labels, steps, reconstruction, forecast, grades" in capsys.readouterr().err


@pytest.mark.usefixtures("grades", "warm_nodes")
def test_devices_hospitals_and_a_broker_replay_it(tmp_path: Path) -> None:
    bundle, out = compiled(tmp_path), tmp_path / "out"
    run = ["replay", str(write_folder(tmp_path / "data")), "--method=fedavg", f"--bundle={bundle}", f"--out={out}"]
    assert main([*run, "--rounds=2", "--hospitals=1", "--task=grades"]) == 0
    found = json.loads((out / "result.json").read_text())
    assert found["values"]["task"]["kind"] == "grades" and {"global", "mean", "local"} <= {*found["values"]["models"]}
    assert "grade" in (out / "report.html").read_text()


@pytest.mark.usefixtures("grades")
def test_options_of_other_tasks_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write_folder(tmp_path / "data"))
    for more, said in (
        (["--task=grades", "--unit=steps"], "--unit with --task grades: the task says itself"),
        (["--task=grades", "--quantile=0.9"], "--quantile are of anomalies"),
        (["--task=grades:levels=a,b"], "it takes none of the labels in the data: mild, moderate, none, severe"),
        (["--task=grades:levels"], "'levels' is no setting; expected NAME:KEY=VALUE"),
        (["--task=grades:colour=red"], r"task grades, our_task:Grades of ordinal 1.0: TypeError"),
        (["--task=value"], "--task value: classes have no option; values have --predict"),
    ):
        assert main(["simulate", folder, f"--out={tmp_path / 'out'}", *more]) == 2
        assert said in capsys.readouterr().err
    import edge_sdk as auscult

    with pytest.raises(UsageError, match="task grades says itself what it predicts"):
        auscult.Fleet.from_arrays(graded(), task="grades", unit="steps")


# What cannot be used ----------------------------------------------------------------------------------------------
WRONG: Mapping[str, tuple[str, str]] = {
    "no task": ("X = int", "it makes a int, expected an edge_sdk.OwnTask"),
    "a thing": ("X = 3", "a int; expected a class that is an edge_sdk.OwnTask"),
    "a needed setting": ("class X(OwnTask):\n    def __init__(self, levels): ...", "TypeError"),
    "no outputs": ("class X(OwnTask): outputs = 0", "outputs = 0, expected 1 to 64"),
    "a loss of nobody": ("class X(OwnTask): loss = 'hinge'", "loss = 'hinge', expected one of mean_squared_error"),
    "names": ("class X(OwnTask): names = ('a', 'a')", "expected different names"),
    "units": ("class X(OwnTask): units = ('a', 'b')", "1 names of 2 values"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_task(install: Install, capsys: pytest.CaptureFixture[str], case: str) -> None:
    code, said = WRONG[case]
    install("odd", {"task": "mine = odd:X"}, {"odd.py": f"from edge_sdk import OwnTask\n{code}\n"})
    assert main(["plugins", "--json"]) == 1
    (told,) = (one["fault"] for one in json.loads(capsys.readouterr().out))
    assert told.startswith("task mine, odd:X of odd 1.0: ") and said in told


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def target(self, label): return {}[label]", "KeyError"),
        ("def target(self, label): return [1.0, 2.0]", "expected 1 finite numbers"),
        ("def target(self, label): return [float('nan')]", "expected 1 finite numbers"),
        ("loss = 'binary_cross_entropy'\n    def target(self, label): return [2.0]", "expected shares of 0 to 1"),
    ],
)
def test_a_wrong_target_is_told_with_its_package(install: Install, code: str, said: str) -> None:
    install(
        "odd", {"task": "mine = odd:X"}, {"odd.py": f"from edge_sdk import OwnTask\nclass X(OwnTask):\n    {code}\n"}
    )
    with pytest.raises(UsageError, match=rf"task mine, odd:X of odd 1\.0: .*{said}"):
        find_plugged("mine").targets(["a"], (), "here")


def test_wrong_values_are_told_with_their_package(install: Install) -> None:
    code = "from edge_sdk import OwnTask\nclass X(OwnTask):\n    def shown(self, outputs): return outputs.sum()\n"
    install("odd", {"task": "mine = odd:X"}, {"odd.py": code})
    with pytest.raises(UsageError, match=r"odd:X of odd 1\.0: shown gives an array \(\), expected \(3, 1\)"):
        find_plugged("mine").shown(np.zeros((3, 1)))
    with pytest.raises(UsageError, match=r"odd:X of odd 1\.0: .*"):
        find_plugged("mine").counts(np.zeros((3, 2)), np.zeros((3, 1)))


@pytest.mark.parametrize("wrong", ["shown", "truth"])
def test_errors_that_a_task_leaves_to_us_are_told_by_what_makes_them(install: Install, wrong: str) -> None:
    """Whoever has written no `errors` was told that these are wrong."""
    code = f"from edge_sdk import OwnTask\nclass X(OwnTask):\n    def {wrong}(self, values): return values[:, 0]\n"
    install("odd", {"task": "mine = odd:X"}, {"odd.py": code})
    with pytest.raises(UsageError, match=rf"odd:X of odd 1\.0: {wrong} gives an array \(3,\), expected \(3, 1\)"):
        find_plugged("mine").counts(np.zeros((3, 1)), np.zeros((3, 1)))


def test_a_bundle_without_its_package_is_refused(
    grades: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from edge_sdk.model.bundle import read_bundle
    from edge_sdk.plugins import entries_of

    bundle = compiled(tmp_path)
    (offered,) = (tmp_path / "site").glob("*.dist-info/entry_points.txt")
    offered.write_text("")
    entries_of.cache_clear()
    with pytest.raises(AuscultError, match=r"task grades: no installed package has one of this name"):
        read_bundle(bundle)
    capsys.readouterr()
    assert main(["bundle", "inspect", str(bundle)]) == 2
    assert re.search("task grades: no installed package", capsys.readouterr().err)


@pytest.mark.usefixtures("grades")
def test_another_loss_than_the_task_s_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="a network is compiled")
    (tmp_path / "net.py").write_text(NET)
    command = ["bundle", "compile", f"{tmp_path}/net.py:Net", "--input=1,12", "--task=grades", "--search=0"]
    assert main([*command, f"-o={tmp_path / 'x.bundle'}", "--loss=huber"]) == 2
    assert "loss huber with task grades: expected binary_cross_entropy" in capsys.readouterr().err
