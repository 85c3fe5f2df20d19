"""One device of six sends garbage, claims too much or forgets in every round: that costs its own part, nothing else."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from edge_sdk.contract.method import UP, Method
from edge_sdk.errors import PeerError
from edge_sdk.methods import METHODS
from edge_sdk.methods.fedal.messages import HospitalLogits, Outputs
from edge_sdk.methods.fedbcd.settings import Settings as FedbcdSettings
from edge_sdk.methods.fedslr.messages import Forgotten
from edge_sdk.methods.fedslr.settings import Settings as FedslrSettings
from edge_sdk.methods.hsgd.messages import Trained
from edge_sdk.methods.shared.aggregation.exact import LARGEST
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum
from edge_sdk.methods.shared.aggregation.guard import Refused
from edge_sdk.methods.shared.evaluation.evaluation import evaluated
from edge_sdk.methods.shared.evaluation.reports import Diverged, Progress, training_scores
from edge_sdk.methods.shared.membership.mirror import Unremembered
from edge_sdk.wire.codec.codec import Codec
from tests.methods.problems import DEVICES, LAYOUT, PROBLEMS, envs_of, play, state, told

ROUNDS, BAD = 30, "d0"  # one of the three devices of hospital h0
STEPS = {"eta_l": 0.05, "batch": 0, "local_epochs": 2, "weight_decay": 0.0}


def attacked(method: Method, change, name: str = BAD) -> Method:
    """The method as its hospitals see it, whose device `name` sends change(its upload, round) in place of its upload.

    It stands around the evaluation: a bad device does not heal itself.
    """
    honest = method.device.receive

    def receive(env, s, sender, m):
        after, sends = honest(env, s, sender, m)
        if env.me != name:
            return after, sends
        bad = [replace(x, message=change(x.message, m.round)) if isinstance(x.message, Sum) else x for x in sends]
        return after, bad

    return replace(method, device=replace(method.device, receive=receive))


def loss_after(method: Method, settings, change=None, rounds: int = ROUNDS) -> tuple[float, list[Refused]]:
    """Mean loss of the global model on the honest devices at the end, and what the hospital of the bad one refused."""
    played = evaluated(method) if change is None else attacked(evaluated(method), change)
    net, transcript = play(played, settings, rounds, envs=envs_of(method, settings, rounds, np.float32))
    shown = method.show(net.nodes["aggregator"].env, state(net, "aggregator"))
    w = method.models(net.nodes["aggregator"].env, None, shown)["global"].astype(np.float64)
    honest = [PROBLEMS[d](w)[0] for d in DEVICES if d != BAD]
    return float(np.mean(honest)), told(transcript, Refused, "h0")


def settings_of(name: str):
    known = METHODS[name].settings.__dataclass_fields__
    return METHODS[name].settings(**{key: value for key, value in STEPS.items() if key in known})


NOISE = np.random.default_rng(5)
GARBAGE = {
    "all 4e9": lambda m, round: replace(m, total=np.full_like(m.total, 4e9 * m.weight)),
    "noise": lambda m, round: replace(m, total=(m.weight * NOISE.normal(0, 100, m.total.shape)).astype(m.total.dtype)),
    "-10 times": lambda m, round: replace(m, total=-10 * m.total),
    "one glitch late": lambda m, round: replace(m, total=m.total * 1e6) if round == ROUNDS - 2 else m,
    "a weight of 4e9": lambda m, round: replace(m, total=7 * m.total / m.weight * 4e9, weight=4e9),
}


@pytest.mark.parametrize("name", ["fedavg", "fedslr", "ditto", "perfedavg", "fedala"])
@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_costs_the_upload_and_is_told(name: str, garbage: str) -> None:
    method, settings = METHODS[name], settings_of(name)
    alone, _ = loss_after(method, settings, lambda m, round: Nobody())  # the bad device sends nothing
    start = float(np.mean([PROBLEMS[d](np.zeros(LAYOUT.size))[0] for d in DEVICES]))
    found, refused = loss_after(method, settings, GARBAGE[garbage])
    assert refused and {r.sender for r in refused} == {BAD}
    assert "its length" in refused[-1].reason or "its weight" in refused[-1].reason
    assert len(refused) == (1 if garbage == "one glitch late" else 3)  # then it is suspended
    assert abs(found - alone) < 0.1 * start, f"{found} with it, {alone} without it"


def test_honest_devices_are_never_refused() -> None:
    for name in ("fedavg", "fedslr", "scaffold", "feddyn", "fedbcd", "augfl", "ditto", "fedal", "fedslr+fedal"):
        settings = METHODS[name].settings()
        envs = envs_of(METHODS[name], settings, 12, np.float32)
        _, transcript = play(evaluated(METHODS[name], every=3), settings, 12, envs=envs)
        assert not [m for _, m in transcript.told if isinstance(m, Refused)], name


def far_off(m: Sum) -> Sum:
    return replace(m, total=np.full_like(m.total, 60 * m.weight))


def test_a_change_of_everybody_is_followed() -> None:
    """All devices send something far away from round 10 on: that costs a round at the hospitals and one above them."""
    method = evaluated(METHODS["fedavg"])
    for d in DEVICES:
        method = attacked(method, lambda m, round: far_off(m) if round >= 10 else m, d)
    _, transcript = play(method, settings_of("fedavg"), 16)
    assert {m.sender for m in told(transcript, Refused, "h0")} == {"d0", "d1", "d2"}
    counted = [p.devices for p in told(transcript, Progress)]
    assert counted == [6] * 10 + [0, 0] + [6] * 4


@pytest.mark.parametrize("name, message", [("fedslr", Forgotten), ("scaffold", Unremembered)])
def test_a_device_that_forgets_in_every_round_stops_nothing(name: str, message) -> None:
    method, settings = METHODS[name], settings_of(name)
    alone, _ = loss_after(method, settings, lambda m, round: Nobody())
    _, transcript = play(attacked(evaluated(method), lambda m, round: message()), settings, ROUNDS)
    counted = [p.devices for p in told(transcript, Progress)]
    assert counted.count(5) >= ROUNDS - 5  # it voids rounds 0, 2, 6, 14 and so on
    refused = told(transcript, Refused, "h0")
    assert len(refused) >= ROUNDS - 5 and "it has lost its memory" in refused[0].reason
    assert loss_after(method, settings, lambda m, round: message())[0] < 2 * alone


def test_a_score_out_of_range_does_not_cost_the_upload() -> None:
    """A model that one bad round has thrown off is trained again, although its losses are beyond what travels."""
    for value in (1e300, inf, nan, -1e300):
        env = METHODS["fedavg"].env(score=lambda theta, value=value: {"samples": 4, "correct": 1, "loss": value})
        scores = training_scores(env, value, {"global": np.zeros(2), "personal": np.zeros(2)})
        Sum(np.zeros(2), 1.0, 1, scores).check(LAYOUT)
        assert abs(scores["loss"]) == LARGEST and scores["global_accuracy"] == 0.25


def test_a_personal_component_that_diverged_begins_again_and_is_told() -> None:
    method, settings = METHODS["fedslr"], FedslrSettings(**STEPS)
    envs = envs_of(method, settings, 3, np.float32)
    role = method.device
    s, _ = role.start(envs[BAD])
    s = replace(s, p=np.full_like(s.p, np.inf))
    question = method.aggregator.start(replace(envs["aggregator"], here=("h0",)))[1][0].message
    with np.errstate(all="ignore"):
        s, sends = role.receive(replace(envs[BAD], me=BAD), s, UP, question)
    assert np.isfinite(s.p).all() and not s.p.any()
    (upload,) = [x.message for x in sends if x.to == UP]
    Codec(method.messages, layout=LAYOUT).encode(upload)
    upload.check(LAYOUT)
    assert "begins at zero again" in next(x.message for x in sends if isinstance(x.message, Diverged)).what


@pytest.mark.parametrize("feasible", ["box", "ball"])
def test_fedbcd_takes_nothing_from_outside_the_feasible_set(feasible: str) -> None:
    method, settings = METHODS["fedbcd"], FedbcdSettings(feasible=feasible, bound=2.0, gamma=0.5)
    env = replace(envs_of(method, settings, 3)["h0"], me="h0", here=("d0", "d1", "d2"))
    s, _ = method.hospital.start(env)
    unit = np.eye(1, LAYOUT.size)[0]
    method.hospital.receive(env, s, BAD, Sum(0.5 * 2.0 * unit, 0.5))
    with pytest.raises(PeerError, match=f"d0 sent a model that reaches 4e\\+09, the {feasible} ends at 2"):
        method.hospital.receive(env, s, BAD, Sum(0.5 * 4e9 * unit, 0.5))


def test_a_refusal_is_an_answer_that_nobody_waits_for() -> None:
    """The round goes on with the others at once, and a repeated run gives the same."""
    method = attacked(evaluated(METHODS["fedavg"]), GARBAGE["all 4e9"])
    runs = [play(method, settings_of("fedavg"), 6, seed=seed) for seed in (0, 1)]
    models = [state(net, "aggregator").model.values.tobytes() for net, _ in runs]
    assert models[0] == models[1]
    assert [p.devices for p in told(runs[0][1], Progress)] == [5] * 6


def test_logits_whose_sum_is_no_number_are_refused() -> None:
    """Two devices at 3e38 made the aggregator's step fail at every retry."""
    bad = np.full((2, 3), 3e38, np.float32)
    for message in (Outputs(bad), HospitalLogits((0, 1), np.stack([bad, bad]))):
        with pytest.raises(ValueError, match="a logit that is not finite or above"):
            message.check(LAYOUT)
    Outputs(bad / np.float32(1e30)).check(LAYOUT)


def test_logits_that_would_be_the_mean_of_all_are_refused() -> None:
    """One device of six with logits a thousand times as large; its hospital knows its siblings' by then."""
    method = evaluated(METHODS["fedal"])
    honest = method.device.receive

    def receive(env, s, sender, m):
        after, sends = honest(env, s, sender, m)
        if env.me != BAD:
            return after, sends
        return after, [
            replace(x, message=Outputs(1000 * x.message.logits)) if isinstance(x.message, Outputs) else x for x in sends
        ]

    settings = method.settings()
    bad = replace(method, device=replace(method.device, receive=receive))
    _, transcript = play(bad, settings, 3, envs=envs_of(method, settings, 3, np.float32))
    refused = told(transcript, Refused, "h0")
    assert refused and {r.sender for r in refused} == {BAD} and "its length" in refused[0].reason
    largest = max(np.abs(m.logits).max() for _, to, m in transcript.crossed if isinstance(m, HospitalLogits))
    assert largest < 100


def test_a_device_of_a_split_model_is_measured_by_its_part() -> None:
    assert Trained(None).measure() is None
    assert Trained(np.full(4, 3.0, np.float32)).measure()[:3] == (6.0, 1.0, 3.0)
