"""Settings files: everything wrong is told at once, with the key, the value and what would be right."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.settings import from_mapping, parse_assignment, read_toml
from edge_sdk.wire.options import Wire


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise UsageError(f"rate = {self.rate}, it is between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    file: Path
    count: int = 3
    limit: int | None = None
    names: tuple[str, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return path


def test_a_good_file(tmp_path: Path) -> None:
    text = 'name = "a"\nfile = "x/y"\nlimit = 4\nnames = ["p", "q"]\nsizes = {u = 1}\n[inner]\nrate = 0.25\n'
    found = read_toml(write(tmp_path, text), Outer)
    expected = Outer(name="a", file=tmp_path / "x/y", limit=4, names=("p", "q"), sizes={"u": 1}, inner=Inner(0.25))
    assert found == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('file = "x"', "name is missing: a text"),
        ('name = 3\nfile = "x"', "name = 3: expected a text"),
        ('name = "a"\nfile = "x"\ncount = "many"', "count = 'many': expected a whole number"),
        ('name = "a"\nfile = "x"\ncount = true', "count = True: expected a whole number"),
        ('name = "a"\nfile = "x"\ncuont = 3', "cuont is no setting, did you mean count?"),
        ('name = "a"\nfile = "x"\nzzz = 3', "zzz is no setting; there are: name, file"),
        ('name = "a"\nfile = "x"\nnames = ["p", 3]', "names[1] = 3: expected a text"),
        ('name = "a"\nfile = "x"\n[sizes]\nu = "1"', "sizes.u = '1': expected a whole number"),
        ('name = "a"\nfile = "x"\n[inner]\nrate = 7', "inner: rate = 7.0, it is between 0 and 1"),
        ('name = "a"\nfile = "x"\n[inner]\nrata = 7', "inner.rata is no setting, did you mean rate?"),
        ('name = "a"\nfile = "x"\ninner = 4', "inner = 4: expected a table"),
        (f'name = "a"\nfile = "x"\ncount = {2**63}', f"count = {2**63}: expected a whole number of 64 bits"),
        ('name = "a"\nfile = "x"\ncount = -' + "9" * 400, "expected a whole number of 64 bits"),
        ("name = ", "is not TOML"),
        ("name = " + "[" * 100_000, "is not TOML"),
        ("name = " + "1" * 5000, "is not TOML"),
    ],
)
def test_every_fault_names_file_key_value_and_what_is_right(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        read_toml(write(tmp_path, text), Outer)
    assert said in str(error.value)
    assert "node.toml" in str(error.value)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        read_toml(write(tmp_path, 'name = 1\ncount = "x"\nzzz = 0\n'), Outer)
    assert len(str(error.value).splitlines()) == 4


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_toml(tmp_path / "none.toml", Outer)


def test_assignments_of_the_command_line() -> None:
    assert parse_assignment("eta_l=0.05") == ("eta_l", 0.05)
    assert parse_assignment("penalty=nuclear") == ("penalty", "nuclear")
    assert parse_assignment("fixed=true") == ("fixed", True)
    with pytest.raises(UsageError, match="expected key=value"):
        parse_assignment("eta_l")
    with pytest.raises(UsageError, match="settings of x: rata is no setting"):
        from_mapping(Inner, {"rata": 1}, "settings of x")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"version": 3}, "version = 3"),
        ({"durability": "some"}, "durability = 'some', expected normal or full"),
        ({"keepalive": 0}, "keepalive = 0"),
        ({"largest_chunk": 10}, "largest_chunk = 10"),
        ({"largest_chunk": 4095}, "at least 4096 bytes"),  # peers refuse smaller ones, so nothing large would arrive
        ({"certificate": "a.crt"}, "a certificate needs its key"),
        ({"metrics_port": 70000}, "metrics_port = 70000"),
    ],
)
def test_faults_of_the_wire_table(values: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as error:
        from_mapping(Wire, values, "wire")
    assert said in str(error.value)


def test_plain_text_leaves_this_machine_only_when_told() -> None:
    for url in ("mqtt://127.0.0.1", "mqtt://localhost:1884", "mqtts://broker.st-mary.example"):
        Wire().check(url)
    with pytest.raises(UsageError, match="plain text would leave this machine"):
        Wire().check("mqtt://192.168.1.10")
    Wire(insecure=True).check("mqtt://192.168.1.10")
