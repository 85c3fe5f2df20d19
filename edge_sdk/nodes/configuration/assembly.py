"""From a run to the parts of a node: method, family of kernels, settings, env and codecs. The same on all tiers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from importlib import import_module
from typing import Any

from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.method import Method, NodeEnv, Role
from edge_sdk.contract.node import Record
from edge_sdk.contract.run import Run
from edge_sdk.contract.search import overlaid
from edge_sdk.data.augment import Augment
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.shared.aggregation.guard import Refused
from edge_sdk.methods.shared.aggregation.registration import Overclaimed
from edge_sdk.methods.shared.aggregation.suspension import Suspended
from edge_sdk.methods.shared.evaluation.beside import OwnKept
from edge_sdk.methods.shared.evaluation.evaluation import Scores, evaluated
from edge_sdk.methods.shared.evaluation.reports import Diverged, Models, Progress, Report
from edge_sdk.methods.shared.evaluation.spent import PrivateProgress, PrivateReport
from edge_sdk.model.bundle import Bundle
from edge_sdk.nodes.configuration.around import (
    base_of,
    check_pooling,
    is_rollout,
    is_secret,
    own_settings,
    robust_of,
    rollout_method,
    uploads_of,
    with_integers,
    with_own_noise,
    with_settling,
)
from edge_sdk.nodes.configuration.deadlines import Deadline, deadline_of
from edge_sdk.nodes.configuration.kernel_families import FAMILIES
from edge_sdk.nodes.configuration.settings import from_mapping
from edge_sdk.nodes.configuration.tasks import check_task
from edge_sdk.nodes.kernels.family import Family
from edge_sdk.wire.codec.codec import Codec

TOLD = (
    Progress, Report, Models, Refused, Diverged, OwnKept, Suspended, Overclaimed, PrivateProgress, PrivateReport, Scores
)  # fmt: skip
"""What any role may tell its application, beside its method's messages; the store keeps it until it is told."""
TELLING = {
    "edge_sdk.methods.settling": "edge_sdk.methods.settling.self_training",
    "edge_sdk.methods.secret": "edge_sdk.methods.secret.method",
    "edge_sdk.methods.rollout": "edge_sdk.methods.rollout.method",
}
"""Package of messages -> the module whose TOLD are what roles with such messages may tell, too."""


def method_of(run: Run) -> Method:
    """The method that a run names, with robust sums, integers, settling and secret sums, if the run has those, and
    evaluation around it.

    Raises:
        UsageError: there is no such method, it cannot settle or its vectors cannot travel as integers, or a setting of
            that is wrong.
    """
    if is_rollout(run):
        return rollout_method()
    METHODS.check(run.method)
    method = base_of(run)
    if run.robust:
        from edge_sdk.methods.robust.method import robust

        method = robust(method, robust_of(run))
    if run.privacy and method.own_noise is not None:
        method = with_own_noise(run, method)
    elif run.uploads or run.privacy:
        method = with_integers(run, method)
    if run.settle:
        method = with_settling(run, method)
    method = evaluated(method, every=run.evaluate_every)
    if not is_secret(run):
        return method
    from edge_sdk.methods.secret.method import secret

    check_pooling(run)
    return secret(method, base_of(run), own_settings(run), uploads_of(run))


def augmentation_of(run: Run) -> Augment:
    """Augmentation: the changes that devices make to their windows while they train.

    Raises:
        UsageError: a wrong setting, or a method whose devices do not train on gradients of their own loss alone.
    """
    how = from_mapping(Augment, run.augment, "run.augment")
    if how.changes and not family_of(run).augments:
        raise UsageError(f"run.augment: method {run.method} trains on outputs or parts of models, not on windows alone")
    return how


def with_bundle(run: Run, bundle: Bundle) -> Run:
    """The run of this bundle: its identity, and its augmentation where the run does not say otherwise.

    Raises:
        UsageError: it names an augmentation, and the method's devices cannot augment.
    """
    found = replace(run, bundle=bundle.sha256, augment=overlaid(bundle.augment, run.augment))
    if bundle.augment and not is_rollout(run):
        try:
            augmentation_of(found)
        except UsageError as error:
            name = bundle.manifest["name"]
            raise UsageError(f"{error}; bundle {name} names {', '.join(bundle.augment)}, which 0 leaves out") from error
    return found


def settings_of(run: Run) -> Any:
    """The method's hyper-parameters, checked.

    Raises:
        UsageError: an unknown key, a value outside its range, or a method whose sums must be plain in a run that wants
            robust ones.
    """
    method, settings = method_of(run), own_settings(run)
    if run.robust:
        from edge_sdk.methods.robust.settings import check_method

        check_method(method, settings, robust_of(run))
    return settings


def describe_excess(settings: Any, sizes: Mapping[str, int]) -> str:
    """Why rounds have fewer devices than a setting asks for, as a sentence: there are not so many; "": there are.

    Args:
        settings: of a method. sizes: hospital -> its devices.
    """
    asked = getattr(settings, "participation", 1.0)
    of_each = hasattr(settings, "taking_part")  # where each hospital draws for itself
    most = max(sizes.values(), default=0) if of_each else sum(sizes.values())
    if asked <= max(1, most):
        return ""
    whose = "no hospital has more than" if of_each else "there are"
    said = f"participation = {asked:g}: a round asks {asked:g} devices, {whose} {most}"
    return f"{said}; a number up to {most}, or a share up to 1 (1: all)"


