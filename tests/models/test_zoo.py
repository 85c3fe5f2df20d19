"""Parameter counts of the zoo: published ones, or counted by hand; and one small net per family through the
compiler.
"""

import pytest
import torch

from edge_sdk.models.ir.specification.layout import lay_out_parameters
from edge_sdk.models.zoo import ZOO
from edge_sdk.models.zoo.split import SPLIT_ZOO
from edge_sdk.models.zoo.vision import Plain
from tests.models.module_check import measure_error


@pytest.mark.parametrize("name", ZOO)
def test_parameter_counts(name):
    with torch.device("meta"):
        net = ZOO[name].build()
    slots = lay_out_parameters(net)
    assert sum(s.size for s in slots) == ZOO[name].parameters
    assert slots[-1].offset + slots[-1].size == ZOO[name].parameters


@pytest.mark.parametrize(("name", "classes", "count"), [("resnet8x4", 100, 1_233_540), ("resnet18", 100, 11_220_032)])
def test_published_counts_for_other_classes(name, classes, count):
    with torch.device("meta"):
        assert sum(p.numel() for p in ZOO[name].build(classes=classes).parameters()) == count


def test_split_models_have_the_published_feature_counts():
    features = {
        name: {t: torch.Size(v).numel() for t, v in make()[1].inputs.items()} for name, make in SPLIT_ZOO.items()
    }
    assert features["split-eeg"] == {"hospital": 89, "device": 89}
    assert features["split-images"] == {"hospital": 484, "device": 300}
    assert {t: v // 48 for t, v in features["split-vitals"].items()} == {"hospital": 38, "device": 38}


@pytest.mark.parametrize("side", [8, 9])
@pytest.mark.parametrize("pool", [False, True])
def test_a_plain_network_fits_its_linear_layer_to_odd_sides_and_either_way_of_halving(pool, side):
    net = Plain((2, side, 10), 3, widths=(4, 6), pool=pool)
    assert net(torch.zeros(5, 2, side, 10)).shape == (5, 3)


SMALL = {
    "signal": (1, 16),
    "separable": (2, 16),
    "gru2": (3, 4),
    "lstm2": (3, 4),
    "transformer": (4, 3),
    "lenet": (1, 12, 12),
    "plain": (1, 9, 10),
    "wrn10-1": (1, 8, 8),
    "resnet20-bn": (1, 8, 8),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_inputs_compile_and_agree_with_autograd(name):
    torch.manual_seed(0)
    assert measure_error(ZOO[name].build(SMALL[name], 3), SMALL[name]) <= 1e-6
