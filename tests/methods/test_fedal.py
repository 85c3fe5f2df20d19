"""FedAL over three tiers against Algorithm 1, its invariants, its variants, and what crosses a wire."""

from __future__ import annotations

from dataclasses import fields, replace
from math import inf, log

import numpy as np
import pytest

pytest.importorskip("torch")

import literal_fedal
from logit_problems import CLASSES, NETS, PARTIES, PUBLIC, Net, Party, drawn, envs_of, play
from problems import DEVICES, HASTY, PATIENT, TREE, devices_counted, state, told

from edge_sdk.codec import Codec
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.loopback import Weather
from edge_sdk.method import UP
from edge_sdk.methods import discriminator, distillation, fedal, fedal_server
from edge_sdk.methods.evaluation import Models, Progress, Report, evaluated
from edge_sdk.methods.fedal import FEDAL, public_rows, transfer_cotangent
from edge_sdk.methods.fedal_messages import Consensus, Feedback, Local, Outputs, Parcel, Settled, Share
from edge_sdk.methods.fedal_settings import DISCRIMINATOR, VARIANTS, Env, Settings
from edge_sdk.methods.gather import Nobody
from edge_sdk.settings import from_mapping
from edge_sdk.vectors import layout_of

SMALL = Settings(tau=3, eta_l=0.05, eta_d=0.02, batch=16, public_batch=8, widths=(7, 6), optimiser="sgd",
                 optimiser_d="sgd")  # fmt: skip
NO_LF = dict(lf_local=0.0, lf_transfer=0.0)


def discriminator0(s, rounds=1):
    env = envs_of(s, rounds)["aggregator"]
    if not s.al:
        return np.zeros(0)
    random = replace(env, me="aggregator").random(0, DISCRIMINATOR)
    return discriminator.initial(random, (CLASSES, *s.widths, len(PARTIES)), np.float64)


def literal(s, rounds, parties=PARTIES, **more):
    w0 = discriminator0(s)
    return literal_fedal.Run(parties, PUBLIC, w0, s, **more)


def difference(net, expected):
    """Largest, over all models and the discriminator."""
    theta, w = expected
    apart = [np.abs(state(net, d).theta - theta[d]).max() for d in theta]
    return max(*apart, np.abs(state(net, "aggregator").w - w).max(initial=0))


# Against the algorithm ------------------------------------------------------------------------------------------
CASES = {
    "fedal": SMALL,
    "fedmd": replace(SMALL, al=0.0, **NO_LF),
    "fedmd-lf": replace(SMALL, al=0.0),
    "fedmd-al": replace(SMALL, **NO_LF),
    "al alone": replace(SMALL, kd=0.0, **NO_LF),
    "weights": replace(SMALL, kd=0.7, al=1.6, lf_local=0.4, lf_transfer=2.0),
    "temperatures": replace(SMALL, temperature_d=4.0, temperature_kd=2.0, temperature_lf=3.0),
    "target of all": replace(SMALL, target="all"),
    "schedules": replace(SMALL, decay_l=0.7, decay_d=0.5),
    "nothing to remember at first": replace(SMALL, lf_skip_first=True),
    "all samples": replace(SMALL, batch=1000),
    "tau 1": replace(SMALL, tau=1),
    "one layer": replace(SMALL, widths=()),
    "feddf": replace(SMALL, averaging="after_local", al=0.0, **NO_LF),
    "feddf-al": replace(SMALL, averaging="after_local"),
    "averaged at last": replace(SMALL, averaging="after_transfer"),
}


@pytest.mark.parametrize("s", CASES.values(), ids=CASES)
def test_equals_the_literal_algorithm(s):
    net, trace = play(s, 4)
    assert difference(net, literal(s, 4).play(4)) < 1e-12
    assert [m.round for m in told(trace, Progress)] == [1, 2, 3, 4]


