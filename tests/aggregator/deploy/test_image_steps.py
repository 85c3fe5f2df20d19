"""What the Containerfile does, step by step, in folders of this machine: there is no container engine where tests run.

The wheel is built of the files that the image copies and of no others, installed into an environment of its own, and
its service is started and asked by the commands of the image. Base image, user and packages of others are not tried.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra `service` is not installed")
pytest.importorskip("setuptools", minversion="77", reason="the wheel is built with setuptools")

from edge_sdk.replay.nodes.broker import find_free_port
from edge_sdk.replay.planning.toml_files import write_toml
from tests.aggregator.deploy.test_deploy import DEPLOY, ROOT
from tests.delivery.fleet import eventually

pytestmark = pytest.mark.long


def read_steps() -> list[tuple[str, str]]:
    """Instructions of the Containerfile with what follows them, in their order."""
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def copy_sources(into: Path) -> None:
    """The files that the image is built of."""
    into.mkdir()
    for word, rest in read_steps():
        if word == "COPY" and not rest.startswith("--from"):
            *sources, target = shlex.split(rest)
            for source in sources:
                found = ROOT / source
                if found.is_dir():
                    shutil.copytree(found, into / target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(found, into / target)


def install(sources: Path, place: Path) -> Path:
    """Does the image's steps of installation; returns the folder of programs. Packages of others are this machine's."""
    [_, command] = [rest for word, rest in read_steps() if word == "RUN" and "pip install" in rest]  # after torch
    words = shlex.split(command)
    assert words[:2] == ["/opt/auscult/bin/pip", "install"] and words[-1].startswith(".[")
    venv.create(place, with_pip=True)
    [packages] = place.glob("lib/python*/site-packages")
    (packages / "of-this-machine.pth").write_text(sysconfig.get_path("purelib") + "\n")
    wheels = place / "wheels"
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, "."]
    call(*build, folder=sources)
    [wheel] = wheels.glob("auscult-*.whl")
    call(place / "bin" / "python", "-m", "pip", "install", "--no-deps", wheel, folder=place)
    return place / "bin"


def call(*command: str | Path, folder: Path, **more: str) -> str:
    """What a program prints that has to do its work."""
    done = subprocess.run(command, cwd=folder, env=bare(**more), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def bare(**more: str) -> dict[str, str]:
    """An environment in which this checkout is not found."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | more


def test_the_steps_of_the_image_make_a_service_that_is_healthy(tmp_path: Path) -> None:
    copy_sources(tmp_path / "src")
    programs = install(tmp_path / "src", tmp_path / "opt")
    shutil.rmtree(tmp_path / "src")
    state, port = tmp_path / "state", find_free_port()
    state.mkdir()
    path = bare(PATH=f"{programs}:{os.environ['PATH']}")
    words = "import edge_sdk, aggregator; print(edge_sdk.__file__, aggregator.__file__)"
    where = call(programs / "python", "-c", words, folder=state).split()
    assert all(Path(file).is_relative_to(tmp_path / "opt") for file in where), where
    table = tomllib.loads((DEPLOY / "settings" / "fleet.toml").read_text())
    table |= {"directory": state / "service", "bundles": [ROOT / "models" / "shipped" / "wrist.bundle"]}
    table |= {"broker": "mqtt://127.0.0.1:1", "listen": f"0.0.0.0:{port}"}  # no broker and no PostgreSQL are here
    settings = write_toml(tmp_path / "fleet.toml", {k: v for k, v in table.items() if k not in ("database", "wire")})
    steps = dict(read_steps())
    command = [*json.loads(steps["ENTRYPOINT"]), *json.loads(steps["CMD"])]
    assert command[:2] == ["auscult", "serve"]
    health = json.loads(re.sub(r"^.*?CMD ", "", steps["HEALTHCHECK"]).replace(":8080/", f":{port}/"))

    def is_healthy() -> bool:
        return subprocess.run(health, env=path, cwd=state, capture_output=True, timeout=60).returncode == 0

    assert not is_healthy()
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*command[:2], settings], env=path, cwd=state, stdout=log, stderr=log)
    try:
        eventually(is_healthy, 120)
        process.terminate()
        assert process.wait(60) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()
    assert not is_healthy()


def test_everything_that_the_image_installs_is_declared() -> None:
    """Each extra leads to others that there are, and the service's are among them."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [_, command] = [rest for word, rest in read_steps() if word == "RUN" and "pip install" in rest]  # after torch
    [wanted] = re.findall(r"\.\[([\w,]+)\]", command)
    reached, left = set(), set(wanted.split(","))
    while left:
        name = left.pop()
        reached.add(name)
        inner = re.findall(r"auscult\[([\w,]+)\]", " ".join(extras[name]))
        left |= {one for names in inner for one in names.split(",")} - reached
    assert {"service", "postgres", "aggregator"} <= reached and reached <= {*extras}
