"""The table of every message: as the types are, and as bytes cross in a run of each method."""

from typing import Any

import numpy as np
import pytest

from docs import write_messages
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.methods import METHODS
from edge_sdk.methods.integers.method import rounded
from edge_sdk.methods.integers.vectors.settings import Uploads
from edge_sdk.methods.shared.evaluation.evaluation import evaluated
from edge_sdk.nodes.configuration.assembly import method_of
from edge_sdk.nodes.configuration.assembly import settings_of as settings_of_run
from edge_sdk.wire.codec.codec import Codec
from tests.methods.integers.test_noise import played
from tests.methods.problems import envs_of, play
from tests.methods.secret import among, parties, test_pools, test_self_training_sums
from tests.methods.secret.parties import envs_for
from tests.methods.test_contract import settings_of

CALM = NetworkFaults(repeat=0.0)


def test_the_table_is_current() -> None:
    page = write_messages.PAGE.read_text(encoding="utf-8")
    assert write_messages.written(page) == page, "python docs/write_messages.py"


def ways_of(method: Any, crossed: list[tuple[str, str, Any]]) -> set[tuple[str, str]]:
    """(type, way) of all that crosses, as it is after it has been bytes; a type that is not declared has none."""
    codec = Codec(method.messages, dtype=np.float32)
    found = set()
    for sender, to, message in crossed:
        kind = type(codec.decode(codec.encode(message))).__name__
        found.add((kind, "inside" if sender == to else f"{sender[0]}>{to[0]}"))
    return found


def said() -> set[tuple[str, str]]:
    return {(name, way) for name, entry in write_messages.words().items() for way in entry["ways"]}


@pytest.mark.parametrize("name", METHODS)
def test_nothing_else_crosses_in_a_run(name: str) -> None:
    method = evaluated(METHODS[name])
    settings = settings_of(METHODS[name])
    envs = envs_of(METHODS[name], settings, 1, dtype=np.float32)
    _, transcript = play(method, settings, 1, faults=CALM, envs=envs)
    found = ways_of(method, transcript.crossed)
    assert found <= said() and ("Scores", "d>h") in found


@pytest.mark.parametrize("name", ["fedbcd", "augfl"])
def test_nothing_else_crosses_where_hospitals_only_add_up(name: str) -> None:
    method, settings = evaluated(METHODS[name].adding), settings_of(METHODS[name])
    _, transcript = play(method, settings, 1, faults=CALM, envs=envs_of(method, settings, 1, dtype=np.float32))
    found = ways_of(method, transcript.crossed)
    assert found <= said() and {("Increment", "d>h"), ("Increment", "h>a")} <= found


def test_nothing_else_crosses_in_a_run_of_integers_or_noise() -> None:
    settings = settings_of(METHODS["fedavg"])
    method = evaluated(rounded(METHODS["fedavg"], settings, Uploads()))
    envs = envs_of(METHODS["fedavg"], settings, 2, dtype=np.float32)
    _, transcript = play(method, settings, 2, faults=CALM, envs=envs)
    found = ways_of(method, transcript.crossed)
    assert found <= said() and {("Integers", "h>a"), ("Changes", "h>d")} <= found
    run = parties.run_of(rounds=2)
    _, transcript = play(method_of(run), settings_of_run(run), 2, faults=CALM, envs=envs_for(run), tree=parties.TREE)
    found = ways_of(method_of(run), transcript.crossed)
    assert found <= said() and {("Masked", "d>h"), ("MaskedSum", "h>a")} <= found
    assert not found & {("Sum", "d>h"), ("Integers", "d>h"), ("Scores", "d>h")}, "nothing leaves a device in the clear"
    _, transcript = played(rounds=1, evaluate=True, dtype=np.float32)
    found = ways_of(method, transcript.crossed)
    assert found <= said() and ("Sum", "d>h") not in found


@pytest.mark.parametrize("secret", [False, True])
def test_nothing_else_crosses_where_devices_label_their_windows(secret: bool) -> None:
    run = parties.run_of(rounds=2, secret=secret, settle=test_self_training_sums.SETTLE)
    method, envs = method_of(run), test_self_training_sums.envs(run)
    _, transcript = play(method, settings_of_run(run), 2, faults=CALM, envs=envs, tree=parties.TREE)
    found = ways_of(method, transcript.crossed)
    up = {("Masked", "d>h")} if secret else {("Counts", "d>h"), ("FeatureSums", "d>h")}
    assert found <= said() and up <= found


def test_nothing_else_crosses_in_a_run_with_sums_over_hospitals() -> None:
    run = test_pools.pool_run(rounds=2)
    _, transcript = test_pools.played(run)
    found = ways_of(method_of(run), transcript.crossed)
    assert found <= said() and {("PoolReady", "h>a"), ("PoolQuestion", "a>h"), ("MaskedSum", "h>a")} <= found
    assert not {kind for kind, way in found if way == "h>a"} & {"Sum", "Integers", "Scores"}


def test_nothing_else_crosses_in_a_run_with_sums_among_devices() -> None:
    run = among.among_run(rounds=2)
    _, transcript = among.played(run)
    found = ways_of(method_of(run), transcript.crossed)
    up = {"KeysOffer", "Dealt", "Covered", "Confirmed", "Revealed"}
    assert found <= said() and {kind for kind, way in found if way == "d>h"} == up
    assert ("Integers", "h>a") in found and {"Participants", "Agreement"} <= {
        kind for kind, way in found if way == "h>d"
    }


def test_a_message_that_nobody_declared_has_no_bytes() -> None:
    method = METHODS["fedavg"]
    with pytest.raises(Exception, match="Embed"):
        ways_of(method, [("d0", "h0", METHODS["hsgd"].messages[1](None, 0, 0))])
