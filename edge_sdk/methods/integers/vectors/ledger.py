"""What the noisy sums of a run have said of one device so far, counted at the aggregator.

No device is assumed to have been drawn at random: who is drawn follows from the run's seed, which all nodes know. So
each round counts in full, for every device. A hospital's sum counts with the noise of the devices that are in it; one
that was asked and not heard, as if it had been the smallest that may be sent: its answer may have been late, and read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import UsageError
from edge_sdk.methods.integers.vectors.noise import noise_for
from edge_sdk.methods.integers.vectors.privacy import Noise
from edge_sdk.methods.integers.vectors.uploads import IntegersPlan
from edge_sdk.methods.shared.evaluation.spent import PrivacySpent


@dataclass(frozen=True)
class NoiseLedger:
    """Sums of a run.

    Attributes:
        asked: hospitals that the open round has asked. heard: hospital -> uploads in its sum of that round.
        smallest: uploads in the smallest sum of a round -> how many rounds.
        together: uploads of all sums of a round -> how many rounds.
        size: numbers of an upload; 0: none has come.
    """

    asked: tuple[str, ...] = ()
    heard: Mapping[str, int] = field(default_factory=dict)
    smallest: Mapping[str, int] = field(default_factory=dict)
    together: Mapping[str, int] = field(default_factory=dict)
    size: int = 0


def opened(ledger: NoiseLedger, hospitals: Iterable[str], size: int) -> NoiseLedger:
    """The ledger with a question to these hospitals."""
    return replace(ledger, asked=tuple(sorted({*ledger.asked, *hospitals})), size=size)


def noted(ledger: NoiseLedger, hospital: str, terms: int) -> NoiseLedger:
    """The ledger with a hospital's sum of so many uploads."""
    return replace(ledger, heard={**ledger.heard, hospital: terms})


def closed(ledger: NoiseLedger, cohort: int) -> NoiseLedger:
    """The ledger after the round; nothing, if none was open."""
    if not ledger.asked:
        return ledger
    terms = [ledger.heard.get(h, cohort) for h in ledger.asked]
    smallest, together = min(terms), max(cohort, sum(ledger.heard.values()))
    return NoiseLedger((), {}, one_more(ledger.smallest, smallest), one_more(ledger.together, together), ledger.size)


def one_more(counts: Mapping[str, int], key: int) -> dict[str, int]:
    return {**counts, str(key): counts.get(str(key), 0) + 1}


Rhos = Mapping[float, int]
"""rho of a sum -> how many such sums there were."""


def spent_by(env: NodeEnv, plan: IntegersPlan, ledger: NoiseLedger, more: tuple[Rhos, Rhos] = ({}, {})) -> PrivacySpent:
    """What the run has spent.

    Args:
        more: of sums that are none of uploads: of the smallest ones, and of all sums of a question together.
    """
    assert plan.privacy is not None  # a ledger is kept in such runs only
    noise, delta = noise_for(env, plan, max(1, ledger.size)), plan.privacy.delta
    smallest, together = (
        env.accountant(added(own, others), delta) for own, others in zip(rhos_of(noise, ledger), more, strict=True)
    )
    return PrivacySpent(smallest, together, delta)


def rhos_of(noise: Noise, ledger: NoiseLedger) -> tuple[Rhos, Rhos]:
    """rho of a ledger's sums: of the smallest ones, and of all sums of a question together."""
    smallest, together = (
        {noise.rho(int(terms)): count for terms, count in counts.items()}
        for counts in (ledger.smallest, ledger.together)
    )
    return smallest, together


def added(some: Rhos, others: Rhos) -> Rhos:
    return {rho: some.get(rho, 0) + others.get(rho, 0) for rho in sorted({*some, *others})}


def check_cohorts(env: NodeEnv, cohort: int) -> None:
    """Raises UsageError for a hospital whose sums would never be passed on."""
    small = sorted(h for h, devices in env.sizes.items() if devices < cohort)
    if small:
        raise UsageError(
            f"privacy.cohort = {cohort}: hospital {small[0]} has {env.sizes[small[0]]} devices, so its sums would "
            "never be passed on"
        )
