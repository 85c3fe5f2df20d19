"""What a run has around its method: the tables of its settings, and what each of them makes of the method.

Robust sums, integers, noise, settling, secret sums and rollouts are loaded with the first run that has them, before a
node takes part in it: a device has no memory to spare for what no run asks of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_sdk.contract.run import ROLLOUT, Run
from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.settings import from_mapping

if TYPE_CHECKING:
    from edge_sdk.contract.method import Method
    from edge_sdk.methods.integers.vectors.privacy import Privacy
    from edge_sdk.methods.integers.vectors.settings import Uploads
    from edge_sdk.methods.noisy_phases.plan import PhasesPlan
    from edge_sdk.methods.robust.settings import Robust
    from edge_sdk.methods.settling.settings import Settling

SUMMING = ("hospital", "aggregator")
"""Tiers that may have rules in place of plain sums."""


def is_rollout(run: Run) -> bool:
    """Does the run bring a version to devices, in place of training one?"""
    return run.method == ROLLOUT


def only_judges(run: Run) -> bool:
    """Is the run a rollout in which devices try a version and keep what they have: an evaluation?"""
    return is_rollout(run) and bool(run.settings.get("only_judge"))


def rollout_method() -> Method:
    """The method of rollouts."""
    from edge_sdk.methods.rollout import method

    return method.ROLLOUT


def named_method(run: Run) -> Method:
    """The method that a run names, by itself."""
    from edge_sdk.methods import METHODS

    return METHODS[run.method]


def own_settings(run: Run) -> Any:
    """The method's hyper-parameters, by themselves. Raises UsageError for one that is wrong."""
    kind = rollout_method().settings if is_rollout(run) else named_method(run).settings
    return from_mapping(kind, run.settings, f"settings of {run.method}")


def base_of(run: Run) -> Method:
    """The method that a run names, by itself, in the form that suits the run's uploads.

    Noise is not for the forms with running sums: what is in one upload would stay in all later sums.
    """
    method = named_method(run)
    if not run.uploads or run.privacy:
        return method
    from edge_sdk.methods.integers.vectors.settings import summing

    return summing(method, uploads_of(run))


def robust_of(run: Run) -> Robust:
    """Rules of a run in place of plain sums. Raises UsageError for a wrong setting."""
    from edge_sdk.methods.robust.settings import Robust

    return from_mapping(Robust, run.robust, "run.robust")


def rule_of(run: Run, tier: str) -> str:
    """The rule of a tier, "hospital" or "aggregator", in place of its plain sum; "": there is none."""
    if not run.robust:
        return ""
    from edge_sdk.methods.robust.settings import NONE

    rule = robust_of(run).at(tier)
    return "" if rule == NONE else rule


def near_of(run: Run, tier: str) -> Any:
    """What tells which of a tier's children count, as of `robust.method.near_of`; None: it has no rule."""
    if not run.robust:
        return None
    from edge_sdk.methods.robust import method

    return method.near_of(robust_of(run), tier)


def uploads_of(run: Run) -> Uploads:
    """Integers of a run. Raises UsageError for a wrong setting, and for secret sums that are opened with fewer devices
    than the run's noise needs."""
    from edge_sdk.methods.integers.vectors.settings import Uploads

    privacy = privacy_of(run)
    if privacy is None:
        return from_mapping(Uploads, run.uploads, "run.uploads")
    from edge_sdk.methods.integers.vectors.privacy import NOISY

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


def check_pooling(run: Run) -> None:
    """Raises UsageError for a run with sums over hospitals that looks at single hospitals all the same."""
    if uploads_of(run).hospitals and (run.robust or run.privacy):
        table, why = ("robust", "rules look at") if run.robust else ("privacy", "noise is reckoned for")
        raise UsageError(f"run.uploads.hospitals with run.{table}: its {why} answers of single hospitals")


def privacy_of(run: Run) -> Privacy | None:
    """Noise of a run's uploads; None: there is none. Raises UsageError for a wrong setting."""
    if not run.privacy:
        return None
    from edge_sdk.methods.integers.vectors.privacy import Privacy

    return from_mapping(Privacy, run.privacy, "run.privacy")


def with_own_noise(run: Run, method: Method) -> Method:
    """A method with its own kind of noise. Raises UsageError for integers beside it, and for more than can be drawn."""
    if run.uploads:
        raise UsageError(f"run.uploads with method {run.method}: {method.traffic(own_settings(run))}")
    noise, privacy = method.own_noise, privacy_of(run)
    assert noise is not None  # the caller has looked
    noise.check(own_settings(run), privacy, run.rounds, len(run.classes))
    made: Method = noise.around(method, own_settings(run), privacy)
    return made


def with_integers(run: Run, method: Method) -> Method:
    """A method whose vectors travel as integers, with noise where the run has it."""
    from edge_sdk.methods.integers.method import rounded
    from edge_sdk.methods.integers.vectors.settings import check_unopened

    uploads, rule = uploads_of(run), rule_of(run, "hospital")
    check_unopened(method, own_settings(run), uploads, rule)
    return rounded(method, own_settings(run), uploads, bool(rule), privacy_of(run), phase_answers(run))


def with_settling(run: Run, method: Method) -> Method:
    """A method whose devices settle and, where the run wants it, label their own windows and share statistics."""
    from edge_sdk.methods.settling.counting import no_doubt
    from edge_sdk.methods.settling.method import settled

    settling, plan = settling_of(run), phases_of(run)
    near = near_of(run, SUMMING[0]), near_of(run, SUMMING[1])
    of_settling, of_labels = (no_doubt, no_doubt) if plan is None else plan.doubts()
    method = settled(method, settling, *near, doubt=of_settling)
    if settling.label_times:
        from edge_sdk.methods.settling.self_training import self_trained

        method = self_trained(method, settling, *near, doubt=of_labels)
    if settling.statistics:
        from edge_sdk.methods.standardising.method import standardised

        method = standardised(method, *(bool(rule_of(run, tier)) for tier in SUMMING))
    if plan is None:
        return method
    from edge_sdk.methods.noisy_phases.method import with_noise

    return with_noise(method, plan)


def settling_of(run: Run) -> Settling:
    """Settings of a run's phases; fewer candidates than usual where counts have noise. Raises UsageError for a wrong
    one."""
    from edge_sdk.methods.settling.settings import NOISY, Settling

    return from_mapping(Settling, {**NOISY, **run.settle} if run.privacy else run.settle, "run.settle")


def phases_of(run: Run) -> PhasesPlan | None:
    """Noise of a run's phases; None: it has none of these, or no noise."""
    privacy = privacy_of(run)
    if privacy is None or not run.settle:
        return None
    from edge_sdk.methods.noisy_phases.plan import PhasesPlan

    return PhasesPlan(settling_of(run), privacy, run.rounds)


def phase_answers(run: Run) -> int:
    """Answers with noise of each device to a run's phases."""
    plan = phases_of(run)
    return 0 if plan is None else plan.answers - run.rounds
