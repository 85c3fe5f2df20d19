"""One device that lies in its masked answers: nobody can see which, so no hospital is blamed or left out for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edge_sdk.contract.method import Method
from edge_sdk.methods.secret.messages.forms import EVALUATION_NAMES
from edge_sdk.methods.secret.messages.messages import Masked, MaskedSum
from edge_sdk.methods.secret.messages.pool_messages import NotOpened
from edge_sdk.methods.shared.aggregation.guard import Refused
from edge_sdk.methods.shared.aggregation.suspension import Suspended
from edge_sdk.methods.shared.evaluation.evaluation import Progress, Report
from edge_sdk.nodes.configuration.assembly import method_of
from tests.methods.problems import told
from tests.methods.secret.test_pools import played, pool_run, silent

Lie = Callable[[Masked], Masked]
LIES = range(4, 8)  # numbers of the questions to which it lies: a training round and an evaluation


def lying(method: Method, lie: Lie) -> Method:
    """The method, in which the only device of one hospital lies under its mask for some questions."""

    def receive(env: Any, s: Any, sender: str, m: Any) -> Any:
        s, sends = method.device.receive(env, s, sender, m)
        if env.me == "d5" and getattr(m, "ticket", 0) in LIES:
            sends = [replace(e, message=lie(e.message)) if isinstance(e.message, Masked) else e for e in sends]
        return s, sends

    return replace(method, device=replace(method.device, receive=receive))


def plus(m: Masked, place: int, more: int) -> Masked:
    words = m.words.copy()
    words[place] += np.uint64(more)
    return replace(m, words=words)


def counted_twice(m: Masked) -> Masked:
    return plus(m, 0, 1)


def far_too_heavy(m: Masked) -> Masked:
    return plus(m, 1, 10**8 << 20) if m.form.kind == "Sum" else m


def many_devices(m: Masked) -> Masked:
    return plus(m, 1 + 2 * EVALUATION_NAMES.index("devices"), 100 << 20) if m.form.kind == "Scores" else m


@pytest.mark.parametrize(
    ("lie", "why"),
    [(counted_twice, "do not open it"), (far_too_heavy, "its weight"), (many_devices, "score 'devices'")],
)
def test_a_lying_device_costs_its_questions_and_no_hospital_is_blamed(lie: Lie, why: str) -> None:
    run = pool_run(rounds=4, evaluate_every=1)
    _, transcript = played(run, lying(method_of(run), lie))
    assert not told(transcript, Refused) and not told(transcript, Suspended)
    void = told(transcript, NotOpened)
    assert void and all(m.members == ("h0", "h1", "h2") for m in void)
    assert why in void[0].to_sentence() and void[0].to_metrics()["kind"] == "not opened"
    assert told(transcript, Progress)[-1].devices == 6 and told(transcript, Report)[-1].sums["devices"] == 6


def test_a_hospital_whose_sum_is_in_another_ring_is_the_one_that_is_refused() -> None:
    """Everybody can see that: the question has said which ring."""

    def wider(m: MaskedSum) -> MaskedSum:
        return replace(m, width=m.width + 1)

    _, transcript = played(pool_run(rounds=4), silent(at=3, hospital="h0", what=wider))
    assert [(m.sender, "in a ring of" in m.reason) for m in told(transcript, Refused)] == [("h0", True)]
    assert [p.devices for p in told(transcript, Progress)] == [6, 0, 6, 6]