@pytest.mark.parametrize("target", ["others", "all"])
def test_fedproto_on_public_inputs(target):
    """Features of one width in place of logits, from nets of different depth."""
    s = replace(SMALL, al=0.0, **NO_LF, features=4, target=target)
    parties = {d: drawn(i, (Net((4,)), Net((3, 4)))[i % 2]) for i, d in enumerate(DEVICES)}
    net, trace = play(s, 3, parties=parties)
    assert difference(net, literal(s, 3, parties=parties).play(3)) < 1e-12
    assert {m.logits.shape for _, _, m in trace.crossed if isinstance(m, Outputs)} == {(8, 4)}
    with pytest.raises(UsageError, match="compare probabilities"):
        Settings(features=4)


@pytest.mark.parametrize("s", [SMALL, replace(SMALL, fresh_optimiser=True)], ids=["carried", "fresh"])
def test_equals_the_literal_algorithm_with_adam(s):
    """Looser: where a gradient is nearly zero, Adam turns its rounding into a step."""
    s = replace(s, optimiser="adam", optimiser_d="adam", eta_l=0.01)
    net, _ = play(s, 4)
    assert difference(net, literal(s, 4).play(4)) < 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_who_misses_an_exchange_waits_for_the_next_round(seed):
    """Loss, repetition, reordering, an absence and a slow answer: Algorithm 1 with the sets that the trace shows."""
    weather = Weather(drop=0.03, away={"d0": [(12, 40)]}, slow={("d4", 8): 30.0})
    net, trace = play(SMALL, 8, weather=weather, policies=HASTY, seed=seed)
    who = Attendance(trace)
    expected = literal(SMALL, 8).play(8, who.trained, who.counted, who.stepped)
    assert difference(net, expected) < 1e-12
    assert len(told(trace, Progress)) == 8 and who.fewest < len(DEVICES)


class Attendance:
    """Who did what, read from the closes of the aggregator and from what devices worked on."""

    def __init__(self, trace):
        counted = devices_counted(trace)
        parent = {d: h for h, ds in TREE.items() for d in ds}
        ran = {}
        for d in DEVICES:
            for number in trace.ran.get(d, []):
                ran.setdefault(trace.asked[parent[d]][number], set()).add(d)
        self.local, self.exchanges, self.steps = {}, {}, {}
        round, exchange = 0, 0
        for question, (close, there) in enumerate(zip(trace.closed["aggregator"], counted, strict=True), start=1):
            if exchange == 0:
                self.local[round] = sorted(ran.get(question, ()))
            if exchange == SMALL.tau or not there:
                assert close.state.round == round + 1
                round, exchange = round + 1, 0
                continue
            self.exchanges[round, exchange] = there
            self.steps[round, exchange] = sorted(ran.get(question + 1, set()) & {*there})
            exchange += 1
        self.fewest = min(map(len, self.exchanges.values()))

    def trained(self, t):
        return self.local.get(t, [])

    def counted(self, t, i):
        return self.exchanges.get((t, i), [])

    def stepped(self, t, i):
        return self.steps.get((t, i), [])


def test_the_order_of_arrival_leaves_no_trace():
    nets = [play(SMALL, 3, policies=PATIENT, seed=k, weather=Weather(delay=(0.1, 9.0)))[0] for k in range(4)]
    first = nets[0]
    for net in nets[1:]:
        assert all(np.array_equal(state(net, d).theta, state(first, d).theta) for d in DEVICES)
        assert np.array_equal(state(net, "aggregator").w, state(first, "aggregator").w)


def test_a_silent_device_is_no_candidate_of_the_discriminator():
    """Algorithm 1 without it, with its output of the discriminator masked."""
    net, trace = play(SMALL, 3, weather=Weather(away={"d5": [(0, inf)]}), policies=HASTY)
    others = [d for d in DEVICES if d != "d5"]
    run = literal(SMALL, 3)
    theta, w = run.play(3, lambda t: others, lambda t, i: others, lambda t, i: others)
    assert difference(net, ({d: theta[d] for d in others}, w)) < 1e-12
    for m in told(trace, Progress):
        assert m.sums["floor"] / m.sums["exchanged"] == pytest.approx(-log(5))


def test_a_device_alone_learns_nothing_from_nobody():
    away = {d: [(0, inf)] for d in DEVICES if d != "d2"}
    s = replace(SMALL, **NO_LF)
    net, trace = play(s, 2, weather=Weather(away=away), policies=HASTY)
    run = literal(s, 2)
    theta, w = run.play(2, lambda t: ["d2"], lambda t, i: ["d2"], lambda t, i: ["d2"])
    assert difference(net, ({"d2": theta["d2"]}, w)) < 1e-12 and np.array_equal(w, discriminator0(s))
    assert [m.devices for m in told(trace, Progress)] == [1, 1]


