"""The gate's search: it finds broken rules that no fixed case shows, and no fault in rules that are right."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import read_vectors
from edge_sdk.models.cli import main
from edge_sdk.models.derive import targets
from edge_sdk.models.gate.graphs.gate import Truth
from edge_sdk.models.gate.graphs.search import (
    CHOICES,
    ORDINARY,
    Comparison,
    Recipe,
    draw_recipe,
    make_data,
    search_inputs,
)
from edge_sdk.models.ir.errors import ParityError
from edge_sdk.models.ir.specification.layout import lay_out_buffers, lay_out_parameters
from edge_sdk.models.ir.specification.losses import LOSSES, require_matrix
from edge_sdk.models.ir.specification.spec import DataInput
from edge_sdk.models.rules import RULES
from tests.models.module_check import Net, export_net, measure_exported
from tests.models.test_gate import NETS

TRIES = 80


def instance_net():
    return nn.Sequential(
        nn.Conv1d(2, 4, 3, bias=False), nn.InstanceNorm1d(4), nn.Tanh(), nn.Flatten(), nn.Linear(24, 3)
    )


def make(name):
    build, shape = {**NETS, "instance norm": (instance_net, (2, 8)), "relu": (lambda: Net(torch.relu), (8,))}[name]
    torch.manual_seed(4)
    return export_net(build(), shape)


def compare(net, inputs, forward):
    slots, buffers = lay_out_parameters(net), lay_out_buffers(net)
    target = targets.write_loss_grad(targets.Source(forward, {"theta": slots}, buffers), "cross_entropy")
    return Comparison(target, slots, Truth(net, inputs, "cross_entropy"), read_vectors(net, slots, buffers), (-3,))


def without_maximum(original):
    def broken(g, output, smoothing=0.0):
        """log softmax as z - log(sum(exp(z))), which overflows."""
        batch, _ = require_matrix(g, output)
        total = g.unary("Log", g.sum(g.unary("Exp", output), [1], keep=True))
        loss, _ = original(g, output, smoothing)
        hot = next(n.outputs[0] for n in g.nodes if n.op == "OneHot")
        p = g.unary("Exp", g.sub(output, total))
        return loss, g.mul(g.sub(p, hot), g.reshape("weights", (batch, 1)))

    return broken


def weights_at_most_one(original):
    def broken(g, output, smoothing=0.0):
        loss, seed = original(g, output, smoothing)
        weights = g.reshape("weights", (g.shape("weights")[0], 1))
        most = g.op("Min", weights, g.scalar(1), shape=g.shape(weights))
        return loss, g.mul(seed, g.div(most, g.op("Max", weights, g.scalar(1e-30), shape=g.shape(weights))))

    return broken


def from_squares(original):
    """The adjoint of a norm by the mean of squares less the square of the mean, which cancels."""

    def broken(g, n, outs, want):
        x = n.inputs[0]
        mean = g.mean(x, [2], keep=True)
        d = g.sub(x, mean)
        variance = g.sub(g.mean(g.mul(x, x), [2], keep=True), g.mul(mean, mean))
        right = g.mean(g.mul(d, d), [2], keep=True)
        gx, *rest = original(g, n, outs, want)
        return (g.mul(gx, g.div(g.add(right, g.scalar(1e-5)), g.add(variance, g.scalar(1e-5)))), *rest)

    return broken


def at_most(limit):
    def change(original):
        def broken(g, n, outs, want):
            gx, gw, *rest = original(g, n, outs, want)
            return (gx, g.op("Clip", gw, g.scalar(-limit), g.scalar(limit), shape=g.shape(gw)), *rest)

        return broken

    return change


MUTATIONS = {
    "a softmax without its maximum": ("image", LOSSES, "cross_entropy", without_maximum),
    "weights above 1 count as 1": ("mlp", LOSSES, "cross_entropy", weights_at_most_one),
    "a variance that cancels": ("instance norm", RULES, "LayerNormalization", from_squares),
    "slopes of weights end at 1000": ("relu", RULES, "Gemm", at_most(1000.0)),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_search_finds_what_the_fixed_cases_miss(monkeypatch, name):
    net, table, key, change = MUTATIONS[name]
    ready = make(net)
    monkeypatch.setitem(table, key, change(table[key]))
    assert measure_exported(*ready) <= 1e-6
    with pytest.raises(ParityError, match="searched"):
        search_inputs(compare(*ready), TRIES)


@pytest.mark.parametrize("name", [*NETS, "instance norm", "relu"])
def test_nothing_is_found_in_rules_that_are_right(name):
    assert search_inputs(compare(*make(name)), TRIES) <= 1e-6


def test_a_search_is_the_same_each_time():
    ready = make("conv")
    assert search_inputs(compare(*ready), 8) == search_inputs(compare(*ready), 8)


def test_every_choice_is_drawn_and_makes_inputs_that_float32_holds():
    rng, seen = np.random.default_rng(1), set()
    inputs = [DataInput("x", (2, 4)), DataInput("ids", (3,), 7)]
    truth = Truth(nn.Linear(4, 3), inputs, "cross_entropy")
    for _ in range(300):
        recipe = draw_recipe(rng)
        seen |= {(k, getattr(recipe, k)) for k in CHOICES}
        data = make_data(recipe, truth, (-3,))
        assert data["x"].shape == (recipe.batch, 2, 4)
        assert torch.equal(data["x"], data["x"].float().double())
        assert 0 <= int(data["ids"].min()) <= int(data["ids"].max()) < 7
        assert torch.isfinite(data["x"]).all()
    assert seen == {(k, v) for k, values in CHOICES.items() for v in values}


def test_a_recipe_says_what_the_input_is():
    recipe = Recipe(7, 3, 1e-3, 1e4, "equal", 0.0, "one alone", "drawn", "last")
    said = "seed 7, batch 3, scale 0.001, offset 10000, rows equal, outlier 0, weights one alone"
    assert str(recipe) == f"{said}, targets drawn, indices last, parameters as given"


def test_the_command_deepens_the_search(capsys, tmp_path):
    assert main(["compile", "mlp", "--search", "9", "-o", str(tmp_path / "m.bundle")]) == 0
    assert "9 searched inputs" in capsys.readouterr().out
    assert main(["compile", "mlp", "--search", "-1", "-o", str(tmp_path / "n.bundle")]) == 2
    assert "--search -1" in capsys.readouterr().err


class Versioned(nn.Linear):
    """Loads states of a version that it knows only, as torchvision's MNASNet does."""

    _version = 2

    def _load_from_state_dict(self, state, prefix, local_metadata, *rest):
        assert local_metadata.get("version") == 2
        super()._load_from_state_dict(state, prefix, local_metadata, *rest)


