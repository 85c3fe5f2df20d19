"""A run with secret sums on the loopback, its twin in the clear, and what can be seen of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from edge_sdk.contract.method import UP, Role
from edge_sdk.contract.run import Run
from edge_sdk.nodes.configuration.assembly import method_of, settings_of
from edge_sdk.nodes.secrets.masks import RunMasks
from tests.methods.problems import DEVICES, envs_of

TREE = {"h0": ("d0", "d1", "d2"), "h1": ("d3", "d4", "d5")}
SIZES = {h: len(devices) for h, devices in TREE.items()}
SMALL = {"fedavg": {"eta_l": 0.05}, "fedslr": {"eta_l": 0.05, "participation": 1.0}, "scaffold": {"local_steps": 2}}
SMALL["fedbn"] = {"personal_slots": "bias"}  # these problems have no norm
KEYS = {name: X25519PrivateKey.from_private_bytes(name.encode().ljust(32, b"!")) for name in ("aggregator", *DEVICES)}
PUBLIC = {name: key.public_key().public_bytes_raw() for name, key in KEYS.items()}


def run_of(method="fedavg", rounds=4, secret=True, settings=None, **more):
    """A run with secret sums, or the same in the clear."""
    uploads = {"bits": 8, **({"secret": True, "cohort": 2} if secret else {"unopened": True})}
    chosen = SMALL.get(method, {}) if settings is None else settings
    uploads |= more.pop("uploads", {})
    return Run(id="r", method=method, settings=chosen, rounds=rounds, classes=("a", "b"), uploads=uploads, **more)


@cache
def masks_of(name, run="r"):
    """What a device, or the aggregator, is given."""
    if name == "aggregator":
        return RunMasks(KEYS[name], lambda: {d: PUBLIC[d] for d in DEVICES}, run)
    return RunMasks(KEYS[name], lambda: {UP: PUBLIC["aggregator"]}, run)


def hospital_key(name):
    return X25519PrivateKey.from_private_bytes(name.encode().ljust(32, b"?"))


def masks_of_hospital(name, hospitals):
    """What a hospital is given for sums over these."""
    others = {h: hospital_key(h).public_key().public_bytes_raw() for h in hospitals if h != name}
    return RunMasks(hospital_key(name), lambda: others, "r")


def envs_for(run, dtype=np.float32):
    """The envs of a run's nodes, each with its keys, on a tree of two hospitals with three devices each."""
    method, settings = method_of(run), settings_of(run)
    envs = {n: env for n, env in envs_of(method, settings, run.rounds, dtype).items() if n != "h2"}
    envs["aggregator"] = replace(envs["aggregator"], sizes=SIZES)
    envs |= {h: replace(envs[h], sizes=dict.fromkeys(devices, 1)) for h, devices in TREE.items()}
    secret = run.uploads.get("secret")
    return {
        n: replace(env, outputs=2, **({} if n in TREE else {"masks": masks_of(n)})) if secret else env
        for n, env in envs.items()
    }


def keyed(method, masks=masks_of):
    """The method, whose devices and aggregator have their keys whatever env they are given."""

    def role(inner):
        def keyed_call(f):
            return lambda env, *more: f(with_keys(env), *more)

        def with_keys(env):
            return replace(env, outputs=2, **({} if env.me.startswith("h") else {"masks": masks(env.me)}))

        calls = {name: keyed_call(getattr(inner, name)) for name in ("start", "receive", "close")}
        return Role(**calls, state=inner.state, refuse=inner.refuse)

    return replace(method, **{tier: role(getattr(method, tier)) for tier in ("device", "hospital", "aggregator")})


@dataclass
class WatchedMasks:
    """Keystreams of one node, and a note of each use: (key's peer, context, tag) -> the values that it has hidden.

    `forgetful`: its tags are all the same, which is what the watcher must find.
    """

    inner: RunMasks
    forgetful: bool = False
    used: dict = field(default_factory=dict)

    def knows(self, peer):
        return self.inner.knows(peer)

    def tag(self, peer, context, value):
        tag = bytes(16) if self.forgetful else self.inner.tag(peer, context, value)
        self.used.setdefault((peer, context, tag), set()).add(value)
        return tag

    def stream(self, *args):
        return self.inner.stream(*args)

    def reused(self):
        """Uses of one mask for two different values."""
        return [key for key, values in self.used.items() if len(values) > 1]