def test_nobody_at_all_ends_the_rounds():
    away = {d: [(0, inf)] for d in DEVICES}
    _, trace = play(SMALL, 3, weather=Weather(away=away), policies=HASTY)
    assert [(m.round, m.devices) for m in told(trace, Progress)] == [(1, 0), (2, 0), (3, 0)]


# Invariants of the specification (3.2) --------------------------------------------------------------------------
def thetas(s, rounds=3, **more):
    net, _ = play(s, rounds, **more)
    return np.concatenate([state(net, d).theta for d in DEVICES])


def test_1_the_discriminator_consumes_nobodys_random_numbers():
    """FedMD in its own words, see also the case `fedmd`; with a discriminator of weight near 0 it is the same run."""
    fedmd = replace(SMALL, al=0.0, **NO_LF)
    assert np.abs(thetas(fedmd) - thetas(replace(fedmd, al=1e-13))).max() < 1e-12


@pytest.mark.parametrize("al", [0.0, 1.0])
def test_2_with_tau_1_remembering_does_nothing(al):
    s = replace(SMALL, tau=1, al=al)
    assert np.abs(thetas(s) - thetas(replace(s, **NO_LF))).max() < 1e-14
    s = replace(s, tau=3)
    assert np.abs(thetas(s) - thetas(replace(s, **NO_LF))).max() > 1e-4


def test_2_the_first_step_of_a_stage_has_nothing_to_forget():
    env = replace(envs_of(SMALL, 1)["d1"], me="d1")
    rows = fedal.private_rows(env, 0, 0)
    plain = env.grad_fn(env.theta0, rows)[1]
    assert np.allclose(fedal.local_gradient(env, env.theta0, env.theta0, rows)[1], plain, atol=1e-15)
    f = env.public.logits(env.theta0, public_rows(env, 0, 0))
    s = replace(SMALL, kd=0.0, al=0.0)
    assert np.array_equal(transfer_cotangent(s, f, f, Feedback(0, 0, 2, f, None, "logits")), np.zeros_like(f))


def test_5_feedback_is_of_the_new_discriminator():
    net, _ = play(SMALL, 2)
    assert difference(net, literal(SMALL, 2).play(2)) < 1e-12
    assert difference(net, literal(SMALL, 2, old_w=True).play(2)) > 1e-6


def test_6_devices_that_agree_do_not_move():
    """Identical devices: no consensus and no less-forgetting gradient, and nothing for a discriminator to find."""
    one = drawn(0, NETS[1])
    parties = {d: Party(one.net, one.x, one.y, one.theta0) for d in DEVICES}
    envs = envs_of(SMALL, 1, parties=parties)
    f = envs["d0"].public.logits(one.theta0, public_rows(envs["d0"], 0, 0))
    m = Feedback(0, 0, 6, distillation.mean_of(np.stack([f] * 6)), None, "logits")
    assert np.abs(transfer_cotangent(replace(SMALL, al=0.0), f, f, m)).max() < 1e-15


def test_8_a_small_step_of_either_side_moves_the_payoff_its_way():
    s = replace(SMALL, kd=0.0, **NO_LF)
    env = replace(envs_of(s, 1)["aggregator"], me="aggregator")
    f = np.stack([p.net.logits(p.theta0, PUBLIC[:8]) for p in PARTIES.values()])
    flat, who, there = f.reshape(-1, CLASSES), np.repeat(np.arange(6), 8), np.ones(6, bool)
    widths, w = fedal_server.widths(env), discriminator0(s)

    def payoff(w, f):
        return discriminator.feedback(w, widths, f, who, there, 2.0)[0].mean()

    gradient = discriminator.ascent(w, widths, flat, who, there, 2.0)
    assert payoff(w + 1e-3 * gradient, flat) > payoff(w, flat)
    g = discriminator.feedback(w, widths, flat, who, there, 2.0)[1]
    assert payoff(w, flat - 1e-2 * g) < payoff(w, flat) < 0


