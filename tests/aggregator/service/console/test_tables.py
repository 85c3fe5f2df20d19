"""Tables of the console: sorted, filtered and cut into pages by the address alone."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from aggregator.service.console.tables import SortedTable, key_column, read_page
from aggregator.service.runs.runs import Wanted, add_run
from tests.aggregator.service.conftest import CLASSES, list_pages
from tests.aggregator.service.console.test_pages import fill

ROWS = [{"name": "b", "size": 2}, {"name": "C", "size": None}, {"name": "a", "size": 10}, {"name": "d", "size": 1}]
COLUMNS = (key_column("name", "Name"), key_column("size", "Size", is_number=True))


def names(query: dict[str, str], **about: Any) -> str:
    return "".join(row["name"] for row in SortedTable(ROWS, COLUMNS, query, **about).rows)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, "bCad"),
        ({"sort": "size"}, "abdC"),
        ({"sort": "-size"}, "dbaC"),
        ({"sort": "name"}, "Cabd"),
        ({"sort": "nothing"}, "bCad"),
        ({"q": "c"}, "C"),
        ({"q": "1", "sort": "-size"}, "da"),
        ({"page": "2"}, "bCad"),
    ],
)
def test_rows_are_those_that_the_address_asks_for(query: dict[str, str], expected: str) -> None:
    assert names(query) == expected


def test_pages_together_have_every_row_once() -> None:
    assert [names({"page": str(p), "sort": "-name"}, size=3) for p in (1, 2, 3)] == ["dba", "C", "C"]
    assert [read_page(text) for text in ("3", "x", "0", "-1", "\u0663", "9" * 30, "")] == [3, 1, 1, 1, 1, 1, 1]


def test_a_second_table_of_a_page_has_parameters_of_its_own() -> None:
    query = {"sort": "name", "b-sort": "size", "b-q": "a"}
    table = SortedTable(ROWS, COLUMNS, query, "b")
    assert (table.sort, table.q, table.count) == ("size", "a", 1)
    assert table.sort_address("size") == "?sort=name&b-sort=-size&b-q=a"
    assert table.others() == {"sort": "name", "b-sort": "size"}
    assert [table.order_of(column) for column in COLUMNS] == ["", "descending"]


def shown(browser: Any, address: str, name: str) -> list[str]:
    """Texts of a column of a page."""
    answer = browser.get(address)
    assert answer.status_code == 200, address
    return [re.sub("<[^>]*>", "", cell).strip() for cell in re.findall(rf'data-name="{name}">(.*?)</td>', answer.text)]


def test_tables_of_pages_follow_their_address(browse: Any, service: Any) -> None:
    id, browser = fill(service, rounds=4), browse("operator")
    assert shown(browser, "/fleet?sort=name", "Device") == shown(browser, "/fleet?sort=-name", "Device")[::-1]
    actions = shown(browser, "/audit?sort=action", "What")
    assert actions == sorted(actions) and actions == shown(browser, "/audit?sort=-action", "What")[::-1]
    assert set(shown(browser, "/audit?q=people.add", "What")) == {"people.add"}
    assert shown(browser, "/audit?q=%25", "What") == [] and "No entry is like that" in browser.get("/audit?q=%25").text
    rounds = browser.get(f"/runs/{id}?sort=-round").text
    assert rounds.index('<td class="n">1</td>') < rounds.index('<td class="n">4</td>')
    assert 'aria-sort="ascending"' in rounds and "<details open>" in rounds
    assert len(shown(browser, "/models?bundles-q=wrist", "Name")) == 1
    assert shown(browser, "/models?bundles-q=nothing", "Name") == []


def test_past_runs_are_found_and_sorted(browse: Any, service: Any) -> None:
    browser = browse("operator")
    for name in ("one", "two", "three"):
        add_run(service.database, Wanted(), CLASSES, "operator", name)
        assert browser.post(f"/runs/{name}/stop", data={"csrf": secret(browser)}).status_code == 303
    assert shown(browser, "/runs?sort=id", "Run") == ["one", "three", "two"]
    assert shown(browser, "/runs?sort=-id", "Run") == ["two", "three", "one"]
    assert shown(browser, "/runs?q=TW", "Run") == ["two"]
    assert "No run is like that" in browser.get("/runs?q=nothing").text


def secret(browser: Any) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', browser.get("/runs/new").text)
    assert found is not None
    return found[1]


class Cells(HTMLParser):
    """Cells of tables that are cards on a phone -> their pieces: texts, and elements that stand side by side."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.cells: list[list[str]] = []
        self.depth: int | None = None  # None: in no cell
        self.folds = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.folds = "fold" in (dict(attrs).get("class") or "").split()
        elif tag == "td" and self.folds:
            self.cells.append([])
            self.depth = 0
        elif self.depth is not None and tag not in ("br", "input", "img"):
            self.depth += 1
            if self.depth == 1:
                self.cells[-1].append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self.depth = None
        elif self.depth:
            self.depth -= 1

    def handle_data(self, data: str) -> None:
        if self.depth == 0 and data.strip():
            self.cells[-1].append(data.strip())


def test_a_cell_is_one_piece_where_rows_become_cards(browse: Any, service: Any) -> None:
    """On a phone each piece of a cell took a place of the card, and what followed stood beside another name."""
    fill(service)
    admin = browse("admin")
    cells = [cell for path in list_pages() for cell in Cells(admin.get(path).text).cells]
    assert len(cells) > 60 and [cell for cell in cells if len(cell) > 1] == []