def test_a_module_that_asks_for_its_version_is_searched():
    net = nn.Sequential(Versioned(8, 4), nn.ReLU(), nn.Linear(4, 3))
    assert search_inputs(compare(*export_net(net, (8,))), 12) <= 1e-6


@pytest.mark.parametrize(
    ("off", "place", "counts"),
    [
        (5e-12, "as given", True),
        (5e-12, "times 1e-3", True),
        (
            5e-12,
            "times 1e3",
            False,
        ),  # of adjoints between layers that are 1e13 times the gradient, float64 loses as much
        (5e-10, "times 1e3", True),
    ],
)
def test_what_float64_rounds_off_large_adjoints_does_not_count(off, place, counts):
    """In a tensor that is next to nothing beside the whole gradient; it moves with the last bits of nothing."""
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    comparison = compare(*export_net(net, (6,)))
    recipe = replace(ORDINARY, parameters=place)
    data = make_data(recipe, comparison.truth, comparison.y_shape)
    small = comparison.slots[0].span
    with comparison.place(recipe):
        want = comparison.truth.loss_grad(data)[2]
        want[small] *= 1e-12
        comparison.truth.loss_grad = lambda *_: (0.0, None, want)  # torch's own stands still
        got = want.copy()
        got[small] += off * np.abs(want).max()
        if counts:
            with pytest.raises(ParityError, match="searched"):
                comparison.confirm(recipe, data, got, want)
        else:
            comparison.confirm(recipe, data, got, want)
