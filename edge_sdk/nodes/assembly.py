"""From a run to the parts of a node: method, settings, env and codecs. The same on all tiers.

The only place where the pure methods meet the things that they are given (kernels, data, layout).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from math import inf
from typing import Any

from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.method import Method, NodeEnv, Role
from edge_sdk.contract.node import Record
from edge_sdk.contract.run import Run
from edge_sdk.delivery.engine import Assembly
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.shared.evaluation import evaluated
from edge_sdk.methods.shared.reports import Models, Progress, Report
from edge_sdk.nodes.settings import from_mapping
from edge_sdk.wire.codec.codec import Codec

TOLD = (Progress, Report, Models)
"""What a role may tell its application, beside its method's messages; the store keeps it until it is told."""


def method_of(run: Run) -> Method:
    """The method that a run names, with evaluation around it.

    Raises:
        UsageError: there is no such method.
    """
    if run.method not in METHODS:
        raise UsageError(f"method = {run.method!r}, there are: {', '.join(sorted(METHODS))}")
    return evaluated(METHODS[run.method], every=run.evaluate_every)


def settings_of(run: Run) -> Any:
    """The method's hyper-parameters, checked.

    Raises:
        UsageError: an unknown key, or a value outside its range.
    """
    method = method_of(run)
    return from_mapping(method.settings, run.settings, f"settings of {run.method}")


def place(run: Run, layout: Layout, theta0: Vector, **given: Any) -> NodeEnv:
    """The env of one node. `given`: what only this node has (data, sizes, kernels)."""
    method = method_of(run)
    if method.splits and "split" not in given:
        raise UsageError(unsplit(run))
    if "classes" in {f.name for f in fields(method.env)}:
        given["classes"] = len(run.classes)
    return method.env(
        seed=run.seed, rounds=run.rounds, layout=layout, theta0=theta0, settings=settings_of(run), **given
    )


DEVICE = "this device"


def check_bundle(run: Run, name: str, sha256: str, classes: int, whose: str) -> None:
    """Whether a node's bundle is one for this run: the one that it names, or any that tells its classes apart, where
    devices may have others.

    Raises:
        UsageError: it is not.
    """
    method = method_of(run)
    if not (method.models_differ or (method.companions and whose == DEVICE)):
        if run.bundle != sha256:
            raise UsageError(f"run {run.id} is for bundle {run.bundle[:12]}, {whose} has {sha256[:12]}")
    elif classes != len(run.classes):
        raise UsageError(f"run {run.id} has {len(run.classes)} classes, {whose} has {name} with {classes}")


def unsplit(run: Run) -> str:
    """Why a run cannot be had from nodes that only have samples."""
    return (
        f"method = {run.method!r}: it trains a split model, whose nodes are given the kernels of their parts; "
        "edge_sdk/nodes/split_kernels.py makes them of a split bundle and what each node holds"
    )


def assembly(run: Run, tier: str, env: NodeEnv, deadline: float = inf, quorum: int = 0) -> Assembly:
    """All that a runtime needs to play its part in `run`.

    Args:
        tier: "device", "hospital" or "aggregator".
        deadline: of the aggregator's rounds.
        quorum: answers without which a round does not end, where the method does not ask for more.
    """
    method = method_of(run)
    role: Role = getattr(method, tier)
    sizes = env.sizes if tier == "aggregator" else {tier: max(1, env.devices)}
    policy = method.policies(env.settings, sizes, deadline, run.deadline, run.evaluate_every)[tier]
    policy = replace(policy, quorum=max(policy.quorum, quorum))
    messages = Codec(method.messages, layout=env.layout)
    return Assembly(role, env, policy, messages, record_codec(role, method.messages, env.layout))


def record_codec(role: Role, messages: Iterable[type], layout: Layout) -> Codec:
    """For what a node saves. A diverged run must still be saved, so values need not be finite."""
    states = [role.state] if isinstance(role.state, type) else []
    roots = dict.fromkeys([Record, *states, *messages, *TOLD])
    return Codec(roots, layout=layout, finite=False)


def class_codes(names: Iterable[str], classes: tuple[str, ...], where: str) -> list[int]:
    """Label names as indices into the classes of a run."""
    index = {name: i for i, name in enumerate(classes)}
    names = list(names)
    unknown = sorted({n for n in names if n not in index})
    if unknown:
        raise UsageError(f"{where}: label {unknown[0]!r} is no class of this run; there are: {', '.join(classes)}")
    return [index[n] for n in names]