def fixes_members(run: Run) -> str:
    """Why the devices of a run cannot change while it goes on, as a sentence; "": they can.

    Who joins or leaves means something else in each method's mathematics: its module says what. Noise and secret sums
    are reckoned for the devices of the start, whatever the method.
    """
    if run.privacy:
        return "what its noise hides follows from how many devices there are, and was reckoned at the start"
    if is_secret(run):
        return "the devices of its secret sums have exchanged their keys at the start"
    return method_of(run).fixed(own_settings(run))


def fixes_hospitals(run: Run) -> str:
    """Why the hospitals of a run cannot change while it goes on, as a sentence; "": they can."""
    return fixes_members(run) or method_of(run).fixed_hospitals(own_settings(run))


def family_of(run: Run) -> Family:
    """What nodes do for the method that a run names."""
    return FAMILIES[method_of(run).kernels]


def make_env(run: Run, layout: Layout, theta0: Vector, **given: Any) -> NodeEnv:
    """The env of one node. `given`: what only this node has (data, sizes, kernels)."""
    method = method_of(run)
    augmentation_of(run)  # for what is wrong with it, on every tier
    given.setdefault("entropy", os.urandom)
    if "classes" in {f.name for f in fields(method.env)}:
        given["classes"] = len(run.classes)
    return method.env(
        seed=run.seed, rounds=run.rounds, layout=layout, theta0=theta0, settings=settings_of(run), **given
    )


def check_bundle(run: Run, bundle: Bundle, tier: str) -> None:
    """Raises UsageError if a node of this tier cannot take part in the run with this bundle."""
    manifest = bundle.manifest
    check_task(run, bundle, method_of(run).kernels)
    check_identity(run, manifest["name"], bundle.sha256, manifest["classes"], tier)
    if bundle.drop_sites and not family_of(run).augments:
        raise UsageError(
            f"bundle {manifest['name']} drops values at random, and method {run.method} trains on outputs or parts of "
            "models; compile it with --dropout off"
        )
    if run.privacy:
        check_statistics(run, bundle)
    family_of(run).check(run, settings_of(run), bundle)


def check_statistics(run: Run, bundle: Bundle) -> None:
    """Raises UsageError if running statistics would leave devices with noise, which takes variances below zero: the
    model would predict nothing. In FedBN they stay on the device."""
    from edge_sdk.methods.shared.training.parts import named  # a run has loaded it already, a service not

    words = getattr(settings_of(run), "personal_slots", "")
    stays = named(bundle.layout, words) if words else set()
    if lost := next((s.name for s in bundle.layout.slots if s.is_statistic and s not in stays), ""):
        raise UsageError(
            f"run.privacy with bundle {bundle.manifest['name']}: noise would make variances of {lost} negative; "
            "compile it with --norm frozen (a torch module: in evaluation mode), or use GroupNorm or LayerNorm"
        )


def check_identity(run: Run, name: str, sha256: str, classes: int, tier: str) -> None:
    """Raises UsageError if a bundle is not the one that the run names or, on a tier whose nodes may have bundles of
    their own, does not tell the run's classes apart."""
    if tier not in family_of(run).own_bundles:
        if run.bundle != sha256:
            what = f"the run is for bundle {run.bundle[:12]}, this {tier} has {sha256[:12]}"
            raise UsageError(f"{what}; give it the file that is trained")
    elif classes != len(run.classes):
        raise UsageError(f"the run has {len(run.classes)} classes, this {tier} has {name} with {classes}")


def make_assembly(
    run: Run, tier: str, env: NodeEnv, deadline: Deadline = Deadline.FOREVER, quorum: int = 0
) -> Assembly:
    """The parts from which a runtime makes a node of `run`.

    Args:
        tier: "device", "hospital" or "aggregator".
        deadline: when the aggregator's rounds end.
        quorum: least number of answers of the aggregator's rounds; the method may ask for more.
    """
    method = method_of(run)
    role: Role = getattr(method, tier)
    sizes = env.sizes if tier == "aggregator" else {tier: max(1, env.devices)}
    policy = method.policies(env.settings, sizes, deadline.seconds, run.deadline, run.evaluate_every)[tier]
    own, least = {"aggregator": (deadline, quorum), "hospital": (deadline_of(run), run.quorum)}.get(tier, (None, 0))
    policy = replace(policy, quorum=max(policy.quorum, least))
    policy = policy if own is None else own.apply(policy)
    messages = Codec(method.messages, layout=env.layout)
    records, late_counts = record_codec(role, method.messages, env.layout), method.late_counts(env.settings)
    patient = method.patient or tier != "hospital"
    joins_later = tier == "hospital" and not fixes_members(run)
    may_decline = joins_later and not is_rollout(run)
    parts = role, env, policy, messages, records
    return Assembly(*parts, late_counts, patient, joins_later=joins_later, may_decline=may_decline)


def record_codec(role: Role, messages: Iterable[type], layout: Layout) -> Codec:
    """The codec of what a node saves. A diverged run must still be saved, so values need not be finite."""
    states = [role.state] if isinstance(role.state, type) else []
    messages = list(messages)
    roots = dict.fromkeys([Record, *states, *messages, *TOLD, *list_told(messages)])
    return Codec(roots, layout=layout, finite=False)


def list_told(messages: Iterable[type]) -> list[type]:
    """What roles with these messages may tell beside TOLD, in the order of TELLING."""
    homes = {kind.__module__ for kind in messages}
    places = [place for package, place in TELLING.items() if any(home.startswith(f"{package}.") for home in homes)]
    return [kind for place in places for kind in import_module(place).TOLD]