def test_9_public_batches_are_common_and_private_ones_are_not():
    envs = {d: replace(env, me=d) for d, env in envs_of(SMALL, 1).items() if d in DEVICES}
    public = {tuple(public_rows(env, 3, 1)) for env in envs.values()}
    assert len(public) == 1 and public != {tuple(public_rows(envs["d0"], 3, 2))}
    assert len({tuple(fedal.private_rows(env, 3, 1)[:8]) for env in envs.values()}) > 1
    rows = next(iter(public))
    assert len(rows) == len(set(rows)) == SMALL.public_batch


def test_10_renaming_devices_renames_the_results():
    """Devices with the rows of the discriminator's last layer in another order: the same, but for the order of sums."""
    s, order = SMALL, [3, 0, 5, 1, 4, 2]
    parties = {d: PARTIES[DEVICES[k]] for d, k in zip(DEVICES, order, strict=True)}
    w0, last = discriminator0(s), s.widths[-1] * 6
    rows, biases = w0[-last - 6 : -6].reshape(6, -1), w0[-6:]
    moved = np.concatenate([w0[: -last - 6], rows[order].ravel(), biases[order]])
    plain = literal_fedal.Run(PARTIES, PUBLIC, w0, replace(s, batch=1000)).play(2)[0]
    renamed = literal_fedal.Run(parties, PUBLIC, moved, replace(s, batch=1000)).play(2)[0]
    for d, k in zip(DEVICES, order, strict=True):
        assert np.abs(renamed[d] - plain[DEVICES[k]]).max() < 1e-12


def arrays_of(message):
    found = []
    for f in fields(message):
        value = getattr(message, f.name)
        found += [value] if isinstance(value, np.ndarray) else []
    return found


def test_11_only_logits_leave_a_device_and_it_gets_two_such_arrays():
    _, trace = play(SMALL, 3, weather=Weather(repeat=0.0))
    B, K = SMALL.public_batch, CLASSES
    kinds = set()
    for sender, receiver, m in trace.crossed:
        kinds.add((sender[0], type(m).__name__))
        if sender in DEVICES:
            assert [a.shape for a in arrays_of(m)] == ([(B, K)] if isinstance(m, Outputs) else [])
        if receiver in DEVICES:
            assert [a.shape for a in arrays_of(m)] == ([(B, K)] * 2 if isinstance(m, Feedback) else [])
    assert kinds == {("d", "Outputs"), ("d", "Settled"), ("h", "Parcel"), ("h", "Settled"), ("h", "Local"),
                     ("h", "Feedback"), ("a", "Local"), ("a", "Consensus")}  # fmt: skip


def test_11_no_name_of_a_device_goes_up():
    _, trace = play(SMALL, 1, through=lambda m: m)
    codec = Codec(FEDAL.messages, dtype=np.float64)
    up = [codec.encode(m) for sender, receiver, m in trace.crossed if receiver == "aggregator"]
    assert up and not any(f'"{d}"'.encode() in data or d.encode() in data for d in DEVICES for data in up)


def test_12_bytes_are_those_of_the_paper():
    """T tau B K 4 up and twice that down, per device; less where a term is off."""
    s, rounds = replace(SMALL, tau=2), 3
    once = rounds * s.tau * s.public_batch * CLASSES * 4
    for settings, down in ((s, 2), (replace(s, al=0.0), 1), (replace(s, kd=0.0), 1)):
        _, trace = play(settings, rounds, dtype=np.float32, weather=Weather(repeat=0.0))
        sent = sum(a.nbytes for who, _, m in trace.crossed if who == "d3" for a in arrays_of(m))
        received = sum(a.nbytes for _, to, m in trace.crossed if to == "d3" for a in arrays_of(m))
        assert (sent, received) == (once, down * once)


def test_13_the_discriminator_rests_in_the_local_stage_and_references_stay():
    _, trace = play(SMALL, 2, weather=Weather(repeat=0.0))
    closes = trace.closed["aggregator"]
    settled = [c.state.w for c in closes]
    assert np.array_equal(settled[SMALL.tau - 1], settled[SMALL.tau])  # the close that ends a round teaches nothing
    assert not np.array_equal(settled[0], settled[1])
    stage = [s.references for s in trace.states["d1"] if s.round == 0]
    assert all(np.array_equal(r, stage[0]) for r in stage) and stage[0].shape == (3, 8, CLASSES)


