"""From a run to the parts of a node: method, family of kernels, settings, env and codecs. The same on all tiers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import fields, replace
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
from edge_sdk.methods.integers.method import rounded
from edge_sdk.methods.integers.vectors.privacy import NOISY, Privacy
from edge_sdk.methods.integers.vectors.settings import Uploads, check_unopened, summing
from edge_sdk.methods.robust.method import near_of, robust
from edge_sdk.methods.robust.settings import NONE, Robust, check_method
from edge_sdk.methods.rollout.method import ROLLOUT, TOLD_OF_ROLLOUTS
from edge_sdk.methods.secret.messages.among_messages import NoneOpened, Withheld
from edge_sdk.methods.secret.messages.pool_messages import NotOpened, NotPooled
from edge_sdk.methods.secret.method import secret
from edge_sdk.methods.secret.to_aggregator.aggregator import NotSummed
from edge_sdk.methods.settling.method import Choice, settled
from edge_sdk.methods.settling.self_training import LabelChoice, self_trained
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.methods.shared.aggregation.guard import Refused
from edge_sdk.methods.shared.aggregation.registration import Overclaimed
from edge_sdk.methods.shared.aggregation.suspension import Suspended
from edge_sdk.methods.shared.evaluation.beside import OwnKept
from edge_sdk.methods.shared.evaluation.evaluation import Scores, evaluated
from edge_sdk.methods.shared.evaluation.reports import Diverged, Models, Progress, Report
from edge_sdk.methods.shared.evaluation.spent import PrivateProgress, PrivateReport
from edge_sdk.methods.standardising.method import standardised
from edge_sdk.model.bundle import Bundle
from edge_sdk.nodes.configuration.deadlines import Deadline, deadline_of
from edge_sdk.nodes.configuration.kernel_families import FAMILIES
from edge_sdk.nodes.configuration.settings import from_mapping
from edge_sdk.nodes.configuration.tasks import check_task
from edge_sdk.nodes.kernels.family import Family
from edge_sdk.wire.codec.codec import Codec

TOLD = (
    Progress, Report, Models, Choice, LabelChoice, Refused, Diverged, OwnKept, Suspended, Overclaimed,
    PrivateProgress, PrivateReport, *TOLD_OF_ROLLOUTS,
    *(NotSummed, NotPooled, NotOpened, NoneOpened, Withheld, Scores),
)  # fmt: skip
"""What a role may tell its application, beside its method's messages; the store keeps it until it is told."""


def method_of(run: Run) -> Method:
    """The method that a run names, with robust sums, integers, settling and secret sums, if the run has those, and
    evaluation around it.

    Raises:
        UsageError: there is no such method, it cannot settle or its vectors cannot travel as integers, or a setting of
            that is wrong.
    """
    if is_rollout(run):
        return ROLLOUT
    if run.method not in METHODS:
        from difflib import get_close_matches  # for an error only

        perhaps = "".join(f"; perhaps {name}" for name in get_close_matches(run.method, METHODS, 1))
        raise UsageError(f"method = {run.method!r}{perhaps}; there are: {', '.join(sorted(METHODS))}")
    method = base_of(run)
    if run.robust:
        method = robust(method, robust_of(run))
    if run.privacy and method.own_noise is not None:
        method = with_own_noise(run, method)
    elif run.uploads or run.privacy:
        uploads, rule = uploads_of(run), robust_of(run).rule
        check_unopened(method, own_settings(run), uploads, "" if rule == NONE else rule)
        method = rounded(method, own_settings(run), uploads, rule != NONE, privacy_of(run))
    if run.settle and run.privacy:
        raise UsageError("run.settle with run.privacy: what devices count of its candidates would leave without noise")
    if run.settle:
        settling = from_mapping(Settling, run.settle, "run.settle")
        rules = robust_of(run)
        near = [near_of(rules, tier) for tier in ("hospital", "aggregator")]
        method = settled(method, settling, *near)
        method = self_trained(method, settling, *near) if settling.label_times else method
        at = [rule != NONE for rule in (rules.rule, rules.hospitals)]
        method = standardised(method, *at) if settling.statistics else method
    method = evaluated(method, every=run.evaluate_every)
    if not is_secret(run):
        return method
    check_pooling(run)
    return secret(method, base_of(run), own_settings(run), uploads_of(run))


