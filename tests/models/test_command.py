"""`auscult bundle compile` as its user types it: what it finds, and the one sentence that it says where it cannot."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from edge_sdk.model.bundle import parse, read_bundle
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.cli import main
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.ir.specification.spec import Spec

FILES = {
    "sibling_of_net.py": """
from torch import nn


def block(n):
    return nn.Sequential(nn.Linear(n, n), nn.ReLU())
""",
    "net_of_test.py": """
import torch
from sibling_of_net import block
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, width), block(width), nn.Linear(width, 3)

    def forward(self, x):
        hidden = self.b(self.a(x))
        return {"hidden": hidden, "scores": self.c(hidden)}


class Best(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 6)

    def forward(self, x):
        return torch.lgamma(self.a(x).abs() + 1)


def needs(width):
    return Net(width)


def number():
    return 3


def late():
    import no_such_package_at_all
""",
    "broken_net.py": "def",
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with modules of a user, which is the working directory."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in FILES:
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    return tmp_path


def test_arguments_siblings_results_and_options_before_the_module(here, capsys):
    options = ["--input", "6", "net_of_test.py:Net", "--arg", "width=5", "--result", "scores", "--explain"]
    assert main(["compile", *options, "-o", "m.bundle"]) == 0
    bundle = read_bundle(here / "m.bundle")
    assert bundle.manifest["output"] == [3] and bundle.layout.slots[0].shape == (5, 6)
    assert "b.1                              relu.default                         Relu" in capsys.readouterr().out


def test_a_network_of_the_zoo_takes_arguments_of_its_class(here):
    assert main(["compile", "mlp", "--input", "6", "--classes", "2", "--arg", "hidden=[]", "-o", "m.bundle"]) == 0
    assert read_bundle(here / "m.bundle").layout.size == 14, "one linear layer"


SAID = {
    "net_of_test.py:Net --input 6": "several results: hidden (8,), scores (3,); choose one with --result NAME",
    "net_of_test.py:Net --input 6 --result lost": "no result 'lost': hidden (8,), scores (3,)",
    "net_of_test.py:needs --input 6": "calling it with () fails: TypeError: needs() missing 1 required",
    "net_of_test.py:number --input 6": "gives a int, expected a torch.nn.Module",
    "net_of_test.py:late --input 6": "ModuleNotFoundError: No module named 'no_such_package_at_all'",
    "net_of_test.py:Lost --input 6": "net_of_test.py has no 'Lost'",
    "lost.py:Net --input 6": "lost.py: there is no such file",
    "lost_package:Net --input 6": "No module named 'lost_package'; install it",
    "broken_net.py:Net --input 6": "broken_net.py cannot be imported: SyntaxError",
    "net_of_test.py:Best --input 6": "operator lgamma (of torch) has no gradient rule",
    "--input 6": "which module?",
    "net_of_test.py:Net --input 6 --arg width": "--arg width: expected NAME=VALUE",
    "net_of_test.py:Net": "--input is missing",
    "mlp --input 6 --max-batch 0": "max_batch = 0: at least 1",
    "mlp --input 6 --arg width=3": "--arg width=3: TypeError: MLP.__init__() got an unexpected keyword argument",
}


@pytest.mark.parametrize("command", SAID)
def test_what_cannot_be_is_said_in_one_sentence(here, capsys, command):
    assert main(["compile", *command.split()]) == 2
    said = capsys.readouterr().err
    assert SAID[command] in said and "Traceback" not in said and len(said.splitlines()) == 1


def test_a_defect_of_the_compiler_is_no_traceback_but_explained(here, capsys, monkeypatch):
    def fail(*given):
        raise KeyError("v17")

    monkeypatch.setattr("edge_sdk.models.cli.compile_module", fail)
    assert main(["compile", "mlp"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["compile", "mlp", "--explain"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_help_is_there(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["compile", "--help"])
    assert "--dropout" in capsys.readouterr().out


def make_frozen():
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3))
    net[0].requires_grad_(False)
    net[2].bias.requires_grad_(False)
    return net.eval()


def test_frozen_parameters_are_neither_trained_nor_sent():
    net = make_frozen()
    made = compile_module(net, Spec("m", (6,)))
    model = Model(parse(made.data))
    assert [s.name for s in model.layout.slots] == ["2.weight", "4.weight", "4.bias"]
    assert [s.name for s in model.bundle.buffers.slots] == ["0.weight", "0.bias", "2.bias"]
    x, y = np.random.default_rng(1).standard_normal((5, 6)).astype(np.float32), np.arange(5) % 3
    want = net(torch.from_numpy(x)).detach().numpy()
    assert model.predict(model.theta0, x) == pytest.approx(want, abs=1e-5)
    assert model.loss_grad(model.theta0, x, y)[1].shape == (25 + 15 + 3,)


def test_nothing_to_train():
    with pytest.raises(CompileError, match="no parameter has requires_grad"):
        compile_module(make_frozen().requires_grad_(False), Spec("m", (6,)))