def test_15_one_aggregator_for_all_architectures():
    sizes = {len(p.theta0) for p in PARTIES.values()}
    assert len(sizes) == 3 and len({n.size for n in NETS}) == 3


@pytest.mark.parametrize("averaging", ["after_local", "after_transfer"])
def test_16_groups_are_equal_after_averaging_and_who_is_alone_keeps_its_own(averaging):
    nets = (Net(), Net((4,)), Net((4,)), Net(), Net((3, 4)), Net((4,)))
    parties = {d: drawn(i, net) for i, (d, net) in enumerate(zip(DEVICES, nets, strict=True))}
    s = replace(SMALL, averaging=averaging)
    net, trace = play(s, 2, parties=parties)
    assert difference(net, literal(s, 2, parties=parties).play(2)) < 1e-12
    told_average = [(to, m) for _, to, m in trace.crossed if type(m).__name__ == "Average"]
    assert {to for to, m in told_average if m.model is None} == {"d4"}
    after = [(d, s_) for d in ("d0", "d3") for s_ in trace.states[d]]
    first = {d: next(x.theta for n, x in after if n == d and (x.exchange == s.tau or averaging == "after_local"))
             for d in ("d0", "d3")}  # fmt: skip
    assert first["d0"].shape == first["d3"].shape
    if averaging == "after_transfer":
        assert np.array_equal(state(net, "d0").theta, state(net, "d3").theta)
        assert not np.array_equal(state(net, "d0").theta[:5], state(net, "d4").theta[:5])


def test_16_feddf_al_without_its_terms_is_feddf():
    s = replace(SMALL, averaging="after_local", al=0.0, **NO_LF)
    assert from_mapping(Settings, VARIANTS["feddf"], "").averaging == "after_local"
    assert np.abs(thetas(s) - thetas(replace(s, al=1e-13))).max() < 1e-12


# Metrics, evaluation, refusals ----------------------------------------------------------------------------------
def test_variants_are_weights():
    made = {name: from_mapping(Settings, values, name) for name, values in VARIANTS.items()}
    assert {
        n: (s.al > 0, s.lf_local > 0, s.lf_transfer > 0, s.averaging != "none", s.tau) for n, s in made.items()
    } == {
        "fedmd": (False, False, False, False, 1),
        "fedmd-lf": (False, True, True, False, 5),
        "fedmd-al": (True, False, False, False, 5),
        "fedal": (True, True, True, False, 5),
        "feddf": (False, False, False, True, 10),
        "feddf-al": (True, True, True, True, 15),
    }


def test_rounds_report_the_game_and_forgetting():
    _, trace = play(replace(SMALL, measure=2), 4)
    rounds = told(trace, Progress)
    for m in rounds:
        n = m.sums["exchanged"]
        assert m.devices == 6 and n == 6 * SMALL.tau
        assert m.sums["floor"] / n == pytest.approx(-log(6)) and m.sums["payoff"] < 0
        assert 0 <= m.sums["caught"] <= n and m.sums["gap"] > 0 and m.sums["loss"] > 0
        assert m.sums["personal_accuracy"] <= 6 == m.sums["devices"]
    stages = [f"{when}{of}_accuracy" for when in ("started", "trained", "settled") for of in ("", "_own")]
    assert [all(name in m.sums for name in stages) for m in rounds] == [False, True, False, True]
    assert rounds[1].sums["settled_accuracy"] == rounds[1].sums["personal_accuracy"]


def test_evaluation_judges_the_models_where_a_round_ends():
    method = evaluated(FEDAL, every=2)
    net, trace = play(SMALL, 5, method=method)
    plain, _ = play(SMALL, 5)
    reports = told(trace, Report)
    assert [(m.round, m.final) for m in reports] == [(2, False), (4, False), (5, True)]
    rounds = {m.round: m.sums for m in told(trace, Progress)}
    assert all(m.sums["personal_correct"] == rounds[m.round]["personal_correct"] for m in reports)
    for d in DEVICES:
        assert np.array_equal(state(net, d).theta, state(plain, d).theta)
        (kept,) = told(trace, Models, d)
        assert np.array_equal(kept.models["personal"], state(net, d).theta)


