"""Packages of a release: what is in them, that they come to the same bytes twice, and that they are of one version."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from requirements.dist import NATIVE, PURE, build_twice, check_names
from tests.system.last_release import last_version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Package, and its kind of file -> the file."""
    built = build_twice(tuple(PURE), tmp_path_factory.mktemp("dist"))
    return {f"{path.name.split('-')[0].replace('_', '-')} {path.suffix[1:]}": path for path in built}


def members(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {*archive.namelist()}


@pytest.mark.long
@pytest.mark.parametrize("name", PURE)
def test_nothing_of_ours_lies_beside_other_peoples_packages(made: dict[str, Path], name: str) -> None:
    wheel = made[f"{name} whl"]
    check_names(wheel, PURE[name])
    assert {each.split("/")[0] for each in members(wheel) if ".dist-info/" not in each} == PURE[name]
    with tarfile.open(made[f"{name} gz"]) as archive:
        assert not [each for each in archive.getnames() if re.search("/tests(/|$)", each)]


@pytest.mark.long
def test_the_whole_has_what_its_commands_show(made: dict[str, Path]) -> None:
    """Files that are no Python, as git has them; a link to a folder has become the folder."""
    names = members(made["auscult whl"])
    for pattern in ("models/shipped/*.bundle", "hardware/boards/profiles/*.toml"):
        assert {f"edge_sdk/{path.relative_to(ROOT)}" for path in ROOT.glob(pattern)} <= names
    for folder in ("templates", "static"):
        expected = {str(path.relative_to(ROOT)) for path in (ROOT / "aggregator/service" / folder).glob("*.*")}
        assert expected and expected <= names
    assert "edge_sdk/models/zoo/wearable.py" in names


@pytest.mark.long
def test_what_a_device_is_given_is_part_of_the_whole(made: dict[str, Path]) -> None:
    """The two have the same files where both have one, which a machine with both would not notice else."""
    edge, whole = zipfile.ZipFile(made["auscult-edge whl"]), zipfile.ZipFile(made["auscult whl"])
    with edge, whole:
        shared = [name for name in edge.namelist() if ".dist-info/" not in name]
        assert len(shared) > 300
        assert not [name for name in shared if edge.read(name) != whole.read(name)]
        about = Parser().parsestr(edge.read(f"auscult_edge-{PROJECT['version']}.dist-info/METADATA").decode())
    assert about["Version"] == PROJECT["version"]


@pytest.fixture(scope="module")
def site(made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the whole, unpacked; of other people's packages there are those that tests have."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(made["auscult whl"]) as wheel:
        wheel.extractall(folder)
    return folder


def auscult(site: Path, folder: Path, *words: str) -> subprocess.Popen[str]:
    """The command from the unpacked wheel, in a folder without a checkout; ends where another edge_sdk is found."""
    code = "import sys, edge_sdk.cli as cli; assert cli.__file__.startswith(sys.argv.pop(1)); sys.exit(cli.main())"
    own = {**os.environ, "PYTHONPATH": str(site), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-P", "-c", code, str(site), *words]
    return subprocess.Popen(command, cwd=folder, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.long
def test_the_demo_runs_without_a_checkout(site: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the aggregator needs torch")
    words = ("replay", "--demo", "--rounds", "1", "--no-local-only", "--no-neighbours", "--plain", "--method", "fedavg")
    done = auscult(site, tmp_path, *words)
    said, _ = done.communicate(timeout=300)
    assert done.returncode == 0, said
    assert said.startswith("demo: ") and [*tmp_path.glob("runs/fedavg-*/report.html")], said


@pytest.mark.long
def test_the_service_runs_without_a_checkout(site: Path, tmp_path: Path) -> None:
    pytest.importorskip("starlette", reason="the service needs the web's packages")
    said: list[str] = []
    with auscult(site, tmp_path, "serve", "--demo", "--listen", "127.0.0.1:0") as service:
        assert service.stdout is not None
        for line in service.stdout:
            said.append(line)
            if "the console is at" in line:
                service.send_signal(signal.SIGTERM)
    assert service.returncode == 0 and "go on at its next start" in said[-1], "".join(said)


def test_a_wheel_with_a_name_that_others_may_have_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "auscult-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("edge_sdk/__init__.py", "models/__init__.py", "auscult-1.0.dist-info/METADATA"):
            archive.writestr(name, "")
    with pytest.raises(SystemExit, match=r"models: only .*edge_sdk"):
        check_names(wheel, PURE["auscult"])


def test_links_lead_to_what_is_in_the_repository() -> None:
    """A link .venv in a commit takes the place of everybody's environment when it is checked out."""
    command = ["git", "ls-files", "--stage"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    if not lines:
        pytest.skip("no checkout of git")
    links = {line.split("\t")[1] for line in lines if line.startswith("120000 ")}
    assert {"edge_sdk/hardware", "edge_sdk/models"} <= links
    assert not [link for link in links if os.path.isabs(os.readlink(ROOT / link)) or not (ROOT / link).exists()]


def test_one_version_is_said_everywhere() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = headings[1:] if headings[0] == "Unreleased" else headings  # a release has nothing that is not in it
    assert released[0].split()[0] == PROJECT["version"] and "Unreleased" not in released
    native = (ROOT / "models/native/auscult_native/__init__.py").read_text()
    [version] = re.findall(r'^__version__ = "(.*)"$', native, re.MULTILINE)
    [asked] = PROJECT["optional-dependencies"]["native"]
    packaging = pytest.importorskip("packaging.requirements", reason="reads what pyproject.toml asks for")
    assert packaging.Requirement(asked).specifier.contains(version) and "auscult-native" in NATIVE


@pytest.mark.parametrize("first", ["Unreleased", "0.2.0 - 2026-11-28"])
def test_a_release_is_not_its_own_last_release(first: str) -> None:
    assert last_version(f"# Changelog\n\n## {first}\n\n### Added\n\n## 0.1.0\n\nThe first.\n") == "0.1.0"
