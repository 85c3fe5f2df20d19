"""The envs of the two methods, made of the env of their combination."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from edge_sdk.contract.method import Method
from edge_sdk.errors import UsageError
from edge_sdk.methods.companions.settings import FOREVER, GLOBAL, Env
from edge_sdk.methods.fedal import settings as fedal_settings


def derive_env(kind: type[Any], env: Env, settings: Any, sizes: Mapping[str, int], **more: Any) -> Any:
    """The env of one of the two methods, whose children are those in `sizes`."""
    names = {f.name for f in fields(kind)} & {f.name for f in fields(Env)}
    same = {name: getattr(env, name) for name in names - {"settings", "sizes", "here"}}
    here = tuple(name for name in env.here if name in sizes)
    return kind(**{**same, "settings": settings, "sizes": sizes, "here": here, **more})


def make_shared_env(base: Method, env: Env) -> Any:
    return derive_env(base.env, env, env.settings.shared, {})


def make_outputs_env(env: Env) -> fedal_settings.Env:
    found: fedal_settings.Env = derive_env(fedal_settings.Env, env, env.settings.outputs, {}, rounds=FOREVER)
    return found


def make_hospital_envs(base: Method, env: Env) -> tuple[Any, fedal_settings.Env]:
    """The two envs of a hospital: each has the devices of its method."""
    companions = frozenset(env.companions)  # a tuple would be gone through for each of ten thousand devices
    theirs = {d: n for d, n in env.sizes.items() if d in companions}
    ours = {d: n for d, n in env.sizes.items() if d not in companions}
    if not ours:
        raise UsageError(f"hospital {env.me}: all of its devices are companions; at least one trains the shared model")
    return derive_env(base.env, env, env.settings.shared, ours), derive_env(
        fedal_settings.Env, env, env.settings.outputs, theirs, rounds=FOREVER
    )


def make_aggregator_envs(base: Method, env: Env) -> tuple[Any, fedal_settings.Env]:
    """The two envs of the aggregator: M is how many train the shared model; FedAL has one device more, the model."""
    ours = {h: n - env.counts.get(h, 0) for h, n in env.sizes.items()}
    if min(ours.values(), default=0) < 1:
        raise UsageError("counts: in each hospital at least one device trains the shared model")
    theirs = {h: n for h, n in env.counts.items() if n and h in env.sizes} | {GLOBAL: 1}
    here = (*(h for h in env.here if h in theirs), GLOBAL)
    outputs = derive_env(fedal_settings.Env, env, env.settings.outputs, theirs, rounds=FOREVER, here=here)
    return derive_env(base.env, env, env.settings.shared, ours), outputs