def test_a_start_of_ones_own_has_the_same_entries_tensor_by_tensor():
    layout = layout_of(("a", (4, 3), "linear"), ("b", (5,), "bias"))
    theta0 = np.arange(17.0)
    common = dict(layout=layout, theta0=theta0, settings=replace(SMALL, start="own"), seed=3)
    first, second = (FEDAL.device.start(Env(me=d, **common))[0].theta for d in ("d0", "d1"))
    for theta in (first, second):
        assert sorted(theta[:12]) == list(range(12)) and sorted(theta[12:]) == list(range(12, 17))
    assert not np.array_equal(first, second) and not np.array_equal(first, theta0)
    assert FEDAL.device.start(Env(me="d0", **{**common, "settings": SMALL}))[0].theta is theta0


def test_learning_from_others_helps():
    alone = replace(SMALL, kd=0.0, al=0.0, **NO_LF)
    reached = {}
    for name, s in {"alone": alone, "fedal": SMALL}.items():
        _, trace = play(replace(s, eta_l=0.1), 40)
        reached[name] = told(trace, Progress)[-1].sums["personal_correct"]
    assert reached["fedal"] > reached["alone"]


def test_a_device_that_has_lost_its_state_sits_out():
    env = replace(envs_of(SMALL, 1)["d0"], me="d0")
    s, _ = fedal.device_start(env)
    m = Feedback(2, 1, 3, np.zeros((8, CLASSES)), None, "logits")
    after, sends = fedal.device_receive(env, s, UP, m)
    assert after is s and isinstance(sends[0].message, Nobody)


BAD_SETTINGS = [dict(tau=0), dict(temperature_d=0.5), dict(kd=-1.0), dict(target="some"), dict(averaging="often"),
    dict(start="somewhere"),
                dict(optimiser="newton"), dict(decay_l=0.0), dict(public_batch=0), dict(widths=(0,))]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_SETTINGS, ids=str)
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises(UsageError, match=next(iter(bad))):
        Settings(**bad)


def test_what_cannot_work_is_refused():
    env = replace(envs_of(SMALL, 1)["aggregator"], me="aggregator")
    with pytest.raises(UsageError, match="at least 2"):
        FEDAL.aggregator.start(replace(env, sizes={"h0": 1}))
    device = replace(envs_of(replace(SMALL, public_batch=41), 1)["d0"], me="d0")
    with pytest.raises(UsageError, match="40 public inputs"):
        public_rows(device, 0, 0)
    with pytest.raises(UsageError, match="no public inputs"):
        public_rows(replace(device, public=None), 0, 0)


def test_messages_that_do_not_fit_are_refused():
    envs = {n: replace(env, me=n, here=TREE.get(n, ())) for n, env in envs_of(SMALL, 1).items()}
    h, _ = FEDAL.hospital.receive(envs["h0"], FEDAL.hospital.start(envs["h0"])[0], UP, Local(0, "logits"))
    for bad in (
        Outputs(np.zeros((7, CLASSES))),
        Outputs(np.zeros((8, CLASSES + 1))),
        Settled(),
        Share("a", np.ones(2), 1.0),
    ):
        with pytest.raises(PeerError, match="d0 sent"):
            FEDAL.hospital.receive(envs["h0"], h, "d0", bad)
    s, _ = FEDAL.aggregator.start(envs["aggregator"])
    for slots in ((0, 3), (5,)):
        with pytest.raises(PeerError, match="h0 sent logits"):
            FEDAL.aggregator.receive(envs["aggregator"], s, "h0", Parcel(slots, np.zeros((len(slots), 8, CLASSES))))
    with pytest.raises(PeerError, match="there are 3"):
        FEDAL.hospital.receive(envs["h0"], h, UP, Consensus(0, 0, 4, None, (3,), None, "logits"))
    for bad in (Parcel((1, 0), np.zeros((2, 8, 3))), Parcel((0,), np.zeros((2, 8, 3))), Local(0, "dance")):
        with pytest.raises(ValueError):
            bad.check(None)
