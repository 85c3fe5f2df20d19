"""The tool that trains an aggregator's private model."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from aggregator.private_model import table as private
from aggregator.private_model.pretrain import Pretraining, main, pretrain
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import parse
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.zoo import ZOO
from edge_sdk.nodes.configuration.private_table import Private
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.replay import datasets
from edge_sdk.replay.datasets.table import reserve_rows

SMALL = {"data": "breast-cancer", "rows": 200, "architecture": "mlp", "epochs": 15, "rate": 0.01}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("private")
    said = []
    return out, pretrain(Pretraining(out=out, **SMALL), said.append), said


def test_it_learns_and_says_so(made):
    out, found, said = made
    assert found["accuracy"] > 0.85 and found["samples"] == 200 and len(said) == 15
    assert {f.name for f in out.iterdir()} == {"model.pt", "data.npz", "private.toml"}


def test_its_files_are_a_regulariser(made):
    out, _, _ = made
    settings = read_toml(out / "private.toml", Private)
    assert settings.reserved == 200 and settings.weight == 5.0
    torch.manual_seed(0)
    bundle = parse(compile_module(ZOO["mlp"].build((30,), 2).eval(), Spec("mlp", input=(30,), classes=2)).data)
    found = private.regulariser_of(settings, bundle, 0, "cpu")
    assert found(bundle.theta0, 0, found.first()).gradient.any()
    same = private.regulariser_of(read_toml(out / "private.toml", Private), bundle, 0, "cpu")
    assert np.array_equal(found(bundle.theta0, 0, found.first()).gradient,
                          same(bundle.theta0, 0, same.first()).gradient)  # fmt: skip


def test_its_samples_are_the_reserved_ones(made):
    out, _, _ = made
    table = datasets.load("breast-cancer")
    rows = reserve_rows(table, 200)
    with np.load(out / "data.npz", allow_pickle=False) as file:
        assert np.array_equal(file["y"], table.y[rows]) and file["x"].shape == (200, 30)
        scale = file["x"][:, 0] @ table.x[rows][:, 0] / np.linalg.norm(file["x"][:, 0]) ** 2
        assert np.isfinite(scale)


def test_the_same_seed_gives_the_same_model(made, tmp_path):
    pretrain(Pretraining(out=tmp_path, **SMALL), lambda text: None)
    one, two = (torch.load(d / "model.pt", weights_only=True)["state"] for d in (made[0], tmp_path))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_one_s_own_class(tmp_path, capsys):
    (tmp_path / "net.py").write_text("from torch import nn\n\n\ndef net(width):\n    return nn.Sequential("
                                     "nn.Linear(30, width), nn.ReLU(), nn.Linear(width, 2))\n")  # fmt: skip
    command = ["breast-cancer", "-o", str(tmp_path / "out"), "--rows", "100", "--epochs", "2", "--json"]
    assert main([*command, "--architecture", f"{tmp_path}/net.py:net", "--argument", "width=7"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == 30 * 7 + 7 + 7 * 2 + 2
    settings = read_toml(tmp_path / "out" / "private.toml", Private)
    assert private.load_module(settings, "cpu")(torch.zeros(3, 30)).shape == (3, 2)


def test_a_model_of_the_zoo_with_arguments(tmp_path):
    found = pretrain(
        Pretraining(**{**SMALL, "out": tmp_path, "epochs": 1, "arguments": {"hidden": [5, 3]}}), lambda text: None
    )
    assert found["parameters"] == 30 * 5 + 5 + 5 * 3 + 3 + 3 * 2 + 2
    assert private.load_module(read_toml(tmp_path / "private.toml", Private), "cpu")(torch.zeros(3, 30)).shape == (3, 2)


def test_images_have_the_shape_that_they_have_on_devices(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (40, 28, 28), np.uint8)
    images = {"x_train": x[:30], "y_train": np.arange(30) % 10, "x_test": x[30:], "y_test": np.arange(10)}
    np.savez(tmp_path / "m.npz", **images)
    pretrain(Pretraining(data=f"mnist:{tmp_path / 'm.npz'}", out=tmp_path / "out", rows=20, epochs=1), print)
    with np.load(tmp_path / "out" / "data.npz") as file:
        assert file["x"].shape == (20, 1, 28, 28)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": 569}, "some are for devices"),
        ({"rows": 0}, "--rows 0"),
        ({"architecture": "lnet"}, "no such model in the zoo"),
        ({"architecture": "lenet"}, "lenet"),
        ({"input": (5, 5)}, "samples of breast-cancer have the shape"),
        ({"arguments": {"classes": 3}}, r"returns \(2, 3\) for 2 samples"),
        ({"data": "mnist"}, "comes from a file"),
    ],
)
def test_mistakes_are_told_by_name(tmp_path, change, said):
    with pytest.raises(UsageError, match=said):
        pretrain(Pretraining(**{**SMALL, "out": tmp_path, **change}), print)
