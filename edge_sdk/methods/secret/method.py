"""Secret sums around a method whose hospitals only add up: a hospital passes on a sum that it cannot read.

    device       masks its answer for the aggregator, with a mask of its own for each answer (messages/masking.py)
    hospital     adds masked answers up as they come, and passes the sum on with the names of those that are in it
    aggregator   makes the masks of these devices again, takes them off, and has the sum (to_aggregator/aggregator.py)

It is one message up and one down, as without masks, and a device that does not answer costs nothing: its mask is in no
sum. Masked are uploads with their weights, sizes and scores, the scores of evaluations, the counts of settling and of
self-training, and means of features, with noise or without; what remains to be read is that a device has answered, and
with what kind of answer. Codecs of such a run know neither uploads nor scores in the clear, so none can leave by
accident.

With secret = "among-devices" the devices of a hospital open its sums (among_devices/among_device.py,
among_devices/among_hospital.py), and nothing rests on who does not work with whom above them.

With `hospitals` the aggregator reads sums over so many hospitals only (over_hospitals/pool_hospital.py,
over_hospitals/pool_aggregator.py).

What it rests on: **hospital and aggregator do not show each other what they have.** The hospital has each masked
answer, the aggregator all masks; together they could read everything.

Source of the idea to hide what is added up under masks that one other party takes off: C. Castelluccia, E. Mykletun,
G. Tsudik: "Efficient Aggregation of Encrypted Data in Wireless Sensor Networks", MobiQuitous 2005.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edge_sdk.contract.method import Method
from edge_sdk.methods.integers.vectors.labels import label_type
from edge_sdk.methods.integers.vectors.settings import Uploads, check_unopened, traffic_of
from edge_sdk.methods.secret.among_devices import among_aggregator, among_device, among_hospital
from edge_sdk.methods.secret.messages.among_messages import (
    Agreement,
    Confirmed,
    Covered,
    Dealt,
    Disputed,
    KeysOffer,
    NoneOpened,
    NoSum,
    Participants,
    PassedShares,
    Revealed,
    Survivors,
    Withdrawn,
    Withheld,
)
from edge_sdk.methods.secret.messages.forms import CountsKind, FeatureSumsKind, NumbersKind, ScoresKind, SumKind
from edge_sdk.methods.secret.messages.messages import Masked, MaskedSum, NumberedQuestion, SumForm, TooFew
from edge_sdk.methods.secret.messages.noisy_form import NOISY_NAMES, NOISY_SUMS
from edge_sdk.methods.secret.messages.plan import SecretPlan
from edge_sdk.methods.secret.messages.pool_messages import NotOpened, NotPooled, PoolQuestion, PoolReady
from edge_sdk.methods.secret.messages.upload_form import UploadKind
from edge_sdk.methods.secret.over_hospitals import pool_aggregator, pool_hospital
from edge_sdk.methods.secret.to_aggregator import aggregator, device, hospital
from edge_sdk.methods.secret.to_aggregator.aggregator import NotSummed


def secret(method: Method, inside: Method, method_settings: Any, settings: Uploads) -> Method:
    """The method with masked answers.

    Args:
        method: with integers, settling and evaluation around it.
        inside: the method by itself, which says what its vectors are.

    Raises:
        UsageError: its hospitals do more than add up.
    """
    check_unopened(inside, method_settings, settings)
    traffic = traffic_of(inside, method_settings)
    uploads, around = UploadKind(dict(traffic.up)), (ScoresKind(), CountsKind(), FeatureSumsKind())
    others: tuple[SumKind, ...] = (*around, *(NumbersKind(cls) for cls in traffic.counts))
    kinds: dict[type, SumKind] = {kind.message: kind for kind in (uploads, *others, NOISY_SUMS)}
    names: dict[str, SumKind] = {cls.__name__: uploads for cls in traffic.up}
    names |= {**{k.message.__name__: k for k in others}, **NOISY_NAMES}
    plan = SecretPlan(settings.cohort, kinds, names, settings.hospitals)
    if settings.among_devices:
        return among_devices(method, plan)
    in_the_clear = {*kinds, *traffic.up, *traffic.down, *(label_type(c, p) for c, p in traffic.up.items())}
    show = method.show
    found = replace(
        method,
        device=device.around(method.device, plan),
        hospital=hospital.around(method.hospital, plan),
        aggregator=aggregator.around(method.aggregator, plan),
        messages=(
            *(m for m in method.messages if m not in in_the_clear),
            *traffic.down,  # in evaluations the model is shown as the method shows it
            NumberedQuestion,
            Masked,
            MaskedSum,
            TooFew,
            SumForm,
        ),
        show=lambda env, s: show(env, s.inner),
    )
    return pooled(found, method, plan) if plan.hospitals else found


def pooled(found: Method, method: Method, plan: SecretPlan) -> Method:
    """The method with secret sums, of which the aggregator reads those over hospitals only.

    Args:
        method: without secret sums.
    """
    show = found.show
    return replace(
        found,
        hospital=pool_hospital.around(found.hospital, plan),
        aggregator=pool_aggregator.around(method.aggregator, plan),
        messages=(*found.messages, PoolReady, PoolQuestion),
        show=lambda env, s: show(env, s.inner),
    )


def among_devices(method: Method, plan: SecretPlan) -> Method:
    """The method with sums that a hospital's devices open among themselves; they travel on as in the clear."""
    downward = (Participants, PassedShares, Survivors, Agreement)
    exchange = (KeysOffer, Dealt, Covered, Confirmed, Revealed, Withdrawn, *downward)
    return replace(
        method,
        device=among_device.around(method.device, plan),
        hospital=among_hospital.around(method.hospital, plan),
        aggregator=among_aggregator.around(method.aggregator, plan),
        messages=(*method.messages, NumberedQuestion, SumForm, *exchange, NoSum),
    )


TOLD = (NotSummed, NotPooled, NotOpened, NoneOpened, Withheld, Disputed)
"""What roles of a run with secret sums tell their application."""
