"""A run whose devices open its sums among themselves, on the loopback."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.method import UP
from edge_sdk.contract.round import Policy
from edge_sdk.nodes.configuration.assembly import method_of, settings_of
from edge_sdk.nodes.secrets.secret_sharing import DeviceSecrets, ToldMasks
from tests.methods.problems import DEVICES, envs_of, play
from tests.methods.secret.parties import KEYS, PUBLIC, run_of

TREE = {"h0": DEVICES}
AMONG = {"secret": "among-devices", "cohort": 3}
PEERS = {name: PUBLIC[name] for name in DEVICES}
CALM = NetworkFaults(repeat=0.0)


def among_run(method="fedavg", clear=False, **more):
    """A run of six devices at one hospital, or the same in the clear."""
    uploads = {"secret": False, "unopened": True} if clear else AMONG
    return run_of(method, uploads=uploads | more.pop("uploads", {}), **more)


def keeper_of(name, run="r"):
    return DeviceSecrets(KEYS[name], lambda: PEERS, run)


def among_envs(run, tree=TREE):
    """The envs of a run's nodes, with a keeper of secrets for each device."""
    method, settings = method_of(run), settings_of(run)
    made = envs_of(method, settings, run.rounds, np.float32)
    envs = {n: e for n, e in made.items() if n in ("aggregator", *tree, *DEVICES)}
    envs["aggregator"] = replace(envs["aggregator"], sizes={h: len(devices) for h, devices in tree.items()})
    envs |= {h: replace(envs[h], sizes=dict.fromkeys(devices, 1)) for h, devices in tree.items()}
    if run.uploads.get("secret"):
        envs = {n: replace(e, outputs=2, **given(n)) for n, e in envs.items()}
    return envs


def given(name):
    if name == "aggregator":
        return {}
    return {"secrets": keeper_of(name)} if name in DEVICES else {"reader": ToldMasks()}


def played(run, method=None, **more):
    args = {"policies": {"aggregator": Policy(quorum=1)}, "tree": TREE, "envs": among_envs(run)} | more
    return play(method or method_of(run), settings_of(run), run.rounds, **args)


def answering(change, at="device"):
    """A wrapper of methods: `change(name, question, message)` -> what is sent upward in its place; None: nothing."""

    def wrapped(method):
        role = getattr(method, at)

        def receive(env, s, sender, m):
            state, sends = role.receive(env, s, sender, m)
            return state, [e for e in map(lambda e: changed(env, m, e), sends) if e is not None]

        def changed(env, m, send):
            if send.to != UP:
                return send
            message = change(env.me, m, send.message)
            return None if message is None else replace(send, message=message)

        return replace(method, **{at: replace(role, receive=receive)})

    return wrapped
