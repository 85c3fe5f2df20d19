"""Integers around a method: its vectors travel as small integers, and it does not notice.

    a question    the reference (vectors/reference.py) in place of the model, and the scale of the answers' integers
    an upload     the difference to the reference, rotated and rounded to the scale, error feedback added before
    at a hospital integers are added up, exactly and unopened; the method inside adds up zeros, weights and scores
    a sum         the integers' sum, with as many more bits as it takes
    at the root   sums are opened: the method inside gets what it would have got, up to rounding

The aggregator chooses the scale from the largest spread of the uploads that it has heard of; what is out of range is
clipped, and in the next upload by error feedback. In the first round nothing is known: every node chooses a scale of
its own, with FIRST bits, and hospitals open these uploads and round their sum again. So they do in every round where
the method inside does more with uploads than to add them up (FedBCD and AugFL keep each device's latest; robust sums).

What is sent is a function of the state and the question, and leaves with the state that is saved: a call that is made
again after a kill sends the same bytes, and error feedback is the same.

An upload that came too late has changed what its sender has left over (`left`), by no more than a rounding step.

Sources: A. Suresh et al., ICML 2017 (rotation); H. Tang et al., "DoubleSqueeze", ICML 2019 (both directions, with error
feedback in each).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_type_hints

from edge_sdk.contract.method import Method, NodeEnv
from edge_sdk.methods.integers.tiers import aggregator, device, hospital
from edge_sdk.methods.integers.tiers.states import IntegersState
from edge_sdk.methods.integers.vectors.labels import label_type
from edge_sdk.methods.integers.vectors.ledger import spent_by
from edge_sdk.methods.integers.vectors.messages import Behind, Changes, Integers
from edge_sdk.methods.integers.vectors.privacy import OFF, Privacy, check_privacy
from edge_sdk.methods.integers.vectors.settings import Uploads, check_unopened, traffic_of
from edge_sdk.methods.integers.vectors.uploads import IntegersPlan


def rounded(
    method: Method,
    method_settings: Any,
    settings: Uploads,
    opens: bool = False,
    privacy: Privacy | None = None,
    phases: int = 0,
) -> Method:
    """The method with integers in place of its vectors.

    Args:
        opens: hospitals open what devices send also where the method only adds it up.
        privacy: noise that devices add to their uploads.
        phases: answers with such noise that each device gives to phases around the method (noisy_phases).

    Raises:
        UsageError: its vectors cannot travel as integers.
    """
    traffic = traffic_of(method, method_settings)
    check_unopened(method, method_settings, settings, "of this run" if opens else "")
    if privacy is not None:
        check_privacy(method, method_settings, traffic, privacy, settings, opens)
    plan = IntegersPlan(settings, traffic, opens or not traffic.adds, privacy, method.shortened, phases)
    labels = [label_type(cls, paths) for table in (traffic.down, traffic.up) for cls, paths in table.items()]
    show, models, over = method.show, method.models, method.rounds_over

    def shown(env: NodeEnv, s: IntegersState) -> Any:
        return show(env, s.inner)

    shown.__annotations__["return"] = get_type_hints(show)["return"]  # evaluation reads there what a model looks like
    return replace(
        method,
        device=device.around(method.device, plan),
        hospital=hospital.around(method.hospital, plan),
        aggregator=aggregator.around(method.aggregator, plan),
        messages=(*method.messages, Changes, Integers, Behind, *labels),
        show=shown,
        models=lambda env, s, m: models(env, s and s.inner, m),
        rounds_over=None if over is None else lambda s: over(s.inner),
        adds_up=False,
        spent=None if privacy is None else lambda env, s, *more: spent_by(env, plan, s.ledger, *more),
        tells_scores=privacy is None or privacy.scores != OFF,
    )
