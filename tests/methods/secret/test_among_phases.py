"""Phases around a method in sums that devices open among themselves: each of them is a question of its own."""

from dataclasses import replace

from edge_sdk.methods.secret.messages.among_messages import NoneOpened, Withheld
from edge_sdk.methods.settling.method import Choice
from edge_sdk.methods.settling.self_training import LabelChoice
from edge_sdk.nodes.configuration.assembly import method_of
from tests.methods.integers.test_noise import Seeded
from tests.methods.problems import DEVICES, told
from tests.methods.secret import among
from tests.methods.secret.parties import run_of
from tests.methods.secret.test_self_training_sums import SETTLE, envs

ROUNDS = 3
NOISE = {"clip": 1.0, "noise": 0.01, "cohort": 3}


def run(secret):
    """A run with two turns of labelling, statistics and settling, and noise in all of that."""
    uploads = {**(among.AMONG if secret else {"unopened": False}), "bits": 16, "feedback": False}
    settle = {**SETTLE, "label_times": 2}
    return run_of("fedavg", rounds=ROUNDS, secret=False, uploads=uploads, settle=settle, privacy=NOISE)


def played(run):
    found = envs(replace(run, uploads={**run.uploads, "secret": False}))
    nodes = {name: found[name] for name in ("aggregator", "h0", *DEVICES)}
    nodes["aggregator"] = replace(nodes["aggregator"], sizes={"h0": len(DEVICES)})
    nodes["h0"] = replace(nodes["h0"], sizes=dict.fromkeys(DEVICES, 1))
    given = among.given if run.uploads.get("secret") else lambda name: {}
    nodes = {n: replace(env, entropy=Seeded(n), **given(n)) for n, env in nodes.items()}
    _, transcript = among.played(run, method_of(run), envs=nodes, faults=among.CALM)
    return transcript


def test_the_fleet_chooses_as_in_the_clear():
    masked, clear = played(run(secret=True)), played(run(secret=False))
    for kind in (LabelChoice, Choice):
        assert told(masked, kind) == told(clear, kind) and told(clear, kind)[-1].devices == len(DEVICES)
    assert len(told(masked, LabelChoice)) == 2
    assert not [m for _, m in masked.told if isinstance(m, NoneOpened | Withheld)]
