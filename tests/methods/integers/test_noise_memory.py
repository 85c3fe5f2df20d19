"""Noise in methods whose devices remember what moves with their uploads: FedSLR, FedDyn, SCAFFOLD."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from edge_sdk.methods import METHODS
from edge_sdk.methods.integers.method import rounded
from edge_sdk.methods.integers.vectors.messages import Changes, Integers
from edge_sdk.methods.integers.vectors.privacy import Privacy
from edge_sdk.methods.shared.aggregation.guard import Refused
from edge_sdk.methods.shared.evaluation.evaluation import Scores, evaluated
from tests.methods.integers.test_noise import BITS, CALM, Seeded, noisy, played
from tests.methods.literal import on_layers, shuffled, svt
from tests.methods.problems import DEVICES, SEED, envs_of, play


@pytest.mark.parametrize("name", ["fedslr", "feddyn", "scaffold"])
@pytest.mark.parametrize("changes", [{"samples": 0}, {"grad_fn": lambda theta, i: (1.0, np.full_like(theta, np.inf))}])
def test_a_device_that_had_nothing_to_send_has_taken_part_all_the_same(name, changes):
    """Its upload of no movement is counted, so it has to remember that, or it would say next time that it has not."""
    privacy = Privacy(clip=20.0, noise=1e-6, cohort=1)
    method, settings = noisy(name, privacy)
    envs = envs_of(METHODS[name], settings, 4)
    envs |= {d: replace(envs[d], entropy=Seeded(d)) for d in DEVICES}
    envs["d0"] = replace(envs["d0"], **changes)
    with np.errstate(all="ignore"):
        net, transcript = play(evaluated(method), settings, 4, faults=CALM, envs=envs)
    answers = [type(m) for a, b, m in transcript.crossed if a == "d0" and not isinstance(m, Scores)]
    assert answers == [Integers] * 4
    top = net.nodes["aggregator"].record.state.inner.inner
    mean = top.gamma_mean if name == "fedslr" else top.gradient if name == "feddyn" else top.control
    kept = [net.nodes[d].record.state.inner.inner.tried for d in DEVICES]
    assert not kept[0].any() and np.linalg.norm(kept[1]) > 0
    assert not [m for _, m in transcript.told if isinstance(m, Refused)]
    assert np.linalg.norm(np.mean(kept, 0) - mean) < 0.01 * np.linalg.norm(mean)


QUIET = 1e-4
"""Noise of a sum in clips: hardly any, so that what is left is what clipping does."""


def literally(name, problems, theta, s, rounds, clip):
    """Algorithms as printed, with everybody in each round and each movement (y - theta and, in SCAFFOLD, the change of
    c_i with it) cut to a length. Where it is cut, what the device keeps moves as little."""
    c, mean, path = {i: np.zeros_like(theta) for i in problems}, np.zeros_like(theta), [theta]
    for t in range(rounds):
        moved, eta = {}, s.eta_l * s.decay**t
        for i, f in problems.items():
            y, k = theta, 0
            pull = {"fedslr": c[i], "feddyn": c[i], "scaffold": c[i] - mean}[name]
            near = {"fedslr": 1 / getattr(s, "eta_g", 1), "feddyn": getattr(s, "alpha", 0), "scaffold": 0.0}[name]
            for batch in islice(shuffled(SEED, t, i, 1, len(f.b), s.batch, 1000), steps_of(name, s, len(f.b))):
                y, k = y - eta * (f(y, batch)[1] + s.weight_decay * y - pull + near * (y - theta)), k + 1
            change = near * (theta - y) if name != "scaffold" else -mean + (theta - y) / (k * eta)
            length = np.linalg.norm(np.concatenate([y - theta] + [change] * (name == "scaffold")))
            share = min(1.0, clip / length)
            moved[i], c[i] = share * (y - theta), c[i] + share * change
        step = np.mean(list(moved.values()), 0)
        if name == "scaffold":
            theta, mean = theta + s.eta_g * step, np.mean(list(c.values()), 0)
        else:
            mean = np.mean(list(c.values()), 0)
            theta = theta + step - mean / near
            if name == "fedslr":
                theta = on_layers(lambda x: svt(x, s.eta_g * s.lam), theta)
        path.append(theta)
    return path, c


def steps_of(name, s, samples):
    if name == "scaffold" and s.local_steps:
        return s.local_steps
    return s.local_epochs * (1 if s.batch == 0 or samples <= s.batch else -(-samples // s.batch))


@pytest.mark.parametrize("name", ["fedslr", "feddyn", "scaffold"])
@pytest.mark.parametrize("clip", [0.05, 20.0])
def test_a_method_with_memory_is_the_printed_one_with_clipped_movements(name, clip):
    """With next to no noise: models and what devices remember; a clip of 0.05 cuts all uploads, one of 20 none."""
    privacy = Privacy(clip=clip, noise=QUIET if clip < 1 else 1e-6, cohort=1)
    net, _ = played(name, rounds=6, privacy=privacy)
    method, settings = noisy(name, privacy)
    problems = {d: net.nodes[d].env.grad_fn for d in DEVICES}
    path, memory = literally(name, problems, net.nodes["d0"].env.theta0, settings, 6, clip)
    shown = net.nodes["aggregator"].record.state
    models = METHODS[name].models(net.nodes["aggregator"].env, None, method.show(net.nodes["aggregator"].env, shown))
    moved = np.linalg.norm(path[-1] - path[0])
    assert np.linalg.norm(models["global"] - path[-1]) < 0.01 * moved
    for d in DEVICES:
        found = net.nodes[d].record.state.inner.tried
        assert np.linalg.norm(found - memory[d]) < 0.01 * np.linalg.norm(memory[d])


def test_without_shortening_what_devices_remember_the_mean_is_lost():
    """The sentinel of the test above: gamma_i moves by all of w_i, the aggregator's mean by what has left of it."""
    method, settings = noisy("fedslr", Privacy(clip=0.05, noise=QUIET, cohort=1))
    whole = rounded(replace(METHODS["fedslr"], shortened=lambda env, before, after, m, share: after), settings, BITS,
                    privacy=Privacy(clip=0.05, noise=QUIET, cohort=1))  # fmt: skip
    errors = []
    for one in (method, whole):
        envs = envs_of(METHODS["fedslr"], settings, 6)
        envs |= {d: replace(envs[d], entropy=Seeded(d)) for d in DEVICES}
        net, _ = play(one, settings, 6, faults=CALM, envs=envs)
        mean = np.mean([net.nodes[d].record.state.inner.tried for d in DEVICES], 0)
        kept = net.nodes["aggregator"].record.state.inner.gamma_mean
        errors.append(np.linalg.norm(kept - mean) / np.linalg.norm(kept))
    assert errors[0] < 0.01 < 1 < errors[1]


@pytest.mark.parametrize("name", ["fedslr", "feddyn", "scaffold"])
def test_what_a_device_remembers_is_the_same_whatever_noise_it_has_drawn(name):
    """Noise that came back in a later upload would no longer hide the others of its first sum."""
    method, _ = noisy(name)
    net, transcript = played(name, rounds=1)
    env = replace(net.nodes["d0"].env, me="d0")
    question = next(m for _, to, m in transcript.crossed if isinstance(m, Changes) and to == "d0")
    start = method.device.start(env)[0]
    one, two = (method.device.receive(replace(env, entropy=Seeded(seed)), start, "up", question) for seed in "ab")
    assert not np.array_equal(one[1][0].message.steps, two[1][0].message.steps)
    np.testing.assert_array_equal(one[0].inner.tried, two[0].inner.tried)
    assert np.linalg.norm(one[0].inner.tried) > 0
