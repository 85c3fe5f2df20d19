"""Runs on the loopback whose phases have noise: devices with labelled windows and others, in two hospitals of three."""

from dataclasses import replace

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.methods.shared.membership.riders import Rider
from edge_sdk.nodes.configuration.assembly import method_of, settings_of
from tests.methods.integers.test_noise import Seeded
from tests.methods.problems import DEVICES, PATIENT, play
from tests.methods.secret.parties import TREE, run_of
from tests.methods.secret.test_self_training_sums import SETTLE, envs

ROUNDS = 3
PRIVACY = {"clip": 1.0, "noise": 0.01, "cohort": 3}


def noisy_run(secret=False, settle=None, rounds=ROUNDS, **privacy):
    """A run with all phases; `privacy`: keys of its table, in place of those of PRIVACY."""
    table = {**PRIVACY, **privacy}
    table = {k: v for k, v in table.items() if not (k == "noise" and "epsilon" in privacy)}
    uploads = {"bits": 16, "feedback": False, "unopened": False, **({"secret": True, "cohort": 3} if secret else {})}
    return run_of(
        "fedavg", rounds=rounds, secret=False, uploads=uploads, privacy=table, settle={**SETTLE, **(settle or {})}
    )


def envs_of(run, **changes):
    """What nodes are given, noise from a seed of their own; `changes`: device -> fields of its env."""
    found = {name: replace(env, entropy=Seeded(name)) for name, env in envs(run).items()}
    return found | {name: replace(found[name], **more) for name, more in changes.items()}


def played(run, envs=None, **more):
    """The network after the run, and its transcript."""
    faults = more.pop("faults", NetworkFaults(repeat=0.0))
    method, envs = method_of(run), envs or envs_of(run)
    return play(method, settings_of(run), run.rounds, policies=PATIENT, tree=TREE, envs=envs, faults=faults, **more)


def sent(transcript, kind, senders=DEVICES):
    """(sender, message) of a kind, in order."""
    return [(who, m) for who, _, m in transcript.crossed if who in senders and isinstance(m, kind)]


def unwrapped(m):
    """A question without its riders."""
    while isinstance(m, Rider):
        m = m.message
    return m
