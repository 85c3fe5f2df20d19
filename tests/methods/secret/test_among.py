"""Sums that devices open among themselves: the same as in the clear to the bit, whoever stays away, or none at all."""

import pytest

from tests.methods.contract import fingerprint
from tests.methods.secret.among import among_run, played


def outcome(net, transcript):
    """All that the aggregator ends with, and all that it told its application."""
    state = net.nodes["aggregator"].record.state
    return fingerprint([state, sorted(fingerprint(m) for who, m in transcript.told if who == "aggregator")])


@pytest.mark.parametrize(("method", "more"), [("fedavg", {}), ("fedslr", {"evaluate_every": 2})])
def test_it_is_the_same_as_in_the_clear_to_the_bit(method, more):
    pairs = [played(among_run(method, clear=clear, **more)) for clear in (False, True)]
    assert outcome(*pairs[0]) == outcome(*pairs[1])
