"""Templates and routes of the console as they are written: what no page that is looked at would show."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Mount, Route

import aggregator.service
from aggregator.service.server.app import ROUTES

SERVICE = Path(aggregator.service.__file__).parent
TEMPLATES = sorted((SERVICE / "templates").glob("*.html"))
LISTS = ("PAGES", "API", "NODES")
"""What a module calls the routes that it has."""
BLOCK = re.compile(r"{%-?\s*block\s+(\w+)")
BASE = re.compile(r'{%-?\s*extends\s+"([^"]+)"')


def routes_of_modules() -> list[tuple[str, Any]]:
    """Each route that a module of the service lists, with that module."""
    found = []
    for file in sorted(SERVICE.rglob("*.py")):
        names = {t.id for line in ast.parse(file.read_text()).body if isinstance(line, ast.Assign) for t in line.targets
                 if isinstance(t, ast.Name)}  # fmt: skip
        if named := names & {*LISTS}:
            module = ".".join(("aggregator.service", *file.relative_to(SERVICE).with_suffix("").parts))
            found += [(module, route) for name in named for route in getattr(importlib.import_module(module), name)]
    return found


def test_every_route_of_a_module_is_one_of_the_application() -> None:
    """A page whose module nobody has put into ROUTES is never seen."""
    served = [*ROUTES, *(route for mount in ROUTES if isinstance(mount, Mount) for route in mount.routes or ())]
    listed = routes_of_modules()
    assert len(listed) > 20
    assert [(module, route.path) for module, route in listed if route not in served] == []
    assert all(isinstance(route, Route) for _, route in listed)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_fills_blocks_that_its_base_has_and_escapes_all(path: Path) -> None:
    """A block of another name is not shown, and a text that passes for markup is a stranger's script."""
    text = path.read_text()
    assert not re.search(r"\|\s*safe\b|autoescape\s+false", text)
    if base := BASE.search(text):
        assert {*BLOCK.findall(text)} <= {*BLOCK.findall((SERVICE / "templates" / base[1]).read_text())}


def test_every_template_is_used() -> None:
    sources = "\n".join(file.read_text() for file in [*SERVICE.rglob("*.py"), *TEMPLATES])
    assert [path.name for path in TEMPLATES if f'"{path.name}"' not in sources] == []