def check_pooling(run: Run) -> None:
    """Raises UsageError for a run with sums over hospitals that looks at single hospitals all the same."""
    if uploads_of(run).hospitals and (run.robust or run.privacy):
        table, why = ("robust", "rules look at") if run.robust else ("privacy", "noise is reckoned for")
        raise UsageError(f"run.uploads.hospitals with run.{table}: its {why} answers of single hospitals")


def base_of(run: Run) -> Method:
    """The method that a run names, by itself, in the form that suits the run's uploads.

    Noise is not for the forms with running sums: what is in one upload would stay in all later sums.
    """
    method = METHODS[run.method]
    return summing(method, uploads_of(run)) if run.uploads and not run.privacy else method


def with_own_noise(run: Run, method: Method) -> Method:
    """A method with its own kind of noise. Raises UsageError for integers beside it, and for more than can be drawn."""
    if run.uploads:
        raise UsageError(f"run.uploads with method {run.method}: {method.traffic(own_settings(run))}")
    noise, privacy = method.own_noise, privacy_of(run)
    assert noise is not None  # the caller has looked
    noise.check(own_settings(run), privacy, run.rounds, len(run.classes))
    made: Method = noise.around(method, own_settings(run), privacy)
    return made


def uploads_of(run: Run) -> Uploads:
    """Integers of a run. Raises UsageError for a wrong setting, and for secret sums that are opened with fewer devices
    than the run's noise needs."""
    privacy = privacy_of(run)
    if privacy is None:
        return from_mapping(Uploads, run.uploads, "run.uploads")
    usual = {**NOISY, **({"cohort": privacy.cohort} if run.uploads.get("secret") else {})}
    uploads = from_mapping(Uploads, {**usual, **run.uploads}, "run.uploads")
    if uploads.secret and uploads.cohort < privacy.cohort:
        raise UsageError(f"run.uploads.cohort = {uploads.cohort}: the noise is for sums of {privacy.cohort} at least")
    return uploads


def is_secret(run: Run) -> bool:
    """Says if a run's sums are secret."""
    return bool(run.uploads) and bool(uploads_of(run).secret)


def opens_among_devices(run: Run) -> bool:
    """Says if a run's sums are opened by the devices of a hospital, and not by the aggregator."""
    return bool(run.uploads) and uploads_of(run).among_devices


def is_rollout(run: Run) -> bool:
    """Does the run bring a version to devices, in place of training one?"""
    return run.method == ROLLOUT.name


def only_judges(run: Run) -> bool:
    """Is the run a rollout in which devices try a version and keep what they have: an evaluation?"""
    return is_rollout(run) and bool(run.settings.get("only_judge"))


def robust_of(run: Run) -> Robust:
    """Rules of a run in place of plain sums. Raises UsageError for a wrong setting."""
    return from_mapping(Robust, run.robust, "run.robust")


def privacy_of(run: Run) -> Privacy | None:
    """Noise of a run's uploads; None: there is none. Raises UsageError for a wrong setting."""
    return from_mapping(Privacy, run.privacy, "run.privacy") if run.privacy else None


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
    check_method(method, settings, robust_of(run))
    return settings


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


def own_settings(run: Run) -> Any:
    """The method's hyper-parameters, by themselves. Raises UsageError for one that is wrong."""
    kind = ROLLOUT.settings if is_rollout(run) else METHODS[run.method].settings
    return from_mapping(kind, run.settings, f"settings of {run.method}")


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
    family_of(run).check(run, settings_of(run), bundle)


def check_identity(run: Run, name: str, sha256: str, classes: int, tier: str) -> None:
    """Raises UsageError if a bundle is not the one that the run names or, on a tier whose nodes may have bundles of
    their own, does not tell the run's classes apart."""
    if tier not in family_of(run).own_bundles:
        if run.bundle != sha256:
            raise UsageError(f"run {run.id} is for bundle {run.bundle[:12]}, this {tier} has {sha256[:12]}")
    elif classes != len(run.classes):
        raise UsageError(f"run {run.id} has {len(run.classes)} classes, this {tier} has {name} with {classes}")


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
    return Assembly(role, env, policy, messages, records, late_counts, patient)


def record_codec(role: Role, messages: Iterable[type], layout: Layout) -> Codec:
    """The codec of what a node saves. A diverged run must still be saved, so values need not be finite."""
    states = [role.state] if isinstance(role.state, type) else []
    roots = dict.fromkeys([Record, *states, *messages, *TOLD])
    return Codec(roots, layout=layout, finite=False)
