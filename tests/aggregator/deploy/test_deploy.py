"""Files of aggregator/deploy/ against the code: commands, paths, settings, metrics. Nothing is built or downloaded."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra `service` is not installed")

from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.server.command import make_parser
from edge_sdk.tools.credentials.broker_files import INSTALL, INSTALLED, USER
from tests.aggregator.service.conftest import (
    browse,
    database_url,
    empty_database,
    make_service,
    quick_hashes,
    read_once,
    server,
    service,
)
from tests.aggregator.service.console.test_label_runs import fill_labels
from tests.aggregator.service.console.test_pages import fill

__all__ = ["browse", "database_url", "empty_database", "make_service", "quick_hashes", "read_once", "server", "service"]
ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "aggregator" / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def read_compose() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_in_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "auscult.service").read_text()
    assert text.count("/opt/auscult/bin/python3 ") == 1
    unit = tmp_path / "auscult.service"
    unit.write_text(text.replace("/opt/auscult/bin/python3 ", f"{shutil.which('true')} "))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_units_that_tell_the_broker_copy_what_its_installation_has_put_there(tmp_path: Path) -> None:
    """As a system service it could not reload mosquitto, which read a copy of the access list from its first day on."""
    names = ("auscult-broker.path", "auscult-broker.service")
    for name in names:
        (tmp_path / name).write_text((DEPLOY / name).read_text())
    command = ["systemd-analyze", "verify", *(tmp_path / name for name in names)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "auscult-broker" not in done.stdout + done.stderr  # what is wrong with units of this machine is not ours
    watched = re.findall(r"^PathChanged=(.*)$", (DEPLOY / names[0]).read_text(), re.MULTILINE)
    copied = re.findall(r"^ExecStart=/usr/bin/install (.*)$", (DEPLOY / names[1]).read_text(), re.MULTILINE)[0].split()
    options, sources, target = copied[:-3], copied[-3:-1], copied[-1]
    assert (options, sources, target) == (f"-o {USER} -g {USER} -m 0600".split(), watched, INSTALLED)
    [files] = re.findall(r"^for file in (.*); do$", INSTALL, re.MULTILINE)
    assert {Path(path).name for path in watched} < {*files.split()}


def test_the_unit_starts_what_there_is() -> None:
    [line] = re.findall(r"^ExecStart=(.*)$", (DEPLOY / "auscult.service").read_text(), re.MULTILINE)
    _, dash, module, *words = shlex.split(line)
    assert (dash, module) == ("-m", "edge_sdk.cli")
    assert make_parser().parse_args(words).file == Path("/etc/auscult/fleet.toml")


def test_the_image_is_made_of_what_there_is() -> None:
    stages = CONTAINERFILE.split("\nFROM ")
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", stages[1], re.MULTILINE):
        assert all((ROOT / source).exists() for source in sources.split()), sources
    copied = {
        word for line in re.findall(r"^COPY (?!--from)(.+)$", CONTAINERFILE, re.MULTILINE) for word in line.split()
    }
    packages = {package.rstrip("*") for package in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
        "setuptools"]["packages"]["find"]["include"]}  # fmt: skip
    assert packages <= copied
    extras = re.findall(r"'\.\[([\w,]+)\]'", CONTAINERFILE)
    assert extras and set(extras[0].split(",")) <= set(PROJECT["optional-dependencies"])
    version = re.findall(r"^FROM python:(\d+)\.(\d+)-", CONTAINERFILE, re.MULTILINE)
    assert len(set(version)) == 1 and tuple(map(int, version[0])) >= (3, 11)
    assert set(PROJECT["scripts"]) == {"auscult"} and 'ENTRYPOINT ["auscult"]' in CONTAINERFILE
    [command] = re.findall(r"^CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)
    assert make_parser().parse_args(json.loads(command)).file == Path("/etc/auscult/fleet.toml")


def test_a_container_is_healthy_when_the_console_answers(browse: Any) -> None:
    [path] = re.findall(r"http://127\.0\.0\.1:8080(/[\w-]*)'", CONTAINERFILE)
    assert browse().get(path, headers={"host": "127.0.0.1:8080"}).status_code == 200


def test_compose_and_settings_name_the_same_things(tmp_path: Path) -> None:
    parts, table = read_compose(), tomllib.loads((DEPLOY / "settings" / "fleet.toml").read_text())
    assert not {*table} - {field.name for field in fields(FleetFile)}
    services = parts["services"]
    broker = services["broker"]
    assert re.match(r"mqtts://([\w.]+):8883$", table["broker"])[1] in broker["networks"]["default"]["aliases"]
    assert f"--uid {broker['user']} " in CONTAINERFILE and broker["ports"] == ["8883:8883"]
    user, host, name = re.match(r"postgresql\+psycopg://(\w+)@(\w+)/(\w+)$", table["database"]).groups()
    about = services[host]["environment"]
    assert (about["POSTGRES_USER"], about["POSTGRES_DB"]) == (user, name)
    assert "password" not in table["database"] and about["POSTGRES_PASSWORD_FILE"].startswith("/run/secrets/")
    mounts = {mount.split(":")[1]: mount.split(":")[0] for mount in services["service"]["volumes"]}
    assert table["wire"]["certificate"] != table["console_wire"]["certificate"]  # a broker takes one connection of each
    for wire in (table["wire"], table["console_wire"]):
        assert f" {Path(wire['certificate']).stem} " in (DEPLOY / "compose.yaml").read_text().replace("\n", " ")
    named = [
        table["directory"],
        *table["bundles"],
        *table["wire"].values(),
        *table["console_wire"].values(),
        "/etc/auscult/fleet.toml",
    ]
    named.append(services["service"]["environment"]["PGPASSFILE"])
    for path in named:
        assert any(path == mount or path.startswith(f"{mount}/") for mount in mounts), path
    for source in (mount.split(":")[0] for part in services.values() for mount in part.get("volumes", ())):
        assert source.startswith("./") or source in parts["volumes"], source
    assert (
        mounts["/etc/auscult"] == "./settings"
        and services["service"]["build"]["dockerfile"] == "aggregator/deploy/Containerfile"
    )
    assert all(part["restart"] == "unless-stopped" for part in services.values())
    assert services["service"]["ports"] == ["127.0.0.1:8080:8080"]  # a proxy with TLS is in front of it


def test_the_settings_of_the_containers_are_taken(tmp_path: Path) -> None:
    """With files that are here in place of those in the containers."""
    table = tomllib.loads((DEPLOY / "settings" / "fleet.toml").read_text())
    for name in table["wire"]:
        table["wire"][name] = tmp_path / name
        table["wire"][name].write_text("")
    table["console_wire"] = make_wire(table)
    (tmp_path / "bundle").write_text("")
    file = FleetFile(**table | {"directory": tmp_path, "bundles": (tmp_path / "bundle",), "wire": make_wire(table)})
    assert file.proxied and file.address == "0.0.0.0"


def make_wire(table: dict[str, Any]) -> Any:
    from edge_sdk.wire.options import Wire

    return Wire(**table["wire"])


def test_each_figure_of_the_dashboard_is_there(browse: Any, service: Any) -> None:
    fill(service)
    fill_labels(service)
    token = service.people.make_key("token", "prometheus", "viewer", 60.0, "test", ["metrics"])
    client = browse()
    assert client.get("/metrics").status_code == 401
    answer = client.get("/metrics", headers={"authorization": f"Bearer {token}"})
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    there = {line.split("{")[0].split(" ")[0] for line in answer.text.splitlines() if not line.startswith("#")}
    dashboard = json.loads((DEPLOY / "grafana.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    named = {name for expression in asked for name in re.findall(r"auscult_\w+", expression)}
    assert len(named) >= 12 and named <= there
    assert 'auscult_devices{hospital="north",state="refuses"} 1' in answer.text
    assert 'auscult_run_accuracy{run="ditto-1",model="personal"} 0.75' in answer.text
    assert 'auscult_run_exact_match{run="labels-run",model="personal"} 0.75' in answer.text
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for line in answer.text.splitlines():
        assert re.fullmatch(r'# TYPE \w+ (gauge|counter)|\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? [-+.\de]+', line), line


@pytest.mark.parametrize(
    ("given", "answer"),
    [({}, 1), ({"TORCH_INDEX": "https://index.example/cpu"}, 0), ({"TORCH": "gpu"}, 0)],
    ids=["nothing", "an index", "gpu"],
)
def test_the_image_is_for_cpus_unless_somebody_says_otherwise(given: dict[str, str], answer: int) -> None:
    text = (DEPLOY / "Containerfile").read_text()
    environment = {"PATH": os.environ["PATH"], "TORCH": "cpu", **given}
    [check] = re.findall(r"^RUN (\[ .*\|\| \{ .*)$", text, re.MULTILINE)
    assert subprocess.run(["sh", "-c", check], env=environment, check=False).returncode == answer
    [install] = re.findall(r"^RUN \S+pip (install .* 'torch.*)$", text, re.MULTILINE)
    said = subprocess.run(["sh", "-c", f"echo {install}"], env=environment, capture_output=True, text=True, check=True)
    assert ("--index-url https://index.example/cpu" in said.stdout) == ("TORCH_INDEX" in given)
    [proof] = re.findall(r'^RUN .*python -c "(.*torch.version.cuda is None.*)"$', text, re.MULTILINE)
    assert text.index(check) < text.index(install) < text.index(proof) < text.index("COPY pyproject.toml")
