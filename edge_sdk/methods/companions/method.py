"""Devices of other architectures beside a method with one global model: the two learn from each other's outputs.

Most devices train the shared model (FedSLR, alone or under consensus between hospitals). Their companions have models
of their own, and exchange logits on public inputs as in FedAL. The two meet at the aggregator:

    from    the global model w takes part in FedAL's exchanges like one more device: its logits on the common batch are
            in the companions' consensus, and the discriminator tells it apart from them or does not;
    into    what FedAL answers a device (K(consensus, own) + the adversarial term, pulled back to the parameters) is the
            gradient of a smooth term of the shared objective, with weight `into`: it enters the aggregator's step

    w = prox_{eta_g lambda ||.||_*}(x - eta_g (grad R(w) + into * pull(w))),

beside AugFL's regulariser R, if there is one. So one close of the aggregator is a proximal step, a step of the
discriminator and, with fedslr-b, a mixing of hospitals. `into` = 0: the companions learn from w, and w is as without
them. Each close is a round of the shared method and one exchange of FedAL (a local stage comes every tau + 1 closes).

A hospital knows which of its devices are companions, the aggregator only how many there are. A device is one if its
bundle is not the one that the run names.

Leaves a device: what its method says; no companion sends a parameter. Kind of upload: that of the shared method.
When few answer: as each method has it. A hospital that is not asked in a close sits FedAL out until its next local
stage.
Devices and hospitals that come or leave for good during a run wait for the next one, as in FedAL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edge_sdk.contract.method import Method
from edge_sdk.contract.round import Policy
from edge_sdk.contract.search import OneOf, SearchSpace
from edge_sdk.methods.companions.aggregator import aggregator_role, show
from edge_sdk.methods.companions.device import device_role, make_models
from edge_sdk.methods.companions.hospital import hospital_role
from edge_sdk.methods.companions.messages import Both, SharedModel
from edge_sdk.methods.companions.settings import ConsensusEnv, ConsensusSettings, Env, Settings
from edge_sdk.methods.fedal.messages import Shown
from edge_sdk.methods.fedal.method import FEDAL
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.fedslr_consensus import FEDSLR_B, FIRST_B, SYNC
from edge_sdk.methods.shared.aggregation.plain import always_plain
from edge_sdk.methods.shared.aggregation.traffics import always_floats
from edge_sdk.methods.shared.membership.changing import always_fixed


def with_companions(base: Method, name: str, settings: type[Settings], env: type[Env]) -> Method:
    """The method with devices of other architectures beside its own."""

    def policies(
        s: Settings, sizes: Mapping[str, int], deadline: float, hospital_deadline: float, evaluate_every: int = 0
    ) -> Mapping[str, Policy]:
        return base.policies(s.shared, sizes, deadline, hospital_deadline, evaluate_every)

    def warnings(s: Settings, sizes: Mapping[str, int]) -> Sequence[str]:
        return [
            *base.warnings(s.shared, sizes),
            *FEDAL.warnings(s.outputs, sizes),
            *warn_of_no_pull(s),
            *warn_of_few_exchanges(s, sizes),
        ]

    outputs = tuple(m for m in FEDAL.messages if m is not Shown)
    return Method(
        name=name,
        summary=f"{base.name}, beside devices of other architectures that learn from each other's outputs",
        device=device_role(base),
        hospital=hospital_role(base),
        aggregator=aggregator_role(base),
        messages=tuple(dict.fromkeys((*base.messages, *outputs, Both, SharedModel))),
        settings=settings,
        env=env,
        show=show,
        models=make_models(base),
        policies=policies,
        warnings=warnings,
        kernels="companions",
        traffic=always_floats("each answer is of two methods at once, and outputs of companions are not added up"),
        plain_sums=always_plain("each answer is of two methods at once, and outputs of companions are not added up"),
        recommended={"shared": base.recommended, "outputs": {"al": 0.0}},  # no effect shown: docs/methods.md
        search=search_both(base),
        warms_up=True,
        late_counts=lambda s: base.late_counts(s.shared),
        fixed=always_fixed("FedAL's discriminator has an output for each companion with which the run began"),
    )


def warn_of_no_pull(s: Settings) -> list[str]:
    """One sentence where the shared model is as it would be without companions."""
    if s.into:
        return []
    game = f", and outputs.al = {s.outputs.al} is a game of the companions only" if s.outputs.al else ""
    return [f"into = 0: the companions learn from the shared model, it does not learn from them{game}"]


def warn_of_few_exchanges(s: Settings, sizes: Mapping[str, int]) -> list[str]:
    """One sentence where hospitals that are not waited for miss exchanges of outputs."""
    ready = getattr(s.shared, "ready", 0)
    if getattr(s.shared, "cloud", SYNC) != FIRST_B or ready >= len(sizes):
        return []
    return [
        f"shared.ready = {ready} of {len(sizes)} hospitals: one that misses a close sits the exchanges out until the "
        "next local stage, so most closes may be without outputs of companions"
    ]


def search_both(base: Method) -> SearchSpace:
    """The search spaces of both methods, each in its table; here a run may also be without a discriminator."""
    parts = {"shared": base.search, "outputs": {**FEDAL.search, "al": OneOf((0.0, 0.1, 1.0, 10.0))}}
    return {f"{table}.{key}": values for table, space in parts.items() for key, values in space.items()}


FEDSLR_FEDAL = with_companions(FEDSLR, "fedslr+fedal", Settings, Env)


FEDSLR_B_FEDAL = with_companions(FEDSLR_B, "fedslr-b+fedal", ConsensusSettings, ConsensusEnv)
