"""Versions of tables and sets: each stays what it was, whoever goes on from it."""

from __future__ import annotations

import random

import pytest

from edge_sdk.contract import versions
from edge_sdk.contract.versions import Growing, Names, Shrinking, copied, with_entry, with_name, without


@pytest.fixture(params=[0, 5, 10**6], ids=["always shared", "shared from five on", "plain"])
def many(request, monkeypatch):
    monkeypatch.setattr(versions, "MANY", request.param)
    return request.param


def test_any_history_of_versions_is_that_of_plain_tables(many):
    """Versions are made from any earlier one, not only from the newest: branches share nothing that they change."""
    chance = random.Random(7)
    for _ in range(30):
        names = [f"d{i}" for i in range(12)]
        tables = [({name: i for i, name in enumerate(names)}, {name: i for i, name in enumerate(names)})]
        grown, sets = [({}, {})], [(frozenset(), frozenset())]
        for step in range(40):
            plain, table = chance.choice(tables)
            if plain:
                name = chance.choice(sorted(plain))
                tables.append(({k: v for k, v in plain.items() if k != name}, without(table, name)))
            plain, table = chance.choice(grown)
            name = chance.choice(names)
            grown.append(({**plain, name: step}, with_entry(table, name, step)))
            plain, some = chance.choice(sets)
            sets.append((plain | {name}, with_name(some, name)))
        for plain, table in tables + grown:
            assert table == plain and plain == table and len(table) == len(plain)
            assert copied(table) == plain and list(copied(table)) == list(plain)
            assert list(table) == list(plain) and list(table.items()) == list(plain.items())
            assert [n in table for n in names] == [n in plain for n in names]
            assert [table.get(n) for n in names] == [plain.get(n) for n in names]
        for plain, some in sets:
            assert some == plain and plain == some and len(some) == len(plain)
            assert some | {"x"} == plain | {"x"} and some & {"d1"} == plain & {"d1"} and {"d1"} - some == {"d1"} - plain
            assert set(some) == plain and [n in some for n in names] == [n in plain for n in names]


def test_an_entry_that_is_not_there(many):
    table = without(without({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6}, "a"), "b")
    for name in ("a", "x"):
        with pytest.raises(KeyError):
            without(table, name)
        with pytest.raises(KeyError):
            table[name]


def test_another_value_for_an_entry_that_is_there(many):
    first = with_entry({}, "a", 1)
    assert dict(with_entry(first, "a", 2)) == {"a": 2} and dict(first) == {"a": 1}
    assert with_name(with_name(frozenset(), "a"), "a") == {"a"}


def test_of_many_entries_nothing_is_copied_for_each(monkeypatch):
    """A thousand versions hold one table between them."""
    table, grown, names = {f"d{i}": i for i in range(1000)}, {}, frozenset()
    for i in range(1000):
        table, grown, names = without(table, f"d{i}"), with_entry(grown, f"d{i}", i), with_name(names, f"d{i}")
        if i == 500:
            then = table, grown, names
    assert isinstance(then[0], Shrinking) and isinstance(grown, Growing) and isinstance(names, Names)
    assert then[0].all is table.all if isinstance(table, Shrinking) else True
    assert then[1].entries is grown.entries and then[2].places is names.places
    assert (len(then[0]), len(then[1]), len(then[2])) == (499, 501, 501)


def test_a_version_is_read_while_others_go_on_from_it(monkeypatch):
    """As a record is written in one thread while a call in another makes the next one."""
    monkeypatch.setattr(versions, "MANY", 0)
    table, grown, names = {f"d{i}": i for i in range(20)}, with_entry({}, "d0", 0), with_name(frozenset(), "d0")
    read = iter(without(table, "d0")), iter(grown), iter(names)
    table = without(table, "d1")
    for i in range(1, 20):
        grown, names = with_entry(grown, f"d{i}", i), with_name(names, f"d{i}")
    assert [len(list(each)) for each in read] == [19, 1, 1]
