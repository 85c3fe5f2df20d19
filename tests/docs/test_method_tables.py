"""Each list of methods on a page names every method, and says of it what the method itself declares."""

from __future__ import annotations

import re

from edge_sdk.methods import METHODS
from tests.docs.pages import text_of
from tests.methods.test_contract import settings_of

COMPANIONS = {name for name in METHODS if "+" in name}


def rows_under(page: str, heading: str) -> list[list[str]]:
    """Cells of the rows of the first table below a heading."""
    after = text_of(page).split(f"\n{heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", after, re.MULTILINE)
    assert table is not None, f"{page}: no table below {heading}"
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[0].splitlines()[2:]]


def named(text: str) -> set[str]:
    return {name for name in re.findall(r"`([^`]+)`", text) if name in METHODS}


def test_every_method_is_in_the_table_of_robust_rules() -> None:
    assert set().union(*(named(row[0]) for row in rows_under("docs/robustness.md", "### Which methods"))) == {*METHODS}


def test_secret_sums_are_had_by_methods_whose_uploads_add_up() -> None:
    rows = rows_under("docs/uploads.md", "## Which methods")
    can, cannot = (
        set().union(*(named(row[0]) for row in rows if row[-1].startswith(word))) for word in ("yes", "no: ")
    )
    assert can == {name for name, m in METHODS.items() if not isinstance(m.traffic(settings_of(m)), str)}
    assert cannot == {*METHODS} - can


def test_the_list_of_warm_starts_is_whole() -> None:
    text = re.search(r"\(\*\*warm start\*\*\) in (.*?), if the", text_of("docs/your-app.md"), re.DOTALL)
    assert text is not None
    assert named(text[1]) == {name for name, method in METHODS.items() if method.warms_up} - COMPANIONS
