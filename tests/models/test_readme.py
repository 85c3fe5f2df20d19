"""The examples of the pages on networks, run as they stand."""

import re
from pathlib import Path

import pytest

from edge_sdk.models.cli import main
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.ir.marks import MARKS
from edge_sdk.models.rules import RULES
from edge_sdk.tools.bundle_commands import verify

ROOT = Path(__file__).parents[2]
README = (ROOT / "models" / "README.md").read_text()
PAGE = (ROOT / "docs" / "bring-your-model.md").read_text()
BLOCKS = [block for text in (PAGE, README) for block in re.findall(r"```python\n(.*?)```", text, re.S)]


def test_bring_your_own_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(BLOCKS[0])
    command = re.search(r"auscult bundle (compile net.py.*)", PAGE)[1].split()
    assert main(command) == 0
    assert "golden vectors pass" in verify(Path("net.bundle"))
    here = {}
    exec(BLOCKS[1], here)
    assert here["accuracy"] > 0.9
    assert "net.bundle written" in capsys.readouterr().out


def test_the_split_model():
    here = {}
    exec(BLOCKS[2], here)
    assert here["bundle"].parameters == 2 * (38 * 16 + 16) + 32 * 2 + 2


def test_every_operator_with_a_rule_is_named():
    missing = [
        op for op in {*RULES} - MARKS if not re.search(rf"\b{op}\b|{op.replace('Normalization', 'Norm')}", README)
    ]
    assert set(missing) <= {"Identity", "Cast", "InstanceNormalization", "BatchNormalization", "LayerNormalization"}


def test_every_refusal_is_named():
    kinds = {c.__name__ for c in CompileError.__subclasses__()}
    assert [k for k in kinds if k not in PAGE] == []


@pytest.mark.parametrize("n", [0, 1, 2])
def test_blocks_are_python(n):
    compile(BLOCKS[n], "README", "exec")
