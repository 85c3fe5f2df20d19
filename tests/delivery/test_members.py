"""Who is a member and who is here: noted child by child as all at once, and at a cost that others have no part in."""

from __future__ import annotations

from math import inf
from random import Random

from edge_sdk.contract.children.device_facts import APPLICATION, Reason
from edge_sdk.delivery.roles.members import Members


class Nowhere:
    """A store without members."""

    path = "nowhere"

    def get_value(self, key):
        return None


class Counted(str):
    """A name that counts how often it is compared."""

    compared = 0

    def __eq__(self, other):
        Counted.compared += 1
        return str.__eq__(self, other)

    def __lt__(self, other):
        Counted.compared += 1
        return str.__lt__(self, other)

    __hash__ = str.__hash__


def comparisons(count: int) -> int:
    """Comparisons of names while so many children come, one after the other."""
    names = [Counted(f"child-{i:04}") for i in range(count)]
    members = Members(Nowhere(), names, {})
    Counted.compared = 0
    for name in names:
        members.note_child(name, True, False, None)
    assert len(members.here) == count
    return Counted.compared


def test_a_child_that_comes_costs_no_look_at_all_others():
    assert comparisons(400) < 3 * comparisons(200)


def test_children_one_by_one_are_as_all_at_once():
    dice, names = Random(4), [f"child-{i}" for i in range(6)]
    one, all_at_once = (Members(Nowhere(), names, {}, may_decline=True) for _ in range(2))
    here, refusing, told = set(), set(), {}
    for _ in range(200):
        name, reason = dice.choice(names), dice.choice([None, Reason("charge", 0.1, 0.5), Reason(APPLICATION)])
        for some in (here, refusing):
            (some.add if dice.random() < 0.5 else some.discard)(name)
        told = {**told, name: reason}
        one.note_child(name, name in here, name in refusing, reason)
        all_at_once.note_presence(tuple(sorted(here)), refusing, told)
        assert one.here == all_at_once.here and one.refusing == all_at_once.refusing
        assert one.unwilling == all_at_once.unwilling and one.are_new == all_at_once.are_new
        states = [{n: at == inf for n, at in members.gone_at.items()} for members in (one, all_at_once)]
        assert states[0] == states[1]
        assert one.list_counting(60.0, 1) == all_at_once.list_counting(60.0, 1)
        asked = [n for n in one.list_counting(60.0, 1) if told.get(n) != Reason(APPLICATION)]
        assert [*one.list_asked(60.0, 1)] == asked == [*all_at_once.list_asked(60.0, 1)]
