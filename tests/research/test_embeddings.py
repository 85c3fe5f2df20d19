"""A torch module that looks whole numbers up, in `simulate`: arrays of integers are its inputs as they are."""

from __future__ import annotations

import numpy as np
import pytest

import edge_sdk as auscult
from edge_sdk.model.model import Model
from edge_sdk.research.fleets.modules import bundle_of

torch = pytest.importorskip("torch", reason="a module of torch is compiled")


class Words(torch.nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(vocabulary, 4), torch.nn.Embedding(7, 4)
        self.head = torch.nn.Linear(28, 3)

    def forward(self, x):
        return self.head((self.words(x) + self.places(torch.arange(7))).flatten(1))


def fleet(largest):
    random = np.random.default_rng(0)
    x = random.integers(0, largest + 1, size=(30, 7))
    x[0, 0] = largest
    return x, auscult.Fleet.from_arrays({name: (x, np.arange(30) % 3) for name in ("ann", "bob")})


def test_integers_are_looked_up_in_the_table_that_has_them_all():
    torch.manual_seed(0)
    net, (x, data) = Words(12), fleet(9)
    model = Model(bundle_of(net, data))
    assert model.bundle.manifest["inputs"][0]["below"] == 12
    with torch.no_grad():
        np.testing.assert_allclose(model.predict(model.theta0, x), net(torch.tensor(x)).numpy(), atol=1e-5)


def test_a_number_beyond_every_table_is_named_before_anything_is_compiled():
    with pytest.raises(auscult.UsageError, match=r"x has 40, and embedding words has 12 rows, places has 7 rows"):
        bundle_of(Words(12), fleet(40)[1])


class Placed(torch.nn.Module):
    """Readings of an analogue converter are whole numbers too, and nothing to be looked up."""

    def __init__(self):
        super().__init__()
        self.places, self.head = torch.nn.Embedding(7, 1), torch.nn.Linear(7, 3)

    def forward(self, x):
        return self.head(x / 40 + self.places(torch.arange(7))[:, 0])


def test_whole_numbers_of_a_module_that_takes_floats_stay_floats():
    model = Model(bundle_of(Placed(), fleet(40)[1]))
    assert model.bundle.manifest["inputs"][0]["dtype"] == "float32"
