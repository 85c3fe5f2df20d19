"""The invariants of FedAL's specification (3.2), with what crosses a wire among them."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

pytest.importorskip("torch")

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.methods.fedal import aggregator as fedal_server
from edge_sdk.methods.fedal import discriminator, distillation
from edge_sdk.methods.fedal import equations as fedal_equations
from edge_sdk.methods.fedal.equations import draw_public_rows, transfer_cotangent
from edge_sdk.methods.fedal.messages import Feedback, Outputs
from edge_sdk.methods.fedal.method import FEDAL
from edge_sdk.methods.fedal.settings import VARIANTS, Settings
from edge_sdk.nodes.configuration.settings import from_mapping
from edge_sdk.wire.codec.codec import Codec
from tests.methods.fedal import literal_fedal
from tests.methods.fedal.fedal_runs import NO_LF, SMALL, difference, discriminator0, literal
from tests.methods.fedal.logit_problems import CLASSES, NETS, PARTIES, PUBLIC, Net, Party, drawn, envs_of, play
from tests.methods.problems import DEVICES, state


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
    rows = fedal_equations.draw_private_rows(env, 0, 0)
    plain = env.grad_fn(env.theta0, rows)[1]
    assert np.allclose(fedal_equations.local_gradient(env, env.theta0, env.theta0, rows)[1], plain, atol=1e-15)
    f = env.public.logits(env.theta0, draw_public_rows(env, 0, 0))
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
    f = envs["d0"].public.logits(one.theta0, draw_public_rows(envs["d0"], 0, 0))
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
    public = {tuple(draw_public_rows(env, 3, 1)) for env in envs.values()}
    assert len(public) == 1 and public != {tuple(draw_public_rows(envs["d0"], 3, 2))}
    assert len({tuple(fedal_equations.draw_private_rows(env, 3, 1)[:8]) for env in envs.values()}) > 1
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
    _, transcript = play(SMALL, 3, faults=NetworkFaults(repeat=0.0))
    B, K = SMALL.public_batch, CLASSES
    kinds = set()
    for sender, receiver, m in transcript.crossed:
        kinds.add((sender[0], type(m).__name__))
        if sender in DEVICES:
            assert [a.shape for a in arrays_of(m)] == ([(B, K)] if isinstance(m, Outputs) else [])
        if receiver in DEVICES:
            assert [a.shape for a in arrays_of(m)] == ([(B, K)] * 2 if isinstance(m, Feedback) else [])
    assert kinds == {("d", "Outputs"), ("d", "Settled"), ("h", "HospitalLogits"), ("h", "Settled"), ("h", "Local"),
                     ("h", "Feedback"), ("a", "Local"), ("a", "Consensus")}  # fmt: skip


def test_11_no_name_of_a_device_goes_up():
    _, transcript = play(SMALL, 1, through=lambda m: m)
    codec = Codec(FEDAL.messages, dtype=np.float64)
    up = [codec.encode(m) for sender, receiver, m in transcript.crossed if receiver == "aggregator"]
    assert up and not any(f'"{d}"'.encode() in data or d.encode() in data for d in DEVICES for data in up)


def test_12_bytes_are_those_of_the_paper():
    """T tau B K 4 up and twice that down, per device; less where a term is off."""
    s, rounds = replace(SMALL, tau=2), 3
    once = rounds * s.tau * s.public_batch * CLASSES * 4
    for settings, down in ((s, 2), (replace(s, al=0.0), 1), (replace(s, kd=0.0), 1)):
        _, transcript = play(settings, rounds, dtype=np.float32, faults=NetworkFaults(repeat=0.0))
        sent = sum(a.nbytes for who, _, m in transcript.crossed if who == "d3" for a in arrays_of(m))
        received = sum(a.nbytes for _, to, m in transcript.crossed if to == "d3" for a in arrays_of(m))
        assert (sent, received) == (once, down * once)


def test_13_the_discriminator_rests_in_the_local_stage_and_references_stay():
    _, transcript = play(SMALL, 2, faults=NetworkFaults(repeat=0.0))
    closes = transcript.closed["aggregator"]
    settled = [c.state.w for c in closes]
    assert np.array_equal(settled[SMALL.tau - 1], settled[SMALL.tau])  # the close that ends a round teaches nothing
    assert not np.array_equal(settled[0], settled[1])
    stage = [s.references for s in transcript.states["d1"] if s.round == 0]
    assert all(np.array_equal(r, stage[0]) for r in stage) and stage[0].shape == (3, 8, CLASSES)


def test_15_one_aggregator_for_all_architectures():
    sizes = {len(p.theta0) for p in PARTIES.values()}
    assert len(sizes) == 3 and len({n.size for n in NETS}) == 3


@pytest.mark.parametrize("averaging", ["after_local", "after_transfer"])
def test_16_groups_are_equal_after_averaging_and_who_is_alone_keeps_its_own(averaging):
    nets = (Net(), Net((4,)), Net((4,)), Net(), Net((3, 4)), Net((4,)))
    parties = {d: drawn(i, net) for i, (d, net) in enumerate(zip(DEVICES, nets, strict=True))}
    s = replace(SMALL, averaging=averaging)
    net, transcript = play(s, 2, parties=parties)
    assert difference(net, literal(s, 2, parties=parties).play(2)) < 1e-12
    told_average = [(to, m) for _, to, m in transcript.crossed if type(m).__name__ == "Average"]
    assert {to for to, m in told_average if m.model is None} == {"d4"}
    after = [(d, s_) for d in ("d0", "d3") for s_ in transcript.states[d]]
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
